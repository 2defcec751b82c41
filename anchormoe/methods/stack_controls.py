"""Controls of the cross-fitted recipe: the same out-of-fold stack of anchors with something simpler than its networks.

What they lack beside the recipe is what the networks buy. All but the last have the recipe's component for rows unlike
all others; none has its linear map, because the stack's weights are fitted by least squares already.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import xgboost

from anchormoe.distributions.base import Distribution
from anchormoe.distributions.empirical import LEVELS, Empirical
from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.methods.base import SCALE_FLOOR
from anchormoe.methods.scale_trees import fit_log_scale, predict_scale
from anchormoe.model.anchors.fitted import StackedAnchor
from anchormoe.model.crossfit import Settings, TargetStatistics, fit_anchor, with_outlier_component
from anchormoe.model.kernels.clock import clock
from anchormoe.model.training_rows import TrainingRows, folds_of

_TREES = {"learning_rate": 0.05, "max_depth": 3, "nthread": 1}  # those of method=xgboost_normal
_MOST_TREES = 2000


class OnStack:
    """The base class of controls, which have the settings of the recipe and its anchors, but not its networks."""

    categorical_features: Sequence[int] = ()

    def __init__(self, *, random_state: int, **settings: Any) -> None:
        self.settings, self.random_state = Settings(**settings), random_state
        self.diagnostics_: dict[str, Any] = {}


class StackControl(OnStack, ABC):
    """A distribution around the mean of the recipe's anchor, which the models of all folds predict together."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        """Fit to rows X (N, I), in which nan is a missing value, and targets y (N,)."""
        rows = TrainingRows(X, y, None, tuple(self.categorical_features))
        self.anchor, seconds = fit_anchor(self.settings, rows, self.random_state)
        start = clock()
        self.target = TargetStatistics.of(y)
        self.scale = self.target.std or 1.0  # 1 for a constant target
        self.error = math.sqrt(np.mean((y - self.anchor.mean) ** 2)) or SCALE_FLOOR * self.scale
        self.folds = folds_of(len(y), len(self.anchor.models), seed=self.random_state)
        if self.target.std:
            self._fit(X, y)
        self.diagnostics_["fit_seconds"] = seconds + clock() - start
        return self

    def predict_dist(self, X: np.ndarray) -> Distribution:
        """Predict distributions of rows, in the target's units."""
        if self.target.std:
            distribution = self._predict(X)
        else:  # there was nothing to learn
            distribution = self._standard(GaussianMixture.normal(self._mean(X), self.error))
        assert dataclasses.is_dataclass(distribution)
        return dataclasses.replace(distribution, center=self.target.mean, scale=self.scale)

    def _mean(self, X: np.ndarray) -> np.ndarray:
        return np.mean([model(X) for model in self.anchor.models], axis=0)

    def _standard(self, mixture: GaussianMixture) -> GaussianMixture:
        mixture = with_outlier_component(mixture, self.target)
        return mixture.affine(scale=1 / self.scale, shift=-self.target.mean / self.scale)

    def _fit(self, X: np.ndarray, y: np.ndarray) -> None:
        """Learn the distribution around the anchor, whose held-out means are `self.anchor.mean`."""

    @abstractmethod
    def _predict(self, X: np.ndarray) -> Distribution:
        """Predict distributions in standard units."""


class OneVariance(StackControl):
    """A Normal whose variance, the same for all rows, is that of the out-of-fold residuals."""

    def _predict(self, X: np.ndarray) -> GaussianMixture:
        return self._standard(GaussianMixture.normal(self._mean(X), self.error))


class XGBoostScale(StackControl):
    """A Normal whose scale boosted trees learn from the out-of-fold residuals."""

    def _fit(self, X: np.ndarray, y: np.ndarray) -> None:
        residual = (y - self.anchor.mean) / self.error
        settings = {**_TREES, "seed": self.random_state % 2**31}
        columns = np.column_stack([X, self.anchor.mean])
        self.log_scale = fit_log_scale(self._matrix, settings, columns, residual, self.random_state, _MOST_TREES)

    def _matrix(self, X: np.ndarray, y: np.ndarray | None = None) -> xgboost.DMatrix:
        kinds = ["c" if column in self.categorical_features else "q" for column in range(X.shape[1])]
        return xgboost.DMatrix(X, y, feature_types=kinds, enable_categorical=True)

    def _predict(self, X: np.ndarray) -> GaussianMixture:
        mean = self._mean(X)
        scale = predict_scale(self.log_scale, self._matrix(np.column_stack([X, mean])))
        return self._standard(GaussianMixture.normal(mean, self.error * scale))


class ResidualQuantiles(StackControl):
    """The plain average of the stack's members, with the quantiles of its out-of-fold residuals around it."""

    def _fit(self, X: np.ndarray, y: np.ndarray) -> None:
        mean = np.empty(len(y))
        for model, fold in zip(self.anchor.models, self.folds, strict=True):
            mean[fold] = self._average(model, X[fold])
        self.residuals = np.quantile(y - mean, LEVELS)
        self.diagnostics_["density"] = "smoothed residuals"

    def _average(self, model: Any, X: np.ndarray) -> np.ndarray:
        parts = model.parts if isinstance(model, StackedAnchor) else [model]
        return np.mean([part(X) for part in parts], axis=0)

    def _predict(self, X: np.ndarray) -> Empirical:
        mean = np.mean([self._average(model, X) for model in self.anchor.models], axis=0)
        return Empirical((mean[:, None] + self.residuals - self.target.mean) / self.scale)
