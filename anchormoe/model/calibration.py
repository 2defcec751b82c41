"""Calibration: a linear map of the predicted mean, fitted on rows that the model has not seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class LinearMap:
    """The map mean -> slope * mean + intercept, in original units."""

    slope: float = 1.0
    intercept: float = 0.0

    def __call__(self, mean: np.ndarray) -> np.ndarray:
        return self.slope * mean + self.intercept


def fit_linear_map(
    mean: np.ndarray, y: np.ndarray, spread: np.ndarray | float = 1.0, weight: np.ndarray | None = None
) -> LinearMap:
    """Fit y to (mean, 1) by least squares, with each row's error in units of its spread, and rows counted by weight."""
    if weight is not None:
        spread = spread / np.sqrt(weight)
    design = np.column_stack([mean, np.ones_like(mean)]) / np.reshape(spread, (-1, 1))
    slope, intercept = np.linalg.lstsq(design, y / spread, rcond=None)[0]
    return LinearMap(float(slope), float(intercept))
