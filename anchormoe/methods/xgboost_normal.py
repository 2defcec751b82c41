"""A pair of XGBoost models, for the mean and for the log-scale of a Normal."""

from __future__ import annotations

from typing import Any

import numpy as np
import xgboost
from sklearn.model_selection import KFold

from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.methods.base import SCALE_FLOOR, StandardisedRegressor, hold_out


class XGBoostNormal(StandardisedRegressor):
    """A pair of boosted models.

    The scale is learned from out-of-fold residuals, because those of rows that the mean was fitted to are too small.
    """

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
        stages = self._best_stage(settings, X, y, seed)
        residual = np.empty_like(y)
        for train, held_out in KFold(self.num_folds, shuffle=True, random_state=seed).split(X):
            model = xgboost.train(settings, xgboost.DMatrix(X[train], y[train]), stages)
            residual[held_out] = y[held_out] - model.predict(xgboost.DMatrix(X[held_out]))
        self.mean = xgboost.train(settings, xgboost.DMatrix(X, y), stages)

        log_scale = float(np.log(max(residual.std(), SCALE_FLOOR)))
        settings |= {"base_score": log_scale, "disable_default_eval_metric": True}
        stages = self._best_stage(settings, X, residual, seed, obj=_scale_gradient, custom_metric=_scale_nll)
        self.log_scale = xgboost.train(settings, xgboost.DMatrix(X, residual), stages, obj=_scale_gradient)

    def _best_stage(self, settings: dict[str, Any], X: np.ndarray, y: np.ndarray, seed: int, **objective: Any) -> int:
        train, validation = hold_out(len(y), seed)
        held_out = [(xgboost.DMatrix(X[validation], y[validation]), "validation")]
        model = xgboost.train(
            settings,
            xgboost.DMatrix(X[train], y[train]),
            self.stages,
            evals=held_out,
            early_stopping_rounds=100,
            verbose_eval=False,
            **objective,
        )
        return model.best_iteration + 1

    def _predict(self, X: np.ndarray) -> GaussianMixture:
        rows = xgboost.DMatrix(X)
        scale = np.exp(np.clip(self.log_scale.predict(rows, output_margin=True), np.log(SCALE_FLOOR), 10))
        return GaussianMixture.normal(self.mean.predict(rows), scale)


def _scale_gradient(log_scale: np.ndarray, residuals: xgboost.DMatrix) -> tuple[np.ndarray, np.ndarray]:
    """Return the derivatives of s + r^2 exp(-2 s) / 2; the second is its expectation, which is never near zero."""
    share = residuals.get_label() ** 2 * np.exp(-2 * log_scale)
    return 1 - share, np.full_like(share, 2.0)


def _scale_nll(log_scale: np.ndarray, residuals: xgboost.DMatrix) -> tuple[str, float]:
    return "nll", float(np.mean(log_scale + 0.5 * residuals.get_label() ** 2 * np.exp(-2 * log_scale)))
