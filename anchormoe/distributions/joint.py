"""Predicted distributions of several targets together: mixtures of multivariate Gaussians, and independent targets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logsumexp

from anchormoe.distributions.base import Distribution
from anchormoe.distributions.joint_base import JointDistribution, Target
from anchormoe.distributions.mixture import GaussianMixture, drawn_components


@dataclass(frozen=True, eq=False)
class JointMixture(JointDistribution):
    """Mixtures p(y) = sum_m exp(log_weights_m) N(y; means_m, factors_m factors_m^T), one mixture per row.

    log_weights: (N, M), whose exponentials sum to one; means: (N, M, T); factors: (N, M, T, T), the Cholesky factors of
    the components' covariances: lower triangular with a positive diagonal.
    """

    log_weights: np.ndarray
    means: np.ndarray
    factors: np.ndarray
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        shape = np.shape(self.log_weights)
        fits = len(shape) == 2 and np.ndim(self.means) == 3 and np.shape(self.means)[:2] == shape
        if not fits or np.shape(self.factors) != (*np.shape(self.means), np.shape(self.means)[2]):
            raise ValueError(
                "log_weights, means and factors must have the shapes (N, M), (N, M, T) and (N, M, T, T), received "
                f"{shape}, {np.shape(self.means)} and {np.shape(self.factors)}"
            )
        if self.names and len(self.names) != self.num_targets:
            raise ValueError(f"names must name {self.num_targets} targets, received {self.names}")

    @classmethod
    def normal(cls, mean: np.ndarray, covariance: np.ndarray) -> JointMixture:
        """Make mixtures of one component from means (N, T) and covariances (N, T, T), or one (T, T) for all rows."""
        means = np.asarray(mean, dtype=np.float64)[:, None, :]
        factors = np.broadcast_to(np.linalg.cholesky(covariance), (len(means), *np.shape(covariance)[-2:]))[:, None]
        return cls(np.zeros(means.shape[:2]), means, factors)

    @classmethod
    def average(cls, mixtures: Sequence[JointMixture], weights: Sequence[float] | None = None) -> JointMixture:
        """Average several densities row by row, with weights or without; all must be in the same units."""
        shares = weights or [1 / len(mixtures)] * len(mixtures)
        return replace(
            mixtures[0],
            log_weights=np.concatenate(
                [part.log_weights + math.log(share) for part, share in zip(mixtures, shares, strict=True)], axis=1
            ),
            means=np.concatenate([part.means for part in mixtures], axis=1),
            factors=np.concatenate([part.factors for part in mixtures], axis=1),
        )

    @classmethod
    def concatenated(cls, parts: Sequence[JointMixture]) -> JointMixture:
        """Put the rows of several mixtures one after the other; all must have as many components and the same units."""
        return replace(
            parts[0],
            log_weights=np.concatenate([part.log_weights for part in parts]),
            means=np.concatenate([part.means for part in parts]),
            factors=np.concatenate([part.factors for part in parts]),
        )

    def rows(self, index: np.ndarray | slice) -> JointMixture:
        """Return the mixtures of some rows."""
        some = (self.log_weights[index], self.means[index], self.factors[index])
        return JointMixture(*some, self.names)

    def affine(self, *, scale: np.ndarray | float, shift: np.ndarray | float) -> JointMixture:
        """Return the distribution of scale * Y + shift, with a scale > 0 and a shift for each target (T,)."""
        factors = self.factors * np.reshape(scale, (-1, 1))
        return replace(self, means=self.means * scale + shift, factors=factors)

    def float64(self) -> JointMixture:
        """Return the mixture in float64, with weights that sum to one."""
        log_weights = np.asarray(self.log_weights, dtype=np.float64)
        return replace(
            self,
            log_weights=log_weights - logsumexp(log_weights, axis=1, keepdims=True),
            means=np.asarray(self.means, dtype=np.float64),
            factors=np.asarray(self.factors, dtype=np.float64),
        )

    @property
    def num_rows(self) -> int:
        return len(self.means)

    @property
    def num_targets(self) -> int:
        return self.means.shape[2]

    @property
    def weights(self) -> np.ndarray:
        return np.exp(self.log_weights)

    @property
    def mean(self) -> np.ndarray:
        """Return the mean of each row (N, T)."""
        return np.einsum("nm,nmt->nt", self.weights, self.means)

    @property
    def std(self) -> np.ndarray:
        """Return the standard deviation of each row (N, T)."""
        return np.sqrt(np.diagonal(self.covariance, axis1=1, axis2=2))

    @property
    def covariance(self) -> np.ndarray:
        """Return the covariance matrix of each row (N, T, T): within plus between components."""
        return self.covariance_within + self.covariance_between

    @property
    def covariance_within(self) -> np.ndarray:
        """Return the mean of the components' covariances (N, T, T)."""
        return np.einsum("nm,nmtk,nmsk->nts", self.weights, self.factors, self.factors)

    @property
    def covariance_between(self) -> np.ndarray:
        """Return the covariance of the components' means (N, T, T)."""
        spread = self.means - self.mean[:, None, :]
        return np.einsum("nm,nmt,nms->nts", self.weights, spread, spread)

    def marginal(self, target: Target) -> GaussianMixture:
        """Return the distribution of one target, whatever the others are."""
        number = self.position(target)
        scales = np.sqrt(np.square(self.factors[:, :, number, :]).sum(2))
        return GaussianMixture(self.log_weights, self.means[:, :, number], scales)

    def condition(self, known: Mapping[Target, np.ndarray | float]) -> GaussianMixture | JointMixture:
        """Return the exact distribution of the other targets, given the values of some: (N,) or one number for all.

        It is a GaussianMixture if one target is left, otherwise a JointMixture of those left, in their order.
        """
        given = {self.position(target): value for target, value in known.items()}
        left = [number for number in range(self.num_targets) if number not in given]
        if not given or not left or len(given) < len(known):
            raise ValueError(
                f"condition needs the values of some of the {self.num_targets} targets, each once, received {[*known]}"
            )
        values = np.stack([self._column(value) for value in given.values()], axis=1)
        order, size = [*given, *left], len(given)
        means, factors = self.means[:, :, order], _reordered(self.factors, order)
        # The rows of the factor are those of the known targets, then of the others: F = [[A, 0], [B, C]]. With
        # r = A^-1 (values - means), the others have the means mu + B r and the factor C.
        residual = _solved(factors[:, :, :size, :size], values[:, None, :] - means[:, :, :size])
        log_weights = self.log_weights + _log_normal(residual, factors[:, :, :size, :size])
        log_weights = log_weights - logsumexp(log_weights, axis=1, keepdims=True)
        shifted = means[:, :, size:] + np.einsum("nmts,nms->nmt", factors[:, :, size:, :size], residual)
        if len(left) == 1:
            return GaussianMixture(log_weights, shifted[:, :, 0], factors[:, :, size, size])
        names = tuple(self.names[number] for number in left) if self.names else ()
        return JointMixture(log_weights, shifted, factors[:, :, size:, size:], names)

    def _log_prob(self, y: np.ndarray) -> np.ndarray:
        residual = _solved(self.factors, y[:, None, :] - self.means)
        return logsumexp(self.log_weights + _log_normal(residual, self.factors), axis=1)

    def _sample(self, num_samples: int, rng: np.random.Generator) -> np.ndarray:
        component, rows = drawn_components(self.weights, num_samples, rng), np.arange(self.num_rows)
        noise = rng.standard_normal((*component.shape, self.num_targets))
        return self.means[rows, component] + np.einsum("snij,snj->sni", self.factors[rows, component], noise)

    def _column(self, value: np.ndarray | float) -> np.ndarray:
        values = np.asarray(value, dtype=np.float64)
        if values.shape not in ((), (self.num_rows,)):
            raise ValueError(f"a known target must be one number or {self.num_rows} of them, received {values.shape}")
        return np.broadcast_to(values, (self.num_rows,))


