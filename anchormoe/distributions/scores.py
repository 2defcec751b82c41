"""What a method predicted for the test rows, and the scores of it. Units are part of every name:
`_z` the z-scored target, `_y` original units."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from anchormoe.distributions.foreign import Distribution


@dataclass(frozen=True)
class Outcome:
    """A method's predictions for the test rows of one split.

    `distribution_z` is that of (y - center) / scale. Point predictions are in original units; `mean_y` may have been
    calibrated, and in the cross-fitted recipe the density with it (in the paper's it never is).
    """

    distribution_z: Distribution
    center: float
    scale: float
    mean_y: np.ndarray
    mean_y_uncalibrated: np.ndarray
    fit_seconds: float
    predict_seconds: float
    anchor_stage: int | None = None
    epoch: int | None = None
    longest_wait: int | None = None  # see train.SelectedEpoch
    calibration_a: float | None = None
    calibration_b: float | None = None


def scores(outcome: Outcome, y: np.ndarray) -> dict[str, float]:
    """Every metric of a row, from the test targets in original units."""
    z = (y - outcome.center) / outcome.scale
    # The published NLL is a float32 mean; the other scores are ours and use float64.
    nll_z = float(-outcome.distribution_z.log_prob(torch.as_tensor(z, dtype=outcome.distribution_z.mean.dtype)).mean())
    distribution, targets = outcome.distribution_z.double(), torch.as_tensor(z, dtype=torch.float64)
    return {
        "rmse_y": rmse(outcome.mean_y, y),
        "rmse_y_uncalibrated": rmse(outcome.mean_y_uncalibrated, y),
        "nll_z": nll_z,
        "nll_y": nll_z + math.log(outcome.scale),
        "crps_y": float(distribution.crps(targets).mean()) * outcome.scale,
        "coverage_90": interval_coverage(distribution, targets, level=0.9),
    }


PIT_BINS = 20


def pit_counts(outcome: Outcome, y: np.ndarray) -> list[int]:
    """How many targets fall into each twentieth of their predicted distribution: all alike if it is calibrated."""
    z = torch.as_tensor((y - outcome.center) / outcome.scale, dtype=torch.float64)
    return np.histogram(outcome.distribution_z.double().cdf(z).numpy(), bins=PIT_BINS, range=(0, 1))[0].tolist()


def rmse(mean: np.ndarray, y: np.ndarray) -> float:
    return float(np.sqrt(np.mean((y - mean) ** 2)))


def interval_coverage(distribution: Distribution, y: torch.Tensor, *, level: float) -> float:
    """Share of targets inside the central interval: y is inside if and only if its cdf is."""
    tail = (1 - level) / 2
    cdf = distribution.cdf(y)
    return float(((cdf >= tail) & (cdf <= 1 - tail)).double().mean())
