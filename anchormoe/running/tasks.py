"""Tasks from configurations. The rules of a protocol become arguments here and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from anchormoe import methods
from anchormoe.config.presets import RECIPES
from anchormoe.config.schema import Config, DataSource, SeedRule
from anchormoe.data.catalogue import DatasetInfo
from anchormoe.data.dataset import load, num_rows, scheme_of
from anchormoe.data.splits import OuterSplit
from anchormoe.errors import UserError
from anchormoe.model.anchors.imported import import_paths, import_regressor
from anchormoe.model.anchors.selection import require_usable
from anchormoe.rows import JOINT, Row
from anchormoe.running.identity import has_network, method_name, row_identity, variant_of

_ROWS_PER_SECOND = 700  # a first guess; even the smallest dataset takes a second


@dataclass(frozen=True)
class Task:
    """One split to compute. It holds all that is needed and can be sent to another process or machine."""

    dataset: DatasetInfo
    variant: str | None
    subsample: int | None  # rows drawn once, with subsample_seed, before the outer splits
    subsample_seed: int
    source: str
    mirror: str | None
    split: OuterSplit
    method: str
    arguments: dict[str, Any]  # arguments of the method's constructor
    labels: Row  # the labels of the row, among them its identity
    keep_predictions: bool = False  # whether the row brings the predictions of the test rows with it

    def guess_seconds(self) -> float:
        """Guess the seconds of the task by the number of rows."""
        return 1 + (self.subsample or num_rows(self.dataset, self.variant)) / _ROWS_PER_SECOND


def make_task(config: Config, split: int, *, keep_predictions: bool = False) -> Task:
    """Make the task of one split."""
    method = method_name(config)
    arguments = _ARGUMENTS.get(method, _rival_arguments)(config, split)
    if config.method.calibration.maps_cdf:
        wrapped = {"method": method, "arguments": arguments, "calibration": config.method.calibration.value}
        method, arguments = "calibrated", {**wrapped, "random_state": config.seed + split}
    return Task(
        dataset=config.dataset,
        variant=variant_of(config),
        subsample=_subsample(config),
        subsample_seed=config.seed,
        source=config.data.source.value,
        mirror=config.data.mirror,
        split=_outer_split(config, split),
        method=method,
        arguments=arguments,
        labels={
            **row_identity(config, split),
            "model": config.model.name,
            **_calibration_label(config),
            **_kind_label(config),
        },
        keep_predictions=keep_predictions,
    )


def require_runnable(config: Config) -> None:
    """Refuse mistakes that the schema cannot find: a variant, a subsample, parameters of an anchor or a method."""
    size, total = _subsample(config), num_rows(config.dataset, variant_of(config))
    if size is not None and not 30 <= size <= total:
        raise UserError(f"dataset.subsample must be null or from 30 to {total}, received {size}")
    for key, target in (("method.target", config.method.target), ("anchor.target", config.anchor.target)):
        if target is not None:
            import_regressor(key, target)  # before its file is looked for
    for path in import_paths(config.method.params):
        import_regressor("method.params", path)
    _require_targets(config)
    task = make_task(config, 1)
    if has_network(config):  # its class would load torch, which only those who compute need
        require_usable(config.anchor, cross_fitted=method_name(config) != "anchormoe")
    else:
        methods.make(task.method, task.arguments)
    if config.data.source is DataSource.download or config.dataset.path is not None:
        # The file is fetched once, before several workers need it.
        load(config.dataset, variant=task.variant, source=task.source, mirror=task.mirror)


def _calibration_label(config: Config) -> Row:
    """Return the calibration of Anchor-MoE, or of another method."""
    calibration = config.calibration if has_network(config) else config.method.calibration
    return {"calibration": calibration.value}


def _kind_label(config: Config) -> Row:
    """Return the kind of the row if it is that of several targets; most rows do not name theirs."""
    return {"kind": JOINT} if _num_targets(config) > 1 else {}


def _num_targets(config: Config) -> int:
    return len(config.dataset.choose_variant(variant_of(config))[1].targets)


def _require_targets(config: Config) -> None:
    name, several = method_name(config), _num_targets(config) > 1
    methods.require_targets(name, config.dataset.name, _num_targets(config))
    for key, calibration in (("method.calibration", config.method.calibration), ("calibration", config.calibration)):
        if several and calibration.maps_cdf:
            raise UserError(
                f"{key} must be none, linear or weighted with several targets, received {calibration.value}"
            )


def _subsample(config: Config) -> int | None:
    """Return the number of rows to draw before the splits; None for all rows."""
    _, variant = config.dataset.choose_variant(variant_of(config))
    return config.dataset.subsample if variant.subsampled else None


def _outer_split(config: Config, number: int) -> OuterSplit:
    continued = config.dataset.name in config.rules.continued_stream and _subsample(config) is not None
    rows = num_rows(config.dataset, variant_of(config)) if continued else None
    return OuterSplit(number, config.seed, subsampled_from=rows, scheme=scheme_of(config.dataset))


def _paper_arguments(config: Config, split: int) -> dict[str, Any]:
    rules = config.rules
    return {
        "anchor": config.anchor,
        "model": config.model,
        "train": config.train,
        "calibration": config.calibration,
        "calibration_fraction": rules.calibration_fraction,
        "validation_fraction": rules.validation_fraction,
        "feature_fold": rules.feature_fold,
        "anchor_column": rules.anchor_column,
        "initial_weights": rules.initial_weights,
        "weight_draws": split,
        "inner_seed": config.seed + split if rules.inner_seed is SeedRule.per_split else config.seed,
        "random_state": config.seed,
    }


def _crossfit_arguments(config: Config, split: int) -> dict[str, Any]:
    named = {method: recipe for recipe, method in RECIPES.items()}
    return {
        "recipe": named.get(config.method.name, "crossfit"),
        "anchor": config.anchor,
        "network": config.model,
        "training": config.train,
        "folds": config.crossfit,
        "calibration": config.calibration,
        "recipe_parameters": {
            "anchor_column": config.rules.anchor_column,
            "initial_weights": config.rules.initial_weights,
        },
        "random_state": int(np.random.SeedSequence([config.seed, split]).generate_state(1)[0]),
    }


def _mapie_arguments(config: Config, split: int) -> dict[str, Any]:
    return {"kind": config.method.name.removeprefix("mapie_"), **_stack_arguments(config, split)}


def _stack_arguments(config: Config, split: int) -> dict[str, Any]:
    """Return the arguments of what is built on parts of the cross-fitted recipe, with the recipe's own seed."""
    arguments = _crossfit_arguments(config, split)
    return {
        "anchor": config.anchor,
        "model": config.model,
        "train": config.train,
        "crossfit": config.crossfit,
        **arguments["recipe_parameters"],
        "random_state": arguments["random_state"],
    }


def _rival_arguments(config: Config, split: int) -> dict[str, Any]:
    """Return the arguments of another method; every split has its own seed, as in the published runs."""
    target = {} if config.method.target is None else {"target": config.method.target}
    return {**target, "random_state": config.seed + split, **config.method.params}


_ARGUMENTS: dict[str, Callable[[Config, int], dict[str, Any]]] = {
    "stack_gaussian": _stack_arguments,
    "anchormoe": _paper_arguments,
    **dict.fromkeys(("anchormoe_crossfit", "anchormoe_fast", "anchormoe_best"), _crossfit_arguments),
    "mapie_split": _mapie_arguments,
    "mapie_cross": _mapie_arguments,
    **dict.fromkeys(("control_no_router", "control_one_expert", "control_one_gaussian"), _crossfit_arguments),
    **dict.fromkeys(("anchormoe_diagonal", "independent"), _crossfit_arguments),
    **dict.fromkeys(("control_xgboost_scale", "control_one_variance", "control_residual_quantiles"), _stack_arguments),
}
