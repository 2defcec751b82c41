"""Calibration on rows that the model has not seen: a linear map of the mean, and maps of the distribution function."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anchormoe.distributions.base import Distribution
from anchormoe.distributions.monotone import MonotoneMap
from anchormoe.distributions.recalibrated import Recalibrated

LEAST_ROWS_OF_A_BIN = 10
MOST_BINS = 64
NUM_PARTS = 5  # parts of the held-out rows, each of which judges the maps fitted to the others


@dataclass(frozen=True)
class LinearMap:
    """The map mean -> slope * mean + intercept, in original units."""

    slope: float = 1.0
    intercept: float = 0.0

    def __call__(self, mean: np.ndarray) -> np.ndarray:
        return self.slope * mean + self.intercept


def fit_linear_map(
    mean: np.ndarray, y: np.ndarray, spread: np.ndarray | float = 1.0, weight: np.ndarray | None = None
) -> LinearMap:
    """Fit y to (mean, 1) by least squares, with each row's error in units of its spread, and rows counted by weight."""
    if weight is not None:
        spread = spread / np.sqrt(weight)
    design = np.column_stack([mean, np.ones_like(mean)]) / np.reshape(spread, (-1, 1))
    slope, intercept = np.linalg.lstsq(design, y / spread, rcond=None)[0]
    return LinearMap(float(slope), float(intercept))


@dataclass(frozen=True)
class Recalibration:
    """A map of the distribution function, and the number of rows behind it if it guarantees coverage."""

    map: MonotoneMap
    guaranteed_rows: int | None = None

    def __call__(self, distribution: Distribution) -> Recalibrated:
        return Recalibrated.of(distribution, self.map, self.guaranteed_rows)


def fit_pit_map(pit: np.ndarray, weight: np.ndarray | None = None) -> Recalibration:
    """Fit a smooth map to the cdf at held-out targets (N), so that the mapped values are spread evenly.

    It goes through (quantile p of the values, p) for p = 1/B, 2/B, ..., and nearer the ends. The number of bins B is
    the one with the best cross-validated log score; one bin changes nothing.
    """
    weight = np.ones(len(pit)) if weight is None else weight
    part = np.random.default_rng(0).permutation(len(pit)) % NUM_PARTS
    best, best_score = 1, 0.0
    for bins in _numbers_of_bins(len(pit)):
        total = 0.0
        for number in range(NUM_PARTS):
            others, mine = part != number, part == number
            fitted = _binned_map(pit[others], weight[others], bins)
            total += float(weight[mine] @ fitted.log_derivative(pit[mine]))
        if total > best_score:
            best, best_score = bins, total
    return Recalibration(_binned_map(pit, weight, best))


def _numbers_of_bins(num_rows: int) -> list[int]:
    most = min(MOST_BINS, num_rows // (2 * LEAST_ROWS_OF_A_BIN))
    return [bins for bins in (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64) if bins <= most]


def _binned_map(pit: np.ndarray, weight: np.ndarray, bins: int) -> MonotoneMap:
    if bins == 1:
        return MonotoneMap.identity()
    levels = set(np.arange(1, bins) / bins)
    tail = 0.5 / bins
    while tail * len(pit) >= LEAST_ROWS_OF_A_BIN:  # the outer intervals need more than the width of a bin
        levels |= {tail, 1 - tail}
        tail /= 2
    wanted = np.array(sorted(levels))
    order = np.argsort(pit, kind="stable")
    below = (np.cumsum(weight[order]) - weight[order] / 2) / weight.sum()
    return MonotoneMap.through(np.interp(wanted, below, pit[order]), wanted)
