"""What is fitted on rows that the model has not seen: the linear map of the predicted mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class LinearMap:
    """mean -> slope * mean + intercept, in original units."""

    slope: float = 1.0
    intercept: float = 0.0

    def __call__(self, mean: np.ndarray) -> np.ndarray:
        return self.slope * mean + self.intercept


def fit_linear_map(mean: np.ndarray, y: np.ndarray) -> LinearMap:
    """Least squares of y on (mean, 1)."""
    design = np.column_stack([mean, np.ones_like(mean)])
    slope, intercept = np.linalg.lstsq(design, y, rcond=None)[0]
    return LinearMap(float(slope), float(intercept))
