"""A model of one target for every target: what several targets together are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from anchormoe import methods
from anchormoe.distributions.joint import IndependentTargets


class OneByOne:
    """A cross-fitted regressor per target, with the arguments of AnchorMoERegressor; the product of their densities."""

    categorical_features: Sequence[int] = ()

    def __init__(self, **arguments: Any) -> None:
        self.arguments = arguments
        self.diagnostics_: dict[str, Any] = {}

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        """Fit to rows X (N, I), in which nan is a missing value, and targets y (N, T)."""
        self.regressors: list[Any] = [
            methods.make("anchormoe_crossfit", self.arguments, categorical=self.categorical_features).fit(
                X, np.ascontiguousarray(column)
            )
            for column in y.T
        ]
        found = [one.diagnostics_ for one in self.regressors]
        self.diagnostics_ = {name: [one[name] for one in found] for name in ("epoch", "calibration_a", "calibration_b")}
        self.diagnostics_["fit_seconds"] = sum(one.fit_seconds_ for one in self.regressors)
        return self

    def predict_dist(self, X: np.ndarray) -> IndependentTargets:
        """Predict distributions of rows, in the targets' units."""
        return IndependentTargets(tuple(one.predict_dist(X) for one in self.regressors))
