"""Densities from quantiles, by a Gaussian kernel around each of them."""

from __future__ import annotations

import numpy as np

from anchormoe.distributions import empirical
from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.methods.base import SCALE_FLOOR

BANDWIDTHS = (0.2, 0.3, 0.5, 0.7, 1.0)


def smoothed(quantiles: np.ndarray, bandwidth: float) -> GaussianMixture:
    """Make mixtures whose components stand at the quantiles (N, Q) of equally spaced levels."""
    return empirical.smoothed(quantiles, bandwidth, floor=SCALE_FLOOR)


def smoothed_nll(quantiles: np.ndarray, bandwidth: float, y: np.ndarray) -> float:
    """Return the mean NLL of smoothed quantiles."""
    return float(-smoothed(quantiles, bandwidth).log_prob(y).mean())


def best_bandwidth(quantiles: np.ndarray, y: np.ndarray) -> float:
    """Return the bandwidth of the lowest NLL on held-out rows."""
    return min(BANDWIDTHS, key=lambda bandwidth: smoothed_nll(quantiles, bandwidth, y))
