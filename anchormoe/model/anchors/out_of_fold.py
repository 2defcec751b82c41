"""Anchors of the cross-fitted recipe: every training row's mean comes from a model that has not seen the row.

A boosted anchor's stage is the one with the lowest error over all held-out rows together. A stack is the combination
of its members, with weights of at least zero, that has the lowest error on the held-out rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from anchormoe.model.anchors.boosted import BOOSTED
from anchormoe.model.anchors.fitted import ConstantAnchor, Predict, RegressorAnchor, StackedAnchor, StagedAnchor
from anchormoe.model.anchors.imported import make_regressor
from anchormoe.model.anchors.kernel_machine import Kernel, KernelMachine
from anchormoe.model.settings import AnchorKind, AnchorSettings


@dataclass(frozen=True)
class OutOfFold:
    """Out-of-fold means (N) of the training rows, and the model of each fold for new rows; in original units."""

    mean: np.ndarray
    models: tuple[Predict, ...]  # model k has not seen fold k
    stage: int | None = None

    def rmse(self, y: np.ndarray) -> float:
        return float(np.sqrt(np.mean((y - self.mean) ** 2)))


def folds_of(num_rows: int, num_folds: int, *, seed: int) -> list[np.ndarray]:
    """Cut the rows at random into folds; each array holds the rows its fold holds out."""
    return np.array_split(np.random.default_rng(seed).permutation(num_rows), num_folds)


def rows_outside(fold: np.ndarray, num_rows: int) -> np.ndarray:
    """Return the rows that a fold does not hold out."""
    kept = np.ones(num_rows, dtype=bool)
    kept[fold] = False
    return np.flatnonzero(kept)


def fit(
    settings: AnchorSettings,
    X: np.ndarray,
    y: np.ndarray,
    folds: Sequence[np.ndarray],
    *,
    seed: int,
    network: Callable[[], OutOfFold],
) -> OutOfFold:
    """Fit an anchor out of fold; `network` trains the member of a stack that is Anchor-MoE without an anchor."""
    if settings.kind is AnchorKind.stack:
        members = [fit(member, X, y, folds, seed=seed, network=network) for member in settings.stack_members()]
        return _stack(members, y)
    if settings.kind is AnchorKind.network:
        return network()
    if settings.kind in BOOSTED:
        return _boosted(settings, X, y, folds, seed)
    models: tuple[Predict, ...]
    if settings.kind is AnchorKind.none:  # one mean for all folds; a mean for each would identify the fold
        models = (ConstantAnchor(float(y.mean())),) * len(folds)
    else:
        models = _regressors(settings, X, y, folds, seed)
    return OutOfFold(held_out_means(models, X, folds), models)


def _regressors(
    settings: AnchorSettings, X: np.ndarray, y: np.ndarray, folds: Sequence[np.ndarray], seed: int
) -> tuple[Predict, ...]:
    models = []
    for fold, fit_parameters in zip(folds, _fit_parameters(settings, X, y, folds, seed), strict=True):
        kept = rows_outside(fold, len(y))
        center, scale = float(y[kept].mean()), float(y[kept].std()) or 1.0  # penalties depend on the unit of the target
        model = make_regressor(settings, seed).fit(X[kept], (y[kept] - center) / scale, **fit_parameters)
        models.append(RegressorAnchor(model, center, scale))
    return tuple(models)


def _fit_parameters(
    settings: AnchorSettings, X: np.ndarray, y: np.ndarray, folds: Sequence[np.ndarray], seed: int
) -> list[dict[str, Kernel]]:
    """Return what each fold's regressor gets besides its rows: for a kernel machine, a kernel learnt without the fold.

    Learning a kernel is most of the work, so neighbouring folds share one, as long as enough rows remain to learn from.
    """
    machine = make_regressor(settings, seed)
    if not isinstance(machine, KernelMachine):
        return [{}] * len(folds)
    to_spare = len(y) - machine.rows_to_learn(len(y))
    num_parts = min(max(2, math.ceil(len(y) / to_spare)), len(folds)) if to_spare > 0 else len(folds)
    parameters: list[dict[str, Kernel]] = []
    for part in np.array_split(np.arange(len(folds)), num_parts):
        rows = rows_outside(np.concatenate([folds[number] for number in part]), len(y))
        parameters += [{"kernel": machine.learn_kernel(X[rows], y[rows])}] * len(part)
    return parameters


def _boosted(
    settings: AnchorSettings, X: np.ndarray, y: np.ndarray, folds: Sequence[np.ndarray], seed: int
) -> OutOfFold:
    fitted, squares = [], []
    for fold in folds:
        kept = rows_outside(fold, len(y))
        model = BOOSTED[settings.kind](settings, X[kept], y[kept], settings.stages, seed, validation=(X[fold], y[fold]))
        fitted.append(model)
        squares.append(len(fold) * model.staged_rmse() ** 2)
    # A model that stopped early keeps its last error.
    longest = max(map(len, squares))
    total = sum(np.pad(curve, (0, longest - len(curve)), mode="edge") for curve in squares)
    stage = 1 + int(np.argmin(total))
    models = tuple(StagedAnchor(model, min(stage, len(curve))) for model, curve in zip(fitted, squares, strict=True))
    return OutOfFold(held_out_means(models, X, folds), models, stage)


def _stack(members: Sequence[OutOfFold], y: np.ndarray) -> OutOfFold:
    center = float(y.mean())
    columns = np.column_stack([member.mean - center for member in members])
    weights, _ = nnls(columns, y - center)
    models = zip(*(member.models for member in members), strict=True)
    return OutOfFold(columns @ weights + center, tuple(StackedAnchor(center, weights, parts) for parts in models))


def held_out_means(models: Sequence[Predict], X: np.ndarray, folds: Sequence[np.ndarray]) -> np.ndarray:
    mean = np.empty(len(X))
    for model, fold in zip(models, folds, strict=True):
        mean[fold] = model(X[fold])
    return mean
