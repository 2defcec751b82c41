"""The check that a predicted density is one: it must integrate to one."""

from __future__ import annotations

import numpy as np

from anchormoe.distributions.base import Distribution

_LEVELS = np.linspace(0.005, 0.995, 199)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(4)
_TOLERANCE = 0.02
_MOST = 500.0  # log-densities are cut here, far above any that is honest, so that their sum stays finite


def integral(distribution: Distribution) -> np.ndarray:
    """Integrate the densities between their 0.5% and 99.5% quantiles (N,), divided by the 99% that must lie there.

    Between two of 199 quantiles a Gauss-Legendre rule is used. So many cells are where the mass is that no narrow peak
    is stepped over, and a gap between two peaks costs the mass of one cell at most.
    """
    nodes = distribution.quantile(_LEVELS)
    low, half = nodes[:, :-1], np.diff(nodes, axis=1) / 2
    total = np.zeros(len(nodes))
    for cell in range(half.shape[1]):
        for node, weight in zip(_NODES, _WEIGHTS, strict=True):
            log_density = distribution.log_prob(low[:, cell] + half[:, cell] * (1 + node))
            total += weight * half[:, cell] * np.exp(np.minimum(log_density, _MOST))
    return total / (_LEVELS[-1] - _LEVELS[0])


def require_density(distribution: Distribution) -> None:
    """Raise a ValueError if the density of a row does not integrate to one."""
    found = integral(distribution)
    wrong = ~(np.abs(found - 1) < _TOLERANCE)
    if wrong.any():
        raise ValueError(
            "a predicted density must integrate to 1, as its cdf and quantiles say, received "
            f"{found[np.argmax(wrong)]:.4g}; without this no NLL can be compared"
        )
