"""Quantile models fitted on folds and averaged; a density comes from smoothing their quantiles."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.methods.base import StandardisedRegressor
from anchormoe.methods.fold_stack import Part, Predict, fold_parts
from anchormoe.methods.smoothing import best_bandwidth, smoothed

NUM_LEVELS = 20


def equal_levels(number: int) -> np.ndarray:
    """Return levels that stand for equal shares: 0.25 and 0.75 for two, 0.025, 0.075, ..., 0.975 for twenty."""
    return (np.arange(number) + 0.5) / number


LEVELS = equal_levels(NUM_LEVELS)


class QuantileFolds(StandardisedRegressor):
    """Models that predict the quantiles of `LEVELS` (N, 20), each fitted on a fold; the quantiles are averaged.

    Above `folds_up_to` rows there is a model on the first fold only.

    Quantiles alone have no density. The NLL comes from smoothing them, with the bandwidth of the lowest out-of-fold
    NLL, and the row says so.
    """

    def __init__(self, *, folds_up_to: int = 2000, random_state: int = 0) -> None:
        super().__init__(random_state=random_state)
        self.folds_up_to = folds_up_to

    @abstractmethod
    def _fit_part(self, part: Part) -> Predict:
        """Fit to a part and return the quantiles (N, 20) as a function of rows."""

    def _fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> None:
        self.models, quantiles, targets = [], [], []
        parts = fold_parts(X, y, seed)
        for part in parts[:1] if len(y) > self.folds_up_to else parts:
            self.models.append(self._fit_part(part))
            quantiles.append(np.sort(self.models[-1](part.held_out_X), axis=1))
            targets.append(part.held_out_y)
        self.bandwidth = best_bandwidth(np.concatenate(quantiles), np.concatenate(targets))
        self.diagnostics_ |= {"density": "smoothed quantiles", "bandwidth": self.bandwidth}

    def _predict(self, X: np.ndarray) -> GaussianMixture:
        quantiles = np.mean([np.sort(model(X), axis=1) for model in self.models], axis=0)
        return smoothed(quantiles, self.bandwidth)
