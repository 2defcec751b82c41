"""Distributions whose distribution function is recalibrated by a monotone map, and medians of several distributions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import ndtr

from anchormoe.distributions.base import Distribution
from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.distributions.monotone import MonotoneMap

# The grid of the integrals: about the quantiles at equal steps of a normal's from -6 to 6, and values evenly between.
_GRID_LEVELS = ndtr(np.linspace(-6, 6, 41))
_CELLS_BETWEEN = 8
_REFINEMENTS = 5


class NumericalDistribution(Distribution):
    """A distribution with a density, a cdf and quantiles, whose mean, spread and CRPS are integrals of its cdf."""

    @cached_property
    def _grid(self) -> tuple[np.ndarray, np.ndarray]:
        """Return values of z (N, G) from end to end of each row's distribution, and the cdf there."""
        low, high = (self._quantile(np.full(self.num_rows, _GRID_LEVELS[end])) for end in (0, -1))
        quantiles = np.linspace(low, high, len(_GRID_LEVELS), axis=1)
        for _ in range(_REFINEMENTS):  # the cdf at the values of one round gives the quantiles of the next, roughly
            cdf = self._cdf_at(quantiles)
            rows = zip(cdf, quantiles, strict=True)
            quantiles = np.array([np.interp(_GRID_LEVELS, *row) for row in rows]).reshape(quantiles.shape)
        shares = np.arange(_CELLS_BETWEEN) / _CELLS_BETWEEN
        inner = quantiles[:, :-1, None] + np.diff(quantiles)[:, :, None] * shares
        z = np.concatenate([inner.reshape(self.num_rows, -1), quantiles[:, -1:]], axis=1)
        return z, self._cdf_at(z)

    def _cdf_at(self, z: np.ndarray) -> np.ndarray:
        return np.stack([self._cdf(column) for column in z.T], axis=1)

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        z, cdf = self._grid
        masses, middles, widths = np.diff(cdf), (z[:, 1:] + z[:, :-1]) / 2, np.diff(z)
        masses = masses / masses.sum(1, keepdims=True)
        mean = (masses * middles).sum(1)
        variance = (masses * (np.square(middles - mean[:, None]) + np.square(widths) / 12)).sum(1)
        return mean, np.sqrt(variance)

    def _mean(self) -> np.ndarray:
        return self._moments[0]

    def _std(self) -> np.ndarray:
        return self._moments[1]

    def _crps(self, z: np.ndarray) -> np.ndarray:
        """Integrate F^2 below z and (1 - F)^2 above, with F linear within a cell; beyond the grid F is 0 or 1."""
        grid, cdf = self._grid
        low, high = grid[:, :-1], grid[:, 1:]
        cut = np.clip(z[:, None], low, high)
        share = np.divide(cut - low, high - low, out=np.zeros_like(low), where=high > low)
        at_cut = cdf[:, :-1] + share * np.diff(cdf)
        below = (cut - low) * _square_between(cdf[:, :-1], at_cut)
        above = (high - cut) * _square_between(1 - at_cut, 1 - cdf[:, 1:])
        outside = np.maximum(grid[:, 0] - z, 0) + np.maximum(z - grid[:, -1], 0)
        return (below + above).sum(1) + outside


