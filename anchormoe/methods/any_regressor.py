"""The method that wraps any scikit-learn, ngboost or skpro regressor, named by its import path."""

from __future__ import annotations

from typing import Any

import numpy as np

from anchormoe.distributions.base import Distribution
from anchormoe.distributions.foreign import as_distribution, distribution_predictor
from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.methods.base import SCALE_FLOOR, StandardisedRegressor, hold_out
from anchormoe.model.anchors.imported import import_regressor, new_regressor, parameters_of

NUM_RESIDUALS = 50
BANDWIDTH = 0.3  # bandwidth of the residuals' kernel, in their standard deviations


class AnyRegressor(StandardisedRegressor):
    """A regressor of another library under the contract of methods.

    If it predicts distributions, these are used. Otherwise the distribution of its validation residuals is put around
    its point predictions, the same for every row.
    """

    def __init__(self, *, target: str, random_state: int = 0, **parameters: Any) -> None:
        super().__init__(random_state=random_state)
        self.prototype = import_regressor("method.target", target)
        accepted = parameters_of(self.prototype)
        unknown = [] if accepted is None else sorted(set(parameters) - accepted)
        if unknown:
            raise TypeError(f"{target} has no {', '.join(unknown)}")
        self.parameters = parameters

    def _fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> None:
        self.residuals = None
        regressor = new_regressor(self.prototype, self.parameters, seed)
        if distribution_predictor(regressor) is None:
            train, validation = hold_out(len(y), seed)
            regressor.fit(X[train], y[train])
            self.residuals = y[validation] - np.asarray(regressor.predict(X[validation])).reshape(-1)
            regressor = new_regressor(self.prototype, self.parameters, seed)
        self.regressor = regressor
        self.regressor.fit(X, y)

    def _predict(self, X: np.ndarray) -> Distribution:
        predict = distribution_predictor(self.regressor)
        if predict is not None:
            return as_distribution(predict(X), len(X))
        assert self.residuals is not None
        mean = np.asarray(self.regressor.predict(X), dtype=np.float64).reshape(-1, 1)
        levels = (np.arange(NUM_RESIDUALS) + 0.5) / NUM_RESIDUALS
        scale = max(BANDWIDTH * float(self.residuals.std()), SCALE_FLOOR)
        return GaussianMixture.equal_weights(mean + np.quantile(self.residuals, levels), scale)
