"""Any scikit-learn, ngboost or skpro regressor by its import path: yours."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from anchormoe.distributions.foreign import Distribution, as_distribution, distribution_predictor
from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.methods.preparation import SCALE_FLOOR, hold_out
from anchormoe.model.anchors.regressors import import_regressor, parameters_of, with_seed

NUM_RESIDUALS = 50
BANDWIDTH = 0.3  # of the residuals' kernel, in their standard deviations


class AnyRegressor:
    """One that predicts distributions is asked for them; to a point prediction the distribution of its validation
    residuals is added, the same for every row."""

    def __init__(self, *, target: str, **parameters: Any) -> None:
        self.regressor_class = import_regressor("method.target", target)
        accepted = parameters_of(self.regressor_class)
        unknown = [] if accepted is None else sorted(set(parameters) - accepted)
        if unknown:
            raise TypeError(f"{target} has no {', '.join(unknown)}")
        self.parameters = parameters

    def fit(self, X: np.ndarray, y: np.ndarray, *, seed: int) -> None:
        self.residuals = None
        regressor = self._new(seed)
        if distribution_predictor(regressor) is None:
            train, validation = hold_out(len(y), seed)
            regressor.fit(X[train], y[train])
            self.residuals = y[validation] - np.asarray(regressor.predict(X[validation])).reshape(-1)
            regressor = self._new(seed)
        self.regressor = regressor
        self.regressor.fit(X, y)

    def _new(self, seed: int) -> Any:
        return with_seed(self.regressor_class, self.parameters, seed)

    def predict(self, X: np.ndarray) -> Distribution:
        predict = distribution_predictor(self.regressor)
        if predict is not None:
            return as_distribution(predict(X), len(X))
        assert self.residuals is not None
        mean = torch.as_tensor(np.asarray(self.regressor.predict(X), dtype=np.float64).reshape(-1, 1))
        levels = (np.arange(NUM_RESIDUALS) + 0.5) / NUM_RESIDUALS
        centers = torch.as_tensor(np.quantile(self.residuals, levels))
        scale = max(BANDWIDTH * float(self.residuals.std()), SCALE_FLOOR)
        means = mean + centers
        return GaussianMixture(torch.full_like(means, -np.log(NUM_RESIDUALS)), means, torch.full_like(means, scale))
