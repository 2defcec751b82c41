"""The registry of metrics: everything a row measures, with its unit and its direction.

A new metric is one entry here; rows, tables and reports follow. Units are part of a name: `_z` is the standardised
target, `_y` the target's own units.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from anchormoe.distributions.base import Distribution


@dataclass(frozen=True)
class Metric:
    """One number of a row.

    `function` takes the predicted distributions, the targets of the test rows and the step in which these are recorded
    (0 if they are not), or for several targets what divides them; it is None for what the run itself measures.
    `lower_is_better` is None where neither direction is better.
    """

    name: str
    title: str  # heading of a table
    label: str  # short heading of a line or a column, without the unit
    unit: str  # empty for a share
    lower_is_better: bool | None
    function: Callable[[Any, np.ndarray, Any], float] | None
    published_name: str | None = None  # its name in benchmarks/published.json
    compared: bool = True  # whether the comparison of methods has tables of it
    decimals: int = 3  # least number of decimals shown

    @property
    def label_with_unit(self) -> str:
        """Return the label for places that do not name the unit otherwise, such as `NLL (y)`."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


def nll_cell_y(distribution: Distribution, y: np.ndarray, step: float) -> float:
    """Return -mean log [(F(y + step / 2) - F(y - step / 2)) / step], the NLL of the values as they are recorded."""
    return float(-distribution.log_cell(y, step).mean())


def nll_z(distribution: Distribution, y: np.ndarray, step: float = 0.0) -> float:
    """Return the mean NLL of the standardised target in the model's own precision, float32 for the published ones."""
    return float(-distribution.standard_log_prob(y).mean())


def nll_y(distribution: Distribution, y: np.ndarray, step: float = 0.0) -> float:
    """Return -mean log p(y): the standardised density is the target's times its scale."""
    return nll_z(distribution, y) + math.log(distribution.scale)


def crps_y(distribution: Distribution, y: np.ndarray, step: float = 0.0) -> float:
    """Average the continuous ranked probability score."""
    return float(distribution.crps(y).mean())


def rmse_y(distribution: Distribution, y: np.ndarray, step: float = 0.0) -> float:
    """Return the root of the mean squared error of the reported means."""
    return _rmse(distribution.mean, y)


def rmse_y_uncalibrated(distribution: Distribution, y: np.ndarray, step: float = 0.0) -> float:
    """Return the RMSE of the means before calibration; without calibration these are the reported means."""
    before = distribution.mean_before_calibration
    return _rmse(distribution.mean if before is None else before, y)


def coverage_90(distribution: Distribution, y: np.ndarray, step: float = 0.0) -> float:
    """Return the share of targets inside the central 90% interval."""
    return interval_coverage(distribution, y, coverage=0.9)


METRICS = {
    metric.name: metric
    for metric in (
        Metric("nll_cell_y", "NLL at the data's resolution", "cell NLL", "y", True, nll_cell_y),
        Metric("nll_y", "NLL in original units", "NLL", "y", True, nll_y),
        Metric(
            "nll_z", "NLL of the standardised target", "NLL", "z", True, nll_z, published_name="nll_z", compared=False
        ),
        Metric("crps_y", "CRPS in original units", "CRPS", "y", True, crps_y),
        Metric("rmse_y", "RMSE in original units", "RMSE", "y", True, rmse_y, published_name="rmse"),
        Metric(
            "rmse_y_uncalibrated",
            "RMSE in original units, before calibration",
            "RMSE before calibration",
            "y",
            True,
            rmse_y_uncalibrated,
            compared=False,
        ),
        Metric("coverage_90", "Coverage of the central 90% interval", "90% coverage", "", None, coverage_90),
        Metric("fit_seconds", "Seconds to fit a split, on one core", "fit", "s", None, None, decimals=1),
    )
}


def compared() -> list[Metric]:
    """Return the metrics that have tables in the comparison of methods."""
    return [metric for metric in METRICS.values() if metric.compared]


def ranked() -> list[Metric]:
    """Return the metrics by which methods are ranked: those compared in which lower is better."""
    return [metric for metric in compared() if metric.lower_is_better]


def scores(distribution: Distribution, y: np.ndarray, step: float = 0.0) -> dict[str, float]:
    """Compute every scored metric from the test targets and the step in which they are recorded, 0 if in none."""
    return {name: metric.function(distribution, y, step) for name, metric in METRICS.items() if metric.function}


PIT_BINS = 20


def pit(distribution: Distribution, y: np.ndarray, step: float = 0.0, seed: int = 0) -> np.ndarray:
    """Return where the targets fall in their predicted distributions (N,): uniform in [0, 1] if these are calibrated.

    A target recorded in steps stands for its whole cell: it falls at random between F(y - step / 2) and
    F(y + step / 2). Histograms that are added up, such as those of splits, need a seed each.
    """
    if step == 0:
        return distribution.cdf(y)
    low, high = distribution.cdf(y - step / 2), distribution.cdf(y + step / 2)
    return low + np.random.default_rng(seed).random(len(y)) * (high - low)


def pit_counts(values: np.ndarray) -> list[int]:
    """Count the values of `pit` in each twentieth of [0, 1]; equal counts mean that predictions are calibrated."""
    return np.histogram(values, bins=PIT_BINS, range=(0, 1))[0].tolist()


def interval_coverage(distribution: Distribution, y: np.ndarray, *, coverage: float) -> float:
    """Return the share of targets inside the central interval: y is inside if and only if its cdf is."""
    tail = (1 - coverage) / 2
    cdf = distribution.cdf(y)
    return float(((cdf >= tail) & (cdf <= 1 - tail)).mean())


def _rmse(mean: np.ndarray, y: np.ndarray) -> float:
    return float(np.sqrt(np.mean((y - mean) ** 2)))
