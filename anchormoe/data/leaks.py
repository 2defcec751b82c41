"""Columns that give the target away: one that alone predicts it almost perfectly.

The check sees one column at a time. Two columns whose sum is the target, or a column with much noise that is recorded
after the event, are beyond it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

# The most that one column explains honestly, on all shipped tables: 0.991 (mortgage), in ranks 0.995. A copy of the
# target with noise of 3% of the target's standard deviation explains 0.998.
LEAK_R2 = 0.998
MAX_ROWS = 20_000  # more would not change the answer
_FOLDS = 5
_MEANING = {
    "copy": "is the target itself in another unit",
    "identifier": "is an identifier that follows the order of the target",
    "predictor": "alone predicts the target almost perfectly",
}


@dataclass(frozen=True)
class Leak:
    """A column, the share of the target's variance that it alone explains on held-out rows, and what it looks like."""

    column: str
    r2: float
    kind: str  # a key of _MEANING

    def describe(self) -> str:
        return f"{self.column} {_MEANING[self.kind]} (R² {self.r2:.4f}); is it known before the target is?"


def find_leaks(X: np.ndarray, y: np.ndarray, names: tuple[str, ...], categorical: tuple[int, ...] = ()) -> list[Leak]:
    """Return the columns that alone predict the target of held-out rows, or its rank, with an R² of LEAK_R2 or more."""
    rows = np.random.default_rng(0).permutation(len(y))[:MAX_ROWS]
    ranks = np.searchsorted(np.sort(y[rows]), y[rows]).astype(np.float64)  # a heavy tail hides nothing among ranks
    found = []
    for position, name in enumerate(names):
        predict = _level_means if position in categorical else _interpolated
        r2 = max(held_out_r2(X[rows, position], target, predict) for target in (y[rows], ranks))
        if r2 >= LEAK_R2:
            found.append(Leak(name, round(r2, 6), _kind(X[:, position], y, position in categorical)))
    return found


def level_r2(codes: np.ndarray, y: np.ndarray) -> float:
    """Return how much of the variance the means of a column's levels explain on held-out rows."""
    rows = np.random.default_rng(0).permutation(len(y))[:MAX_ROWS]
    return held_out_r2(codes[rows], y[rows], _level_means)


Predict = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def held_out_r2(x: np.ndarray, y: np.ndarray, predict: Predict) -> float:
    """Return the R² of predictions of each of five folds from the others; missing values are one value of their own."""
    missing = np.isnan(x)
    x = np.where(missing, (x[~missing].min() if not missing.all() else 0.0) - 1, x)
    total = float(np.square(y - y.mean()).sum())
    if total == 0:
        return 0.0
    error = 0.0
    for fold in range(_FOLDS):
        held_out = np.arange(len(y)) % _FOLDS == fold
        predicted = predict(x[~held_out], y[~held_out], x[held_out])
        error += float(np.square(y[held_out] - predicted).sum())
    return 1 - error / total


def _means(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, inverse = np.unique(x, return_inverse=True)
    return values, np.bincount(inverse, y) / np.bincount(inverse)


def _interpolated(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Predict on the line between the nearest values on both sides."""
    return np.interp(new, *_means(x, y))


def _level_means(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    levels, means = _means(x, y)
    position = np.minimum(np.searchsorted(levels, new), len(levels) - 1)
    return np.where(levels[position] == new, means[position], y.mean())


def _kind(x: np.ndarray, y: np.ndarray, is_categorical: bool) -> str:
    known = ~np.isnan(x)
    x, y = x[known], y[known]
    if is_categorical or len(x) < 3:
        return "predictor"
    if abs(np.corrcoef(x, y)[0, 1]) > 1 - 1e-9:
        return "copy"
    is_identifier = len(np.unique(x)) == len(x) and bool(np.all(x == np.round(x)))
    return "identifier" if is_identifier else "predictor"
