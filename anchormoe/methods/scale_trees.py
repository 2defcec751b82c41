"""Boosted trees that predict the logarithm of a residual's standard deviation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import xgboost

from anchormoe.methods.base import SCALE_FLOOR, hold_out

Matrix = Callable[..., xgboost.DMatrix]  # of rows and, to fit, their labels


def best_stage(
    matrix: Matrix, settings: dict[str, Any], X: np.ndarray, y: np.ndarray, seed: int, most: int, **objective: Any
) -> int:
    """Return the number of trees with the lowest loss on a fifth of the rows, which the trees are not fitted to."""
    train, validation = hold_out(len(y), seed)
    model = xgboost.train(
        settings,
        matrix(X[train], y[train]),
        most,
        evals=[(matrix(X[validation], y[validation]), "validation")],
        early_stopping_rounds=100,
        verbose_eval=False,
        **objective,
    )
    return model.best_iteration + 1


def fit_log_scale(
    matrix: Matrix, settings: dict[str, Any], X: np.ndarray, residual: np.ndarray, seed: int, most: int
) -> xgboost.Booster:
    """Fit the scale of Normal residuals by likelihood; the residuals must be those of rows that were held out."""
    log_scale = float(np.log(max(residual.std(), SCALE_FLOOR)))
    settings = {**settings, "base_score": log_scale, "disable_default_eval_metric": True}
    stages = best_stage(matrix, settings, X, residual, seed, most, obj=_scale_gradient, custom_metric=_scale_nll)
    return xgboost.train(settings, matrix(X, residual), stages, obj=_scale_gradient)


def predict_scale(model: xgboost.Booster, rows: xgboost.DMatrix) -> np.ndarray:
    """Predict the standard deviations of rows."""
    return np.exp(np.clip(model.predict(rows, output_margin=True), np.log(SCALE_FLOOR), 10))


def _scale_gradient(log_scale: np.ndarray, residuals: xgboost.DMatrix) -> tuple[np.ndarray, np.ndarray]:
    """Return the derivatives of s + r^2 exp(-2 s) / 2; the second is its expectation, which is never near zero."""
    share = residuals.get_label() ** 2 * np.exp(-2 * log_scale)
    return 1 - share, np.full_like(share, 2.0)


def _scale_nll(log_scale: np.ndarray, residuals: xgboost.DMatrix) -> tuple[str, float]:
    return "nll", float(np.mean(log_scale + 0.5 * residuals.get_label() ** 2 * np.exp(-2 * log_scale)))
