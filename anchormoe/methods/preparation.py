"""What several methods do with their data before they fit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

VALIDATION_FRACTION = 0.2
SCALE_FLOOR = 1e-4  # of a predicted scale, in standard deviations of the target: no density may be a spike


def standardiser(X: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """To columns of mean 0 and standard deviation 1 on X; a constant column says nothing and becomes 0."""
    mean, std = X.mean(0), X.std(0)
    std = np.where(std > 0, std, 1.0)
    return lambda rows: (rows - mean) / std


def hold_out(num_rows: int, seed: int, *, fraction: float = VALIDATION_FRACTION) -> tuple[np.ndarray, np.ndarray]:
    """Rows to fit on and rows to choose on."""
    order = np.random.default_rng(seed).permutation(num_rows)
    held_out = max(1, round(fraction * num_rows))
    return order[held_out:], order[:held_out]
