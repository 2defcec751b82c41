"""A t-distribution around point predictions, whose width is learnt from residuals of held-out rows."""

from __future__ import annotations

from typing import Self

import numpy as np
from scipy.optimize import minimize
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import KFold, cross_val_predict

from anchormoe.distributions.student import StudentT, log_density
from anchormoe.methods.base import SCALE_FLOOR

NUM_FOLDS = 5
_BOUNDS = [(-20.0, 5.0), (0.0, 1.5), (np.log(2.1), np.log(200.0))]


class ResidualScale:
    """Predicts distributions location + width * t with width = s g(x)^a and d degrees of freedom.

    Boosted trees learn log g(x) from the logarithms of absolute residuals, with the point prediction as a further
    feature. s, a and d have the highest likelihood for values of g that were predicted out of fold, so that a is near
    0, which is one width for all rows, where the size of the residuals cannot be predicted.
    """

    def __init__(self, *, seed: int) -> None:
        self.seed = seed

    def fit(self, X: np.ndarray, mean: np.ndarray, y: np.ndarray) -> Self:
        """Fit to held-out rows X, their predictions `mean` and targets y."""
        residual, features = y - mean, np.column_stack([X, mean])
        typical = max(float(np.median(np.abs(residual))), SCALE_FLOOR)
        size = np.log(np.abs(residual) / typical + 0.01)  # a residual of zero must not weigh more than a small one
        self.trees = HistGradientBoostingRegressor(
            learning_rate=0.05, max_iter=100, max_leaf_nodes=8, min_samples_leaf=10, random_state=self.seed
        )
        folds = KFold(min(NUM_FOLDS, len(y)), shuffle=True, random_state=self.seed)
        predicted = cross_val_predict(self.trees, features, size, cv=folds)
        self.trees.fit(features, size)

        def nll(parameters: np.ndarray) -> float:
            log_s, a, log_degrees = parameters
            log_width = np.maximum(log_s + a * predicted, np.log(SCALE_FLOOR))
            return float(np.mean(log_width - log_density(residual / np.exp(log_width), np.exp(log_degrees))))

        starts = [np.array([np.log(typical), a, np.log(5.0)]) for a in (0.1, 1.0)]
        found = [minimize(nll, start, method="L-BFGS-B", bounds=_BOUNDS) for start in starts]
        self.log_s, self.exponent, log_degrees = min(found, key=lambda result: result.fun).x
        self.degrees = float(np.exp(log_degrees))
        return self

    def predict(self, X: np.ndarray, mean: np.ndarray) -> StudentT:
        """Return the distributions of rows X around their predictions."""
        log_width = self.log_s + self.exponent * self.trees.predict(np.column_stack([X, mean]))
        return StudentT(mean, np.maximum(np.exp(log_width), SCALE_FLOOR), self.degrees)
