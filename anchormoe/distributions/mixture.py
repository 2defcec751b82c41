"""Gaussian mixtures over the last axis: densities, moments, quantiles and scores, as pure maths on tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


@dataclass(frozen=True)
class GaussianMixture:
    """p(y) = sum_m exp(log_weights_m) N(y; means_m, scales_m^2), one mixture per row.

    log_weights, means, scales: (..., M), scales > 0; the methods take values y of the leading shape (...).
    """

    log_weights: Tensor
    means: Tensor
    scales: Tensor

    @classmethod
    def normal(cls, mean: np.ndarray, scale: np.ndarray | float) -> GaussianMixture:
        """One component per row."""
        means = torch.as_tensor(mean, dtype=torch.float64).unsqueeze(-1)
        scales = torch.as_tensor(scale, dtype=torch.float64).expand(means.shape[:-1]).unsqueeze(-1)
        return cls(torch.zeros_like(means), means, scales)

    @classmethod
    def average(cls, mixtures: Sequence[GaussianMixture], weights: Sequence[float] | None = None) -> GaussianMixture:
        """Row by row the mean of several densities, weighted if so wished."""
        shares = weights or [1 / len(mixtures)] * len(mixtures)
        return cls(
            torch.cat([mixture.log_weights + math.log(w) for mixture, w in zip(mixtures, shares, strict=True)], dim=-1),
            torch.cat([mixture.means for mixture in mixtures], dim=-1),
            torch.cat([mixture.scales for mixture in mixtures], dim=-1),
        )

    def log_prob(self, y: Tensor) -> Tensor:
        """log p(y): (...)."""
        standardised = (y.unsqueeze(-1) - self.means) / self.scales
        log_normal = -0.5 * standardised.square() - self.scales.log() - _LOG_SQRT_2PI
        return torch.logsumexp(self.log_weights + log_normal, dim=-1)

    @property
    def weights(self) -> Tensor:
        return self.log_weights.exp()

    @property
    def mean(self) -> Tensor:
        return (self.weights * self.means).sum(-1)

    @property
    def variance(self) -> Tensor:
        """E[sigma^2] + Var[mu]: within plus between components."""
        spread = (self.means - self.mean.unsqueeze(-1)).square()
        return (self.weights * (self.scales.square() + spread)).sum(-1)

    def cdf(self, y: Tensor) -> Tensor:
        return (self.weights * torch.special.ndtr((y.unsqueeze(-1) - self.means) / self.scales)).sum(-1)

    def quantile(self, probability: float | Tensor) -> Tensor:
        """The y with cdf(y) = probability, by bisection to the last bit of the dtype; probability in (0, 1)."""
        probability = torch.as_tensor(probability, dtype=self.means.dtype).expand(self.means.shape[:-1])
        if not bool(((probability > 0) & (probability < 1)).all()):
            raise ValueError(f"probability must lie strictly between 0 and 1, received {probability}")
        # A mixture's quantile lies between the smallest and the largest of its components' quantiles.
        components = self.means + self.scales * torch.special.ndtri(probability).unsqueeze(-1)
        low, high = components.amin(-1), components.amax(-1)
        for _ in range(64):
            middle = 0.5 * (low + high)
            below = self.cdf(middle) < probability
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return 0.5 * (low + high)

    def crps(self, y: Tensor) -> Tensor:
        """Continuous ranked probability score, in y's units, in closed form.

        CRPS = sum_m w_m A(y - mu_m, s_m^2) - 1/2 sum_mn w_m w_n A(mu_m - mu_n, s_m^2 + s_n^2),
        A(d, v) = E|d + sqrt(v) Z| = 2 sqrt(v) phi(d / sqrt(v)) + d (2 Phi(d / sqrt(v)) - 1).
        """
        weights, variances = self.weights, self.scales.square()
        to_y = (weights * _expected_distance(y.unsqueeze(-1) - self.means, variances)).sum(-1)
        pairs = _expected_distance(
            self.means.unsqueeze(-1) - self.means.unsqueeze(-2), variances.unsqueeze(-1) + variances.unsqueeze(-2)
        )
        between = (weights.unsqueeze(-1) * weights.unsqueeze(-2) * pairs).sum((-1, -2))
        return to_y - 0.5 * between

    def sample(self, num_samples: int, *, generator: torch.Generator) -> Tensor:
        """Draws of shape (num_samples, ...)."""
        shape = self.means.shape
        flat = self.weights.reshape(-1, shape[-1])
        component = torch.multinomial(flat, num_samples, replacement=True, generator=generator)  # (rows, draws)
        means = self.means.reshape(-1, shape[-1]).gather(1, component)
        scales = self.scales.reshape(-1, shape[-1]).gather(1, component)
        noise = torch.randn(component.shape, generator=generator, dtype=self.means.dtype)
        return (means + scales * noise).T.reshape(num_samples, *shape[:-1])

    def affine(self, *, scale: float, shift: float) -> GaussianMixture:
        """The distribution of scale * Y + shift (scale > 0): how a z-scored mixture gets back its units."""
        return GaussianMixture(self.log_weights, self.means * scale + shift, self.scales * scale)

    def shifted(self, shift: Tensor) -> GaussianMixture:
        """Moved by one shift per row."""
        return GaussianMixture(self.log_weights, self.means + shift.unsqueeze(-1), self.scales)

    def double(self) -> GaussianMixture:
        """In float64 with weights that sum to one exactly; scores are computed from this form."""
        log_weights = torch.log_softmax(self.log_weights.double(), dim=-1)
        return GaussianMixture(log_weights, self.means.double(), self.scales.double())


def _expected_distance(difference: Tensor, variance: Tensor) -> Tensor:
    """A(d, v) = E|d + sqrt(v) Z| for a standard normal Z."""
    scale = variance.sqrt()
    ratio = difference / scale
    density = torch.exp(-0.5 * ratio.square() - _LOG_SQRT_2PI)
    return 2 * scale * density + difference * (2 * torch.special.ndtr(ratio) - 1)
