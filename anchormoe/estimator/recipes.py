"""The recipe that the parameters of an AnchorMoERegressor ask for, with all settings resolved."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from anchormoe.config.presets import anchor_preset, as_enum, changed, foreign_anchor, recipe_preset
from anchormoe.estimator.sizing import at_size
from anchormoe.model import crossfit
from anchormoe.model.crossfit import CrossfitAnchorMoE
from anchormoe.model.joint import CrossfitJointAnchorMoE
from anchormoe.model.paper import PaperAnchorMoE
from anchormoe.model.settings import AnchorKind, AnchorSettings, Calibration, CrossfitSettings, Loss
from anchormoe.model.training_rows import TrainingRows

if TYPE_CHECKING:
    from anchormoe.estimator.regressor import AnchorMoERegressor


def make_recipe(
    estimator: AnchorMoERegressor, num_rows: int, names: tuple[str, ...] | None = None
) -> CrossfitAnchorMoE | PaperAnchorMoE:
    """Return the unfitted recipe for a table of `num_rows` rows.

    `names` are those of several targets, empty if these have none; None means one target.
    """
    preset = recipe_preset(estimator.recipe)
    if estimator.recipe != "paper":
        preset = at_size(preset, num_rows)
    sizes = {name: getattr(estimator, name) for name in ("num_experts", "top_k", "hidden_dim", "num_components")}
    anchor = _anchor(estimator.anchor, preset.anchor)
    model = _settings(preset.model, estimator.network, sizes, "network")
    if estimator.covariance != "full":  # else what `network` states counts
        model = changed(model, {"covariance": estimator.covariance}, "network")
    if estimator.anchor is None:
        model = changed(model, {"anchor_mode": "free"}, "network")
    train = _settings(preset.train, estimator.training, {}, "training")
    if estimator.loss != "nll":
        train = dataclasses.replace(train, loss=as_enum(Loss, estimator.loss, "loss"))
    train = dataclasses.replace(train, device=_device(estimator.device, train.device))
    calibration = _calibration(estimator.calibration, preset.calibration, several_targets=names is not None)
    recipe = PaperAnchorMoE if estimator.recipe == "paper" else CrossfitAnchorMoE
    further = dict(estimator.recipe_parameters or {})
    _require_parameters(recipe, further)
    common = {"calibration": calibration, "random_state": _seed(estimator.random_state), **further}
    if recipe is PaperAnchorMoE:
        if names is not None:
            others = "fast, best or crossfit"
            raise ValueError(f"recipe must be {others} with several targets, received 'paper': fit one y at a time")
        if estimator.folds is not None:
            raise ValueError(f"folds must be None for recipe='paper', which has no folds, received {estimator.folds}")
        return PaperAnchorMoE(anchor=anchor, model=model, train=train, **common)
    folds = _crossfit_settings(preset.crossfit, estimator.folds)
    settings = {"anchor": anchor, "model": model, "train": train, "crossfit": folds, **common}
    return CrossfitAnchorMoE(**settings) if names is None else CrossfitJointAnchorMoE(names=names, **settings)


def _anchor(wanted: Any, preset: AnchorSettings) -> AnchorSettings:
    if isinstance(wanted, AnchorSettings):
        return wanted
    if wanted is None:
        return AnchorSettings(name="none", kind=AnchorKind.none)
    if isinstance(wanted, str):
        return preset if wanted == "auto" else anchor_preset(wanted)
    if not (hasattr(wanted, "fit") and hasattr(wanted, "predict")):
        raise ValueError(
            f"anchor must be 'auto', a name, a regressor with fit and predict, or None, received {wanted!r}"
        )
    return foreign_anchor(wanted)


def _settings(preset: Any, given: Any, sizes: Mapping[str, Any], what: str) -> Any:
    """Return the preset, or whole settings if given, with the values that are stated replaced."""
    base = given if isinstance(given, type(preset)) else changed(preset, given or {}, what)
    stated = {name: value for name, value in sizes.items() if value is not None}
    return changed(base, stated, what) if stated else base


def _calibration(wanted: Any, preset: Calibration, *, several_targets: bool) -> Calibration:
    """Return the calibration; several targets have no one distribution function to map, so theirs maps the means."""
    if wanted != "auto":
        return as_enum(Calibration, wanted, "calibration")
    return Calibration.weighted if several_targets and preset.maps_cdf else preset


def _crossfit_settings(preset: CrossfitSettings, folds: Any) -> CrossfitSettings:
    if folds is None or isinstance(folds, CrossfitSettings):
        return folds or preset
    return dataclasses.replace(preset, folds=folds, folds_when_large=folds)


def _require_parameters(recipe: type, parameters: Mapping[str, Any]) -> None:
    accepted = [name for name in inspect.signature(recipe).parameters if name not in ("anchor", "model", "train")]
    for name in parameters:
        if name not in accepted:
            raise ValueError(f"recipe_parameters must be among {', '.join(accepted)}, received {name!r}")


def num_pieces(regressor: CrossfitAnchorMoE | PaperAnchorMoE, rows: TrainingRows) -> int:
    """Return the number of pieces of work that a fit will report."""
    if isinstance(regressor, PaperAnchorMoE):
        return 1
    num_targets = 1 if rows.y.ndim == 1 else rows.y.shape[1]
    num_models = regressor.crossfit.num_folds(len(rows)) * regressor.crossfit.num_repetitions(len(rows))
    return crossfit.num_pieces(regressor.anchor, len(rows), num_models, num_targets)


def _seed(random_state: Any) -> int:
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def num_threads(n_jobs: int | None) -> int:
    """Return the number of threads: None means one, negative numbers count back from the number of cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if n_jobs is None:
        return 1
    if not isinstance(n_jobs, int | np.integer) or n_jobs == 0:
        raise ValueError(f"n_jobs must be None or a whole number other than 0, received {n_jobs!r}")
    return int(n_jobs) if n_jobs > 0 else max(1, cores + 1 + int(n_jobs))


def _device(wanted: str, stated: str) -> str:
    """Return the device to train on; `auto` is the one that the settings state, or a GPU if there is one."""
    import torch

    if wanted == "auto":
        return "cuda" if stated == "cpu" and torch.cuda.is_available() else stated
    try:
        return str(torch.device(wanted))
    except RuntimeError:
        raise ValueError(f"device must be 'auto' or torch's name of a device, received {wanted!r}") from None
