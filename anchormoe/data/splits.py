"""Splits of the rows to train, select, calibrate and test: index arrays from the published splits' random streams."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

TRAIN_FRACTION = 0.9


def subsample(num_rows: int, size: int, seed: int) -> np.ndarray:
    """Draw the rows kept of a large dataset, once, before the outer splits; in the order drawn."""
    return np.random.RandomState(seed).choice(num_rows, size, replace=False)


@dataclass(frozen=True)
class OuterSplit:
    """An outer split: the `number`-th random permutation of a stream, cut at 90%; numbers count from 1."""

    number: int
    seed: int
    subsampled_from: int | None = None  # the stream has already drawn the subsample out of this many rows

    def rows(self, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the training rows and the test rows."""
        stream = np.random.RandomState(self.seed)
        if self.subsampled_from is not None:  # a quirk of one published run
            stream.choice(self.subsampled_from, num_rows, replace=False)
        for _ in range(self.number):
            permutation = stream.permutation(num_rows)
        cut = round(TRAIN_FRACTION * num_rows)
        return permutation[:cut], permutation[cut:]


@dataclass(frozen=True)
class InnerSplit:
    """An inner split: positions among the training rows; TV is TR and VA together, in the order they were drawn."""

    tr: np.ndarray
    va: np.ndarray
    tv: np.ndarray
    cal: np.ndarray


def inner_split(num_rows: int, seed: int, *, calibration_fraction: float, validation_fraction: float) -> InnerSplit:
    """Cut CAL off the training rows (none if the fraction is 0), then VA off the rest."""
    rows = np.arange(num_rows)
    tv, cal = rows, rows[:0]
    if calibration_fraction > 0:
        tv, cal = _cut(rows, calibration_fraction, seed)
    tr, va = _cut(tv, validation_fraction, seed)
    return InnerSplit(tr=tr, va=va, tv=tv, cal=cal)


def _cut(rows: np.ndarray, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return kept and held-out rows as scikit-learn's train_test_split draws them, without its second of imports."""
    order = np.random.RandomState(seed).permutation(len(rows))
    held_out = math.ceil(fraction * len(rows))
    return rows[order[held_out:]], rows[order[:held_out]]
