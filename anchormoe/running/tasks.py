"""Tasks from configurations. The rules of a protocol become arguments here and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from anchormoe import methods
from anchormoe.config.schema import Config, DataSource, SeedRule
from anchormoe.data.catalogue import DatasetInfo
from anchormoe.data.dataset import load, num_rows
from anchormoe.data.splits import OuterSplit
from anchormoe.errors import UserError
from anchormoe.model.anchors.imported import import_regressor
from anchormoe.model.anchors.selection import require_usable
from anchormoe.rows import Row
from anchormoe.running.identity import has_network, method_name, row_identity, variant_of


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


def make_task(config: Config, split: int) -> Task:
    """Make the task of one split."""
    method = method_name(config)
    arguments = _ARGUMENTS.get(method, _rival_arguments)(config, split)
    return Task(
        dataset=config.dataset,
        variant=variant_of(config),
        subsample=config.dataset.subsample,
        subsample_seed=config.seed,
        source=config.data.source.value,
        mirror=config.data.mirror,
        split=_outer_split(config, split),
        method=method,
        arguments=arguments,
        labels={**row_identity(config, split), "model": config.model.name},
    )


def require_runnable(config: Config) -> None:
    """Refuse mistakes that the schema cannot find: a variant, a subsample, parameters of an anchor or a method."""
    size, total = config.dataset.subsample, num_rows(config.dataset, variant_of(config))
    if size is not None and not 30 <= size <= total:
        raise UserError(f"dataset.subsample must be null or from 30 to {total}, received {size}")
    for key, target in (("method.target", config.method.target), ("anchor.target", config.anchor.target)):
        if target is not None:
            import_regressor(key, target)  # before its file is looked for
    task = make_task(config, 1)
    if has_network(config):  # its class would load torch, which only those who compute need
        require_usable(config.anchor, cross_fitted=task.method == "anchormoe_crossfit")
    else:
        methods.make(task.method, task.arguments)
    if config.data.source is DataSource.download or config.dataset.path is not None:
        # The file is fetched once, before several workers need it.
        load(config.dataset, variant=task.variant, source=task.source, mirror=task.mirror)


def _outer_split(config: Config, number: int) -> OuterSplit:
    continued = config.dataset.name in config.rules.continued_stream
    rows = num_rows(config.dataset, variant_of(config)) if continued else None
    return OuterSplit(number, config.seed, subsampled_from=rows)


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
    return {
        "recipe": "crossfit",
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


def _rival_arguments(config: Config, split: int) -> dict[str, Any]:
    """Return the arguments of another method; every split has its own seed, as in the published runs."""
    target = {} if config.method.target is None else {"target": config.method.target}
    return {**target, "random_state": config.seed + split, **config.method.params}


_ARGUMENTS: dict[str, Callable[[Config, int], dict[str, Any]]] = {
    "anchormoe": _paper_arguments,
    "anchormoe_crossfit": _crossfit_arguments,
}
