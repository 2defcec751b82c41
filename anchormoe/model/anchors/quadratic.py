"""Ridge regression on all squares and products of two features: an anchor for smooth targets that fits fast."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import numpy as np
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from anchormoe.model.training_rows import some_rows


@dataclass(eq=False)
class QuadraticRidge:
    """Ridge regression on products, with its penalty chosen by leave-one-out errors.

    It learns from `most_rows` rows at most, and leaves the products out where there would be more than `most_products`.
    """

    most_rows: int = 50_000
    most_products: int = 2_000
    random_state: int = 0
    pipeline: Pipeline = field(init=False, repr=False)  # the result of the fit

    def fit(self, X: np.ndarray, y: np.ndarray, sample_weight: np.ndarray | None = None) -> Self:
        num_products = X.shape[1] * (X.shape[1] + 1) // 2
        self.pipeline = make_pipeline(
            StandardScaler(),
            PolynomialFeatures(degree=2 if num_products <= self.most_products else 1, include_bias=False),
            StandardScaler(),
            RidgeCV(alphas=np.logspace(-6, 3, 19)),
        )
        some = some_rows(len(y), self.most_rows, self.random_state)
        weight = None if sample_weight is None else sample_weight[some]
        self.pipeline.fit(X[some], y[some], ridgecv__sample_weight=weight)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.pipeline.predict(X)
