"""Any method of the benchmark as a regressor of tables: what was ranked can be used."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from anchormoe import methods
from anchormoe.data.columns import Columns
from anchormoe.distributions.base import Distribution


class MethodRegressor:
    """A method by its name, such as `xgboost_normal`, or a regressor of yours by its import path.

    It takes a DataFrame with texts, categories and gaps, or an array. Further arguments are those of the method.
    """

    def __init__(self, method: str, *, random_state: int = 1, **parameters: Any) -> None:
        self.method, self.random_state, self.parameters = method, random_state, parameters

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to a table X (N, I) and targets y (N,)."""
        self.columns_ = Columns.learn(X)
        name, target = ("sklearn", {"target": self.method}) if "." in self.method else (self.method, {})
        arguments = {**target, "random_state": self.random_state, **self.parameters}
        regressor = methods.make(name, arguments, categorical=self.columns_.categorical)
        self.regressor_ = regressor.fit(self.columns_.matrix(X), np.asarray(y, dtype=np.float64))
        self.diagnostics_ = regressor.diagnostics_
        return self

    def predict_dist(self, X: Any) -> Distribution:
        """Predict the distribution of each row, in the target's units."""
        return self.regressor_.predict_dist(self.columns_.matrix(X))

    def predict(self, X: Any) -> np.ndarray:
        """Predict the mean of each row (N,)."""
        return self.predict_dist(X).mean

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Predict the central interval that holds the target with probability `coverage`: (N, 2), low and high."""
        return self.predict_dist(X).interval(coverage)
