"""The densities of all members of a fit as one, as wide as the errors of their common mean are.

A member's density covers the errors of its own mean on rows it has not seen. The mean of all members errs less, because
their own errors partly cancel. Where the rows were cut into folds more than once, every training row has the densities
of several members that have not seen it, so that one can measure what averaging does instead of assuming it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize_scalar

from anchormoe.distributions.mixture import GaussianMixture

LEAST_SHARE = 0.25  # of the held-out variance that a pool of all members keeps
_WIDEST = math.log(16.0)  # bound of the search for a variance factor


def pooled(parts: Sequence[GaussianMixture], variance_factor: float = 1.0) -> GaussianMixture:
    """Average densities, and draw the components together until the variance is their average times a factor.

    A member's spread covers its own errors on rows it has not seen. Where members disagree, the average of their
    densities is wider, although the average of their means has a smaller error. So the disagreement is removed again.
    """
    mixture = GaussianMixture.average(parts)
    center = mixture.mean
    within = (mixture.weights * np.square(mixture.scales)).sum(1)
    between = mixture.variance - within
    disagreement = _disagreement(parts, center)
    share = np.divide(disagreement, between, out=np.zeros_like(between), where=between > 0)
    kept = np.sqrt(np.clip(1 - share, 0, 1))
    mixture = dataclasses.replace(mixture, means=center[:, None] + (mixture.means - center[:, None]) * kept[:, None])
    return mixture if variance_factor == 1 else scaled(mixture, math.sqrt(variance_factor))


def narrowed(mixture: GaussianMixture, parts: Sequence[GaussianMixture]) -> GaussianMixture:
    """Draw pooled densities together as far as averaging makes their means more accurate than a member's.

    A map of the distribution function is fitted to the members' held-out rows. For squared errors the members' average
    exceeds the error of their mean by exactly d^2, their mean squared disagreement about a row. With s^2 for the
    variance of a member, which covers the larger error, the pooled variance becomes s^2 / (1 + d^2 / s^2).
    """
    factor = 1 / np.sqrt(1 + _disagreement(parts, mixture.mean) / mixture.variance)
    return scaled(mixture, factor)


def scaled(mixture: GaussianMixture, factor: np.ndarray | float) -> GaussianMixture:
    """Multiply the spread of densities about their means by a factor, or by one for every row (N,)."""
    center, factor = mixture.mean[:, None], np.reshape(factor, (-1, 1))
    means = center + (mixture.means - center) * factor
    return dataclasses.replace(mixture, means=means, scales=mixture.scales * factor)


def _disagreement(parts: Sequence[GaussianMixture], center: np.ndarray) -> np.ndarray:
    return np.stack([np.square(part.mean - center) for part in parts]).mean(0)


@dataclasses.dataclass(frozen=True)
class Spread:
    """The factors of the variance that make pooled densities as wide as the errors of their means.

    held_out: for the few members that have not seen a training row.
    of_all: for all members, which a new row is predicted with.
    """

    held_out: float = 1.0
    of_all: float = 1.0
    is_measured: bool = False

    @classmethod
    def measured(
        cls, held_out: Sequence[GaussianMixture], y: np.ndarray, weight: np.ndarray | None, num_members: int
    ) -> Spread:
        """Measure the factors on training rows, of which each repetition has a held-out density.

        The squared error of a mean of m members is v(m) = v + c / m: c is the part of a member's error that is its own.
        The factors of one member and of a pool of R, which are measured, give v(m) for all members. With one repetition
        there is nothing to compare, and densities stay as they are.
        """
        repetitions = len(held_out)
        if repetitions == 1:
            return cls()
        of_one = np.mean([likeliest_factor(one, y, weight) for one in held_out])
        of_pool = likeliest_factor(pooled(held_out), y, weight)
        own = max(float(of_one) - of_pool, 0.0) / (1 - 1 / repetitions)
        of_all = of_pool - own * (1 / repetitions - 1 / num_members)
        return cls(of_pool, max(of_all, LEAST_SHARE * of_pool), True)


def likeliest_factor(densities: GaussianMixture, y: np.ndarray, weight: np.ndarray | None = None) -> float:
    """Return the factor of the variance with which targets are likeliest.

    As in predictions, one row in N + 1 may be unlike all others, so that a few odd rows do not widen all densities.
    """
    weight = np.ones(len(y)) if weight is None else weight
    chance = 1 / (len(y) + 1)
    odd = GaussianMixture.normal(densities.mean, float(y.std()) or 1e-8).log_prob(y) + math.log(chance)

    def loss(log_factor: float) -> float:
        inside = scaled(densities, math.exp(log_factor / 2)).log_prob(y) + math.log1p(-chance)
        return -float(weight @ np.logaddexp(inside, odd))

    return math.exp(minimize_scalar(loss, bounds=(-_WIDEST, _WIDEST), method="bounded").x)
