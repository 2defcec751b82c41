"""Which rows train, select, calibrate and test: index arrays, from the numpy streams the published splits came from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.model_selection import train_test_split

TRAIN_FRACTION = 0.9


@dataclass(frozen=True)
class Split:
    """Row numbers of one outer split, counted from 1; TV = TR and VA together, in the order they were drawn."""

    number: int
    train: np.ndarray  # the whole 90%
    tr: np.ndarray
    va: np.ndarray
    tv: np.ndarray
    cal: np.ndarray
    test: np.ndarray


def subsample(num_rows: int, size: int, seed: int) -> np.ndarray:
    """Rows kept of a large dataset, drawn once, before the outer splits; in the order drawn."""
    return np.random.RandomState(seed).choice(num_rows, size, replace=False)


def outer_split(
    num_rows: int, number: int, seed: int, *, subsampled_from: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Train and test rows: the number-th permutation of one stream, cut at 90%.

    subsampled_from: the stream has already drawn the subsample out of so many rows (a quirk of one published run).
    """
    stream = np.random.RandomState(seed)
    if subsampled_from is not None:
        stream.choice(subsampled_from, num_rows, replace=False)
    for _ in range(number):
        permutation = stream.permutation(num_rows)
    cut = round(TRAIN_FRACTION * num_rows)
    return permutation[:cut], permutation[cut:]


def inner_split(
    number: int,
    train: np.ndarray,
    test: np.ndarray,
    seed: int,
    *,
    calibration_fraction: float,
    validation_fraction: float,
) -> Split:
    """Cut CAL off the training rows (none if the fraction is 0), then VA off the rest."""
    tv, cal = train, train[:0]
    if calibration_fraction > 0:
        tv, cal = train_test_split(train, test_size=calibration_fraction, random_state=seed)
    tr, va = train_test_split(tv, test_size=validation_fraction, random_state=seed)
    return Split(number=number, train=train, tr=tr, va=va, tv=tv, cal=cal, test=test)