@dataclass(frozen=True, eq=False)
class IndependentTargets(JointDistribution):
    """The product of one distribution per target: the targets know nothing of each other."""

    parts: tuple[Distribution, ...]
    names: tuple[str, ...] = ()

    @property
    def num_rows(self) -> int:
        return self.parts[0].num_rows

    @property
    def num_targets(self) -> int:
        return len(self.parts)

    @property
    def covariance(self) -> np.ndarray:
        """Return the covariance matrix of each row (N, T, T), which is diagonal."""
        return np.square(self.std)[:, :, None] * np.eye(self.num_targets)

    def marginal(self, target: Target) -> Distribution:
        """Return the distribution of one target."""
        return self.parts[self.position(target)]

    def rows(self, index: np.ndarray | slice) -> IndependentTargets:
        """Return the distributions of some rows."""
        return IndependentTargets(tuple(part.rows(index) for part in self.parts), self.names)  # type: ignore[attr-defined]

    def _log_prob(self, y: np.ndarray) -> np.ndarray:
        return np.sum([part.log_prob(value) for part, value in zip(self.parts, y.T, strict=True)], axis=0)

    def _sample(self, num_samples: int, rng: np.random.Generator) -> np.ndarray:
        return np.stack([part.sample(num_samples, rng) for part in self.parts], axis=2)


def _reordered(factors: np.ndarray, order: Sequence[int]) -> np.ndarray:
    """Return the Cholesky factors of covariances whose rows and columns are put in another order."""
    if list(order) == sorted(order):
        return factors
    rows = factors[:, :, list(order), :]
    return np.linalg.cholesky(rows @ np.swapaxes(rows, -1, -2))


def _solved(factors: np.ndarray, difference: np.ndarray) -> np.ndarray:
    """Return F^-1 d of lower-triangular factors (..., T, T) and differences (..., T), by forward substitution."""
    solved = np.empty(np.broadcast_shapes(factors.shape[:-1], difference.shape))
    for row in range(factors.shape[-1]):
        before = (factors[..., row, :row] * solved[..., :row]).sum(-1)
        solved[..., row] = (difference[..., row] - before) / factors[..., row, row]
    return solved


def _log_normal(residual: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Return the log-density of a Gaussian from F^-1 (y - mean) and its Cholesky factor F."""
    log_determinant = np.log(np.diagonal(factors, axis1=-2, axis2=-1)).sum(-1)
    return -0.5 * (np.square(residual).sum(-1) + factors.shape[-1] * math.log(2 * math.pi)) - log_determinant