def _square_between(first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Return the mean square of a linear function between two values."""
    return (first * first + first * last + last * last) / 3


@dataclass(frozen=True, eq=False)
class Recalibrated(NumericalDistribution):
    """The distribution with the cdf R(F(y)), where F is the cdf of `base` and R a map: its density is R'(F(y)) F'(y).

    guaranteed_rows: the number of rows behind a conformal map, which guarantees a central interval of coverage c if
    there are at least 2 / (1 - c) - 1 of them; a level beyond that is refused. None where nothing is guaranteed.
    """

    base: Distribution
    map: MonotoneMap
    guaranteed_rows: int | None = None
    center: float = 0.0
    scale: float = 1.0
    reported_mean: np.ndarray | None = None
    mean_before_calibration: np.ndarray | None = None

    @classmethod
    def of(cls, base: Distribution, map: MonotoneMap, guaranteed_rows: int | None = None) -> Recalibrated:
        """Recalibrate distributions, in their own units."""
        before = base.density_mean if base.mean_before_calibration is None else base.mean_before_calibration
        return cls(base, map, guaranteed_rows, base.center, base.scale, None, before)

    @classmethod
    def concatenated(cls, parts: Sequence[Recalibrated]) -> Recalibrated:
        """Put the rows of several recalibrated mixtures one after the other."""
        mixtures = [part.base for part in parts]
        assert all(isinstance(mixture, GaussianMixture) for mixture in mixtures)
        first = parts[0]
        return cls.of(GaussianMixture.concatenated(mixtures), first.map, first.guaranteed_rows)  # type: ignore[arg-type]

    def rows(self, index: np.ndarray | slice) -> Recalibrated:
        """Return the distributions of some rows."""
        assert isinstance(self.base, GaussianMixture)
        before = self.mean_before_calibration
        return replace(
            self, base=self.base.rows(index), mean_before_calibration=None if before is None else before[index]
        )

    @property
    def num_rows(self) -> int:
        return self.base.num_rows

    def quantile(self, level: np.ndarray | Sequence[float] | float) -> np.ndarray:
        require_supported(level, self.guaranteed_rows)
        return super().quantile(level)

    def _log_prob(self, z: np.ndarray) -> np.ndarray:
        return np.asarray(self.base._log_prob(z), dtype=np.float64) + self.map.log_derivative(self.base._cdf(z))

    def _cdf(self, z: np.ndarray) -> np.ndarray:
        return self.map(self.base._cdf(z))

    def _quantile(self, level: np.ndarray) -> np.ndarray:
        # A level so near 0 or 1 that the map takes it there would have no finite quantile.
        return self.base._quantile(np.clip(self.map.inverse(level), 1e-300, 1 - 2**-53))


@dataclass(frozen=True, eq=False)
class MedianDistribution(NumericalDistribution):
    """The distribution whose cdf, at every value, is the median of the cdfs of an odd number of distributions.

    Its quantiles are the medians of theirs, and its density at a value is that of the one with the median cdf there.
    """

    parts: tuple[Distribution, ...]
    guaranteed_rows: int | None = None
    center: float = 0.0
    scale: float = 1.0
    reported_mean: np.ndarray | None = None
    mean_before_calibration: np.ndarray | None = None

    def __post_init__(self) -> None:
        if len(self.parts) % 2 == 0:
            raise ValueError(f"parts must be an odd number of distributions, received {len(self.parts)}")

    @property
    def num_rows(self) -> int:
        return self.parts[0].num_rows

    def quantile(self, level: np.ndarray | Sequence[float] | float) -> np.ndarray:
        require_supported(level, self.guaranteed_rows)
        return super().quantile(level)

    def _log_prob(self, z: np.ndarray) -> np.ndarray:
        y = z * self.scale + self.center
        cdf, log_prob = (np.stack([getattr(part, name)(y) for part in self.parts]) for name in ("cdf", "log_prob"))
        middle = np.argsort(cdf, axis=0, kind="stable")[len(self.parts) // 2]
        return np.take_along_axis(log_prob, middle[None], axis=0)[0] + math.log(self.scale)

    def _cdf(self, z: np.ndarray) -> np.ndarray:
        return np.median([part.cdf(z * self.scale + self.center) for part in self.parts], axis=0)

    def _quantile(self, level: np.ndarray) -> np.ndarray:
        quantiles = [part._quantile(level) * part.scale + part.center for part in self.parts]
        return (np.median(quantiles, axis=0) - self.center) / self.scale


def require_supported(level: np.ndarray | Sequence[float] | float, guaranteed_rows: int | None) -> None:
    """Refuse a level that the rows behind a conformal map cannot guarantee: p or 1 - p is less than 1 / (n + 1)."""
    if guaranteed_rows is None:
        return
    levels = np.asarray(level, dtype=np.float64)
    inside = levels[(levels > 0) & (levels < 1)]
    tail = float(np.minimum(inside, 1 - inside).min(initial=0.5))
    needed = math.ceil(1 / tail - 1 - 1e-6)
    if needed > guaranteed_rows:
        raise ValueError(
            f"a conformal interval of coverage {1 - 2 * tail:.4g}, with a share {tail:.3g} on each side, "
            f"needs at least {needed} calibration rows, received {guaranteed_rows}; "
            f"the largest coverage that they support is {max(0.0, 1 - 2 / (guaranteed_rows + 1)):.4g}"
        )
