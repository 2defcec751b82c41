"""Distributions of regressors that predict quantiles or random draws instead of a density."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from anchormoe.distributions.base import Distribution
from anchormoe.distributions.mixture import GaussianMixture

NUM_POINTS = 100  # quantiles or draws that a regressor is asked for
LEVELS = (np.arange(NUM_POINTS) + 0.5) / NUM_POINTS
BANDWIDTH = 0.3  # of the density's kernel, in standard deviations of a row's values
_FLOOR = 1e-4  # least scale of the kernel, in standard units


@dataclass(frozen=True, eq=False)
class Empirical(Distribution):
    """Values of equal weight per row: quantiles at the levels (k + 1/2) / Q or, if `drawn`, random draws.

    points: (N, Q), ascending in every row, in standard units, Q > 1. CRPS, coverage and quantiles are those of the
    values. There is no density: `log_prob` is that of a Gaussian kernel around the values.
    """

    points: np.ndarray
    drawn: bool = False
    center: float = 0.0
    scale: float = 1.0
    reported_mean: np.ndarray | None = None
    mean_before_calibration: np.ndarray | None = None

    @classmethod
    def from_quantiles(cls, levels: Sequence[float], values: np.ndarray) -> Empirical:
        """Make distributions of quantiles (N, L) at any levels.

        Between two levels, and beyond the outermost, the quantiles are those of the Normal through the two nearest.
        Quantiles that cross are put in order.
        """
        order = np.argsort(levels)
        known, wanted = ndtri(np.asarray(levels, dtype=np.float64)[order]), ndtri(LEVELS)
        values = np.sort(np.asarray(values, dtype=np.float64), axis=1)
        below = np.clip(np.searchsorted(known, wanted) - 1, 0, len(known) - 2)
        share = (wanted - known[below]) / (known[below + 1] - known[below])
        return cls(values[:, below] + share * (values[:, below + 1] - values[:, below]))

    @classmethod
    def from_draws(cls, draws: np.ndarray) -> Empirical:
        """Make distributions of random draws (S, N)."""
        return cls(np.sort(np.asarray(draws, dtype=np.float64).T, axis=1), drawn=True)

    @property
    def num_rows(self) -> int:
        return len(self.points)

    def _mean(self) -> np.ndarray:
        return self.points.mean(1)

    def _std(self) -> np.ndarray:
        return self.points.std(1)

    @cached_property
    def _smoothed(self) -> GaussianMixture:
        return smoothed(self.points, BANDWIDTH, floor=_FLOOR)

    def _log_prob(self, z: np.ndarray) -> np.ndarray:
        return self._smoothed.log_prob(z)

    def _cdf(self, z: np.ndarray) -> np.ndarray:
        num_points = self.points.shape[1]
        below = np.clip((self.points < z[:, None]).sum(1) - 1, 0, num_points - 2)
        low, high = (np.take_along_axis(self.points, index[:, None], 1)[:, 0] for index in (below, below + 1))
        gap = high - low
        share = np.where(gap > 0, (z - low) / np.where(gap > 0, gap, 1.0), 0.5)
        return np.clip((below + share + 0.5) / num_points, 0.0, 1.0)

    def _quantile(self, level: np.ndarray) -> np.ndarray:
        num_points = self.points.shape[1]
        place = level * num_points - 0.5
        below = np.clip(np.floor(place), 0, num_points - 2).astype(np.intp)
        low, high = (np.take_along_axis(self.points, index[:, None], 1)[:, 0] for index in (below, below + 1))
        return low + (place - below) * (high - low)

    def _crps(self, z: np.ndarray) -> np.ndarray:
        """Compute mean_i |x_i - z| - 1/2 mean_ij |x_i - x_j|.

        For draws the second mean leaves out i = j, so that its expectation is that of the distribution drawn from.
        """
        count = self.points.shape[1]
        pairs = count * (count - 1) if self.drawn else count**2
        apart = 2 * (self.points @ (2.0 * np.arange(count) - count + 1)) / pairs
        return np.abs(self.points - z[:, None]).mean(1) - 0.5 * apart


def smoothed(points: np.ndarray, bandwidth: float, *, floor: float) -> GaussianMixture:
    """Return mixtures with a component of equal weight at each point (N, Q).

    A row's components have one scale, `bandwidth` times the spread of its points. The points are drawn together a
    little, so that smoothing does not change the row's spread.
    """
    means = np.asarray(points, dtype=np.float64)
    spread = means.std(-1, keepdims=True)
    center = means.mean(-1, keepdims=True)
    means = center + (means - center) / np.sqrt(1 + bandwidth**2)
    scales = np.maximum(spread * bandwidth / np.sqrt(1 + bandwidth**2), floor)
    return GaussianMixture.equal_weights(means, scales)
