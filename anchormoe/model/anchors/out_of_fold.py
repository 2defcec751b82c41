"""Anchors of the cross-fitted recipe: every training row's mean comes from a model that has not seen the row.

A boosted anchor's stage is the one with the lowest error over all held-out rows together. A stack is the combination
of its members, with weights of at least zero, that has the lowest error on the held-out rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import nnls

from anchormoe.model.anchors.boosted import BOOSTED, ENCODERS
from anchormoe.model.anchors.fitted import (
    ConstantAnchor,
    Predict,
    RegressorAnchor,
    StackedAnchor,
    StackMember,
    StagedAnchor,
)
from anchormoe.model.anchors.imported import fit_regressor, make_regressor
from anchormoe.model.anchors.kernel_machine import Kernel, KernelMachine
from anchormoe.model.encoding import dense_encoder, encode_folds
from anchormoe.model.parallel import ONE_WORKER, Workers
from anchormoe.model.settings import AnchorKind, AnchorSettings
from anchormoe.model.training_rows import TrainingRows, rows_outside


@dataclass(frozen=True)
class OutOfFold:
    """Out-of-fold means (N) of the training rows, and the model of each fold for new rows; in original units."""

    mean: np.ndarray
    models: tuple[Predict, ...]  # model k has not seen fold k
    stage: int | None = None
    members: tuple[StackMember, ...] = ()  # of a stack

    def rmse(self, rows: TrainingRows) -> float:
        return math.sqrt(rows.mean((rows.y - self.mean) ** 2))


@dataclass(frozen=True)
class Folds:
    """The rows to fit, the rows that each fold holds out, and the threads to use."""

    rows: TrainingRows
    held_out: Sequence[np.ndarray]
    seed: int
    workers: Workers = field(default=ONE_WORKER)

    def __len__(self) -> int:
        return len(self.held_out)

    def kept(self, number: int) -> np.ndarray:
        """Return the rows that fold `number` does not hold out."""
        return rows_outside(self.held_out[number], len(self.rows))


def fit(settings: AnchorSettings, folds: Folds, *, network: Callable[[], OutOfFold]) -> OutOfFold:
    """Fit an anchor out of fold; `network` trains the member of a stack that is Anchor-MoE without an anchor."""
    if settings.kind is AnchorKind.stack:
        members = settings.stack_members(len(folds.rows))
        return _stack({member.name: fit(member, folds, network=network) for member in members}, folds.rows)
    if settings.kind is AnchorKind.network:
        return network()
    if settings.kind in BOOSTED:
        return _boosted(settings, folds)
    models: Sequence[Predict]
    if settings.kind is AnchorKind.none:  # one mean for all folds; a mean for each would identify the fold
        models = [ConstantAnchor(folds.rows.center)] * len(folds)
    else:
        models = _regressors(settings, folds)
    return OutOfFold(held_out_means(models, folds), tuple(models))


def _regressors(settings: AnchorSettings, folds: Folds) -> list[RegressorAnchor]:
    encoded = encode_folds(dense_encoder, folds.rows, folds.held_out)
    fit_parameters = _fit_parameters(settings, encoded.rows, folds)

    def fit_fold(number: int) -> RegressorAnchor:
        rows = encoded.rows[folds.kept(number)]
        center, scale = rows.center, rows.scale  # penalties depend on the unit of the target
        target = (rows.y - center) / scale
        model = make_regressor(settings, folds.seed)
        fit_regressor(settings.name, model, rows.X, target, rows.weight, **fit_parameters[number])
        return RegressorAnchor(model, encoded.encoders[number], center, scale)

    return folds.workers.map(settings.name, fit_fold, range(len(folds)))


def _fit_parameters(settings: AnchorSettings, rows: TrainingRows, folds: Folds) -> list[dict[str, Kernel]]:
    """Return what each fold's regressor gets besides its rows: for a kernel machine, a kernel learnt without the fold.

    Learning a kernel is most of the work, so neighbouring folds share one, as long as enough rows remain to learn from.
    """
    machine = make_regressor(settings, folds.seed)
    if not isinstance(machine, KernelMachine):
        return [{}] * len(folds)
    to_spare = len(rows) - machine.rows_to_learn(len(rows))
    num_parts = min(max(2, math.ceil(len(rows) / to_spare)), len(folds)) if to_spare > 0 else len(folds)
    parameters: list[dict[str, Kernel]] = []
    for part in np.array_split(np.arange(len(folds)), num_parts):
        kept = rows[rows_outside(np.concatenate([folds.held_out[number] for number in part]), len(rows))]
        parameters += [{"kernel": machine.learn_kernel(kept.X, kept.y)}] * len(part)
    return parameters


def _boosted(settings: AnchorSettings, folds: Folds) -> OutOfFold:
    encoded = encode_folds(ENCODERS[settings.kind], folds.rows, folds.held_out)

    def fit_fold(number: int):
        train, held_out = encoded.rows[folds.kept(number)], encoded.rows[folds.held_out[number]]
        return BOOSTED[settings.kind](settings, train, settings.stages, folds.seed, validation=held_out)

    fitted = folds.workers.map(settings.name, fit_fold, range(len(folds)))
    squares = [
        _total_weight(folds.rows[fold]) * model.staged_rmse() ** 2
        for fold, model in zip(folds.held_out, fitted, strict=True)
    ]
    # A model that stopped early keeps its last error.
    longest = max(map(len, squares))
    total = sum(np.pad(curve, (0, longest - len(curve)), mode="edge") for curve in squares)
    stage = 1 + int(np.argmin(total))
    models = tuple(
        StagedAnchor(model, encoder, min(stage, len(curve)))
        for model, encoder, curve in zip(fitted, encoded.encoders, squares, strict=True)
    )
    return OutOfFold(held_out_means(models, folds), models, stage)


def _total_weight(rows: TrainingRows) -> float:
    return len(rows) if rows.weight is None else float(rows.weight.sum())


def _stack(members: dict[str, OutOfFold], rows: TrainingRows) -> OutOfFold:
    """Find the weights of at least zero with the least squared error; rows count by the roots of their weights."""
    center = rows.center
    columns = np.column_stack([member.mean - center for member in members.values()])
    root = np.ones(len(rows)) if rows.weight is None else np.sqrt(rows.weight)
    weights, _ = nnls(root[:, None] * columns, root * (rows.y - center))
    models = zip(*(member.models for member in members.values()), strict=True)
    # Far from all rows a polynomial predicts anything: the mean may leave the range of the targets by its length only.
    low, high = float(rows.y.min()), float(rows.y.max())
    limits = low - (high - low), high + (high - low)
    return OutOfFold(
        np.clip(columns @ weights + center, *limits),
        tuple(StackedAnchor(center, weights, parts, *limits) for parts in models),
        members=tuple(
            StackMember(name, float(weight), member.rmse(rows), member.stage)
            for (name, member), weight in zip(members.items(), weights, strict=True)
        ),
    )


def held_out_means(models: Sequence[Predict], folds: Folds) -> np.ndarray:
    """Predict every row by the model of its fold, which has not seen it."""
    mean = np.empty(len(folds.rows))
    for model, fold in zip(models, folds.held_out, strict=True):
        mean[fold] = model(folds.rows.X[fold])
    return mean
