"""The registry of metrics of several targets together, and what is measured of each target by itself.

`_z` of a name says that each target is divided by its standard deviation in the training rows, because a length in
several units has no meaning. A density has no such trouble: its unit is the product of the targets' units, and the
difference of two NLL does not depend on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from anchormoe.distributions.scores import Metric, coverage_90, crps_y, rmse_y

if TYPE_CHECKING:
    from anchormoe.distributions.joint_base import JointDistribution


def nll_joint_y(distribution: JointDistribution, y: np.ndarray, scale: np.ndarray) -> float:
    """Return -mean log p of all targets of a row together."""
    return float(-distribution.log_prob(y).mean())


def energy_score_z(distribution: JointDistribution, y: np.ndarray, scale: np.ndarray) -> float:
    """Average the energy score of the targets divided by `scale` (T,)."""
    return float(distribution.energy_score(y, scale).mean())


def variogram_score_z(distribution: JointDistribution, y: np.ndarray, scale: np.ndarray) -> float:
    """Average the variogram score of order 1/2 of the targets divided by `scale` (T,)."""
    return float(distribution.variogram_score(y, 0.5, scale).mean())


JOINT_METRICS = {
    metric.name: metric
    for metric in (
        Metric("nll_joint_y", "NLL of all targets together, in original units", "joint NLL", "y", True, nll_joint_y),
        Metric(
            "energy_score_z",
            "Energy score of the scaled targets",
            "energy score",
            "z",
            True,
            energy_score_z,
            decimals=4,
        ),
        Metric(
            "variogram_score_z",
            "Variogram score of the scaled targets",
            "variogram score",
            "z",
            True,
            variogram_score_z,
            decimals=4,
        ),
    )
}
TARGET_METRICS = {"crps_y": crps_y, "rmse_y": rmse_y, "coverage_90": coverage_90}  # of each target, in its own unit


def joint_scores(distribution: JointDistribution, y: np.ndarray, scale: np.ndarray) -> dict[str, float]:
    """Compute every metric of the targets together from test targets (N, T) and what divides them (T,)."""
    return {name: metric.function(distribution, y, scale) for name, metric in JOINT_METRICS.items() if metric.function}


def target_scores(distribution: JointDistribution, y: np.ndarray, names: tuple[str, ...]) -> dict[str, Any]:
    """Compute the metrics of each target by itself, by its name."""
    return {
        name: {metric: score(one, column) for metric, score in TARGET_METRICS.items()}
        for name, one, column in zip(names, distribution.marginals, y.T, strict=True)
    }
