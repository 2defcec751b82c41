"""Gaussian mixtures, one per row: density, moments, quantiles, CRPS and samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from anchormoe.distributions.base import Distribution

_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
_BLOCK_ELEMENTS = 2**20  # size of the arrays for a block of rows; it bounds the memory and does not change results


@dataclass(frozen=True, eq=False)
class GaussianMixture(Distribution):
    """Gaussian mixtures p(z) = sum_m exp(log_weights_m) N(z; means_m, scales_m^2), one mixture per row.

    log_weights, means, scales: (N, M), scales > 0, in standard units. `log_prob` and `mean` are computed in the
    components' own precision, because the published numbers came from float32; everything else in float64.
    """

    log_weights: np.ndarray
    means: np.ndarray
    scales: np.ndarray
    center: float = 0.0
    scale: float = 1.0
    reported_mean: np.ndarray | None = None
    mean_before_calibration: np.ndarray | None = None

    @classmethod
    def normal(cls, mean: np.ndarray, scale: np.ndarray | float) -> GaussianMixture:
        """Make a mixture of one component per row."""
        means = np.asarray(mean, dtype=np.float64)[:, None]
        scales = np.broadcast_to(np.asarray(scale, dtype=np.float64), len(means))[:, None]
        return cls(np.zeros_like(means), means, scales)

    @classmethod
    def equal_weights(cls, means: np.ndarray, scales: np.ndarray | float) -> GaussianMixture:
        """Make a mixture whose components (N, M) all have the same weight."""
        means = np.asarray(means, dtype=np.float64)
        return cls(np.full(means.shape, -math.log(means.shape[1])), means, np.broadcast_to(scales, means.shape))

    @classmethod
    def average(cls, mixtures: Sequence[GaussianMixture], weights: Sequence[float] | None = None) -> GaussianMixture:
        """Average several densities row by row, with weights or without; all must be in the same units."""
        shares = weights or [1 / len(mixtures)] * len(mixtures)
        return cls(
            np.concatenate([part.log_weights + math.log(w) for part, w in zip(mixtures, shares, strict=True)], axis=1),
            np.concatenate([part.means for part in mixtures], axis=1),
            np.concatenate([part.scales for part in mixtures], axis=1),
        )

    @classmethod
    def concatenated(cls, parts: Sequence[GaussianMixture]) -> GaussianMixture:
        """Put the rows of several mixtures one after the other; all must have as many components and the same units."""
        before = [part.mean_before_calibration for part in parts if part.mean_before_calibration is not None]
        return replace(
            parts[0],
            log_weights=np.concatenate([part.log_weights for part in parts]),
            means=np.concatenate([part.means for part in parts]),
            scales=np.concatenate([part.scales for part in parts]),
            mean_before_calibration=np.concatenate(before) if before else None,
        )

    def rows(self, index: np.ndarray | slice) -> GaussianMixture:
        """Return the mixtures of some rows."""

        def some(values: np.ndarray | None) -> np.ndarray | None:
            return None if values is None else values[index]

        return replace(
            self,
            log_weights=self.log_weights[index],
            means=self.means[index],
            scales=self.scales[index],
            reported_mean=some(self.reported_mean),
            mean_before_calibration=some(self.mean_before_calibration),
        )

    def affine(self, *, scale: float, shift: float) -> GaussianMixture:
        """Return the distribution of scale * Z + shift for scale > 0."""
        return GaussianMixture(self.log_weights, self.means * scale + shift, self.scales * scale)

    def in_units(self, center: float, scale: float) -> GaussianMixture:
        """Declare the units: the target is center + scale * Z."""
        return replace(self, center=center, scale=scale)

    def float64(self) -> GaussianMixture:
        """Return the mixture in float64, with weights that sum to one."""
        log_weights = np.asarray(self.log_weights, dtype=np.float64)
        return replace(
            self,
            log_weights=log_weights - _log_sum_exp(log_weights)[:, None],
            means=np.asarray(self.means, dtype=np.float64),
            scales=np.asarray(self.scales, dtype=np.float64),
        )

    @property
    def num_rows(self) -> int:
        return len(self.means)

    @property
    def weights(self) -> np.ndarray:
        return np.exp(self.log_weights)

    @property
    def variance(self) -> np.ndarray:
        """Return the variance in standard units, E[sigma^2] + Var[mu]: within plus between components (N,)."""
        spread = np.square(self.means - self._mean()[:, None])
        return (self.weights * (np.square(self.scales) + spread)).sum(1)

    @cached_property
    def _exact(self) -> GaussianMixture:
        return self.float64()

    def _mean(self) -> np.ndarray:
        return (self.weights * self.means).sum(1)

    def _std(self) -> np.ndarray:
        return np.sqrt(self._exact.variance)

    def _log_prob(self, z: np.ndarray) -> np.ndarray:
        standardised = (z.astype(self.means.dtype)[:, None] - self.means) / self.scales
        half, constant = self.means.dtype.type(0.5), self.means.dtype.type(_LOG_SQRT_2PI)
        return _log_sum_exp(self.log_weights - half * np.square(standardised) - np.log(self.scales) - constant)

    def _cdf(self, z: np.ndarray) -> np.ndarray:
        exact = self._exact
        return (exact.weights * ndtr((z[:, None] - exact.means) / exact.scales)).sum(1)

    def _prob(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Return the probabilities, each component's from its nearer tail, so that no digits are lost far out."""
        exact = self._exact
        a, b = ((value[:, None] - exact.means) / exact.scales for value in (low, high))
        return (exact.weights * np.where(a > 0, ndtr(-a) - ndtr(-b), ndtr(b) - ndtr(a))).sum(1)

    def _log_cell(self, z: np.ndarray, width: float) -> np.ndarray:
        exact = self._exact
        middle, half = (z[:, None] - exact.means) / exact.scales, width / 2 / exact.scales
        return _log_sum_exp(exact.log_weights + _log_normal_cell(np.abs(middle), half))

    def _quantile(self, level: np.ndarray) -> np.ndarray:
        """Find the quantiles by Newton's method inside a bracket that every step narrows."""
        exact = self._exact
        # A mixture's quantile lies between the smallest and the largest of its components' quantiles.
        components = exact.means + exact.scales * ndtri(level)[:, None]
        low, high = components.min(1), components.max(1)
        z = 0.5 * (low + high)
        for _ in range(200):
            excess = exact._cdf(z) - level
            low, high = np.where(excess <= 0, z, low), np.where(excess >= 0, z, high)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                step = z - excess / np.exp(exact._log_prob(z))
            inside = (step > low) & (step < high)  # false for nan
            following = np.where(inside, step, 0.5 * (low + high))
            if np.array_equal(following, z) or (high <= np.nextafter(low, np.inf)).all():
                break
            z = following
        return z

    def _crps(self, z: np.ndarray) -> np.ndarray:
        """Compute sum_m w_m A(z - mu_m, s_m^2) - 1/2 sum_mn w_m w_n A(mu_m - mu_n, s_m^2 + s_n^2)."""
        return self._by_blocks(_crps, z, elements_per_row=self.means.shape[1] ** 2)

    def _by_blocks(
        self,
        function: Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray],
        z: np.ndarray,
        *,
        elements_per_row: int,
    ) -> np.ndarray:
        exact, size = self._exact, max(1, _BLOCK_ELEMENTS // elements_per_row)
        blocks = [slice(first, first + size) for first in range(0, self.num_rows, size)]
        parts = [function(exact.weights[rows], exact.means[rows], exact.scales[rows], z[rows]) for rows in blocks]
        return np.concatenate(parts) if parts else np.empty(0)

    def _sample(self, num_samples: int, rng: np.random.Generator) -> np.ndarray:
        exact = self._exact
        component, rows = drawn_components(exact.weights, num_samples, rng), np.arange(self.num_rows)
        return exact.means[rows, component] + exact.scales[rows, component] * rng.standard_normal(component.shape)


def drawn_components(weights: np.ndarray, num_samples: int, rng: np.random.Generator) -> np.ndarray:
    """Draw a component for each sample of each row (num_samples, N) from the weights (N, M)."""
    uniform = rng.random((num_samples, len(weights)))
    component = np.zeros(uniform.shape, dtype=np.intp)
    for bound in np.cumsum(weights, axis=1)[:, :-1].T:
        component += uniform > bound
    return component


def _log_sum_exp(values: np.ndarray) -> np.ndarray:
    """Compute log sum_m exp(values_m) over the last axis, in the precision of the values."""
    largest = values.max(axis=-1, keepdims=True)
    return np.log(np.exp(values - largest).sum(-1)) + largest[..., 0]


def _log_normal_cell(middle: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Compute log[Phi(middle + half) - Phi(middle - half)] for middle >= 0 and half > 0, without losing digits.

    Where the density hardly changes within the cell, it is integrated there: the cdf values would be nearly equal.
    Elsewhere they are subtracted, far out in log space and from the upper tail.
    """
    low, high = middle - half, middle + half
    density = -0.5 * np.square(middle) - _LOG_SQRT_2PI
    step = math.sqrt(0.6) * half  # Gauss and Legendre's rule of three nodes
    outer = np.exp(-0.5 * np.square(step)) * np.cosh(np.minimum(middle * step, 1.0))
    flat = density + np.log(half) + np.log((8 + 10 * outer) / 9)
    upper = log_ndtr(-np.maximum(low, 0.0))
    tail = upper + np.log1p(-np.exp(log_ndtr(-np.maximum(high, 1e-3)) - upper))
    with np.errstate(divide="ignore"):  # narrow cells are not taken from here
        around_mean = np.log(ndtr(high) - ndtr(low))
    is_flat = 2 * half * np.maximum(middle, 1.0) < 0.02
    return np.where(is_flat, flat, np.where(low > 0, tail, around_mean))


def _crps(weights: np.ndarray, means: np.ndarray, scales: np.ndarray, z: np.ndarray) -> np.ndarray:
    variances = np.square(scales)
    to_z = (weights * _expected_distance(z[:, None] - means, variances)).sum(1)
    pairs = _expected_distance(means[:, :, None] - means[:, None, :], variances[:, :, None] + variances[:, None, :])
    between = (weights[:, :, None] * weights[:, None, :] * pairs).sum((1, 2))
    return to_z - 0.5 * between


def _expected_distance(difference: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Compute A(d, v) = E|d + sqrt(v) Z| for a standard normal Z."""
    scale = np.sqrt(variance)
    ratio = difference / scale
    density = np.exp(-0.5 * np.square(ratio) - _LOG_SQRT_2PI)
    return 2 * scale * density + difference * (2 * ndtr(ratio) - 1)
