"""A pair of XGBoost models, for the mean and for the log-scale of a Normal."""

from __future__ import annotations

import numpy as np
import xgboost
from sklearn.model_selection import KFold

from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.methods.base import StandardisedRegressor
from anchormoe.methods.scale_trees import best_stage, fit_log_scale, predict_scale
from anchormoe.model.encoding import Takes


class XGBoostNormal(StandardisedRegressor):
    """A pair of boosted models.

    The scale is learned from out-of-fold residuals, because those of rows that the mean was fitted to are too small.
    """

    takes = Takes.categories

    def __init__(
        self,
        *,
        stages: int = 2000,
        learning_rate: float = 0.05,
        max_depth: int = 3,
        num_folds: int = 5,
        random_state: int = 0,
    ) -> None:
        super().__init__(random_state=random_state)
        self.stages, self.num_folds = stages, num_folds
        self.settings = {"learning_rate": learning_rate, "max_depth": max_depth, "nthread": 1}

    def _fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> None:
        settings = {**self.settings, "seed": seed}
        stages = best_stage(self._matrix, settings, X, y, seed, self.stages)
        residual = np.empty_like(y)
        for train, held_out in KFold(self.num_folds, shuffle=True, random_state=seed).split(X):
            model = xgboost.train(settings, self._matrix(X[train], y[train]), stages)
            residual[held_out] = y[held_out] - model.predict(self._matrix(X[held_out]))
        self.mean = xgboost.train(settings, self._matrix(X, y), stages)
        self.log_scale = fit_log_scale(self._matrix, settings, X, residual, seed, self.stages)

    def _matrix(self, X: np.ndarray, y: np.ndarray | None = None) -> xgboost.DMatrix:
        if not self.categorical_features:
            return xgboost.DMatrix(X, y)
        kinds = ["c" if column in self.categorical_features else "q" for column in range(X.shape[1])]
        return xgboost.DMatrix(X, y, feature_types=kinds, enable_categorical=True)

    def _predict(self, X: np.ndarray) -> GaussianMixture:
        rows = self._matrix(X)
        return GaussianMixture.normal(self.mean.predict(rows), predict_scale(self.log_scale, rows))
