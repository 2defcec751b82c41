"""CatBoost's own Normal: mean and variance from one model (RMSEWithUncertainty)."""

from __future__ import annotations

import numpy as np
from catboost import CatBoostRegressor

from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.methods.base import SCALE_FLOOR, StandardisedRegressor, hold_out
from anchormoe.model.encoding import Takes


class CatBoostUncertainty(StandardisedRegressor):
    """CatBoost with the number of stages that has the lowest validation NLL, fitted again on all rows."""

    takes = Takes.categories

    def __init__(
        self, *, stages: int = 2000, learning_rate: float = 0.05, depth: int = 4, random_state: int = 0
    ) -> None:
        super().__init__(random_state=random_state)
        self.stages, self.learning_rate, self.depth = stages, learning_rate, depth

    def _fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> None:
        train, validation = hold_out(len(y), seed)
        model = self._model(self.stages, seed)
        rows = self._table(X)
        model.fit(rows[train], y[train], eval_set=(rows[validation], y[validation]), early_stopping_rounds=100)
        self.model = self._model(model.get_best_iteration() + 1, seed).fit(rows, y)

    def _model(self, stages: int, seed: int) -> CatBoostRegressor:
        return CatBoostRegressor(
            loss_function="RMSEWithUncertainty",
            iterations=stages,
            learning_rate=self.learning_rate,
            depth=self.depth,
            random_seed=seed,
            thread_count=1,
            verbose=False,
            allow_writing_files=False,
            cat_features=list(self.categorical_features) or None,
        )

    def _table(self, X: np.ndarray) -> np.ndarray:
        """Write category codes as texts, the form in which the library takes them; a gap is a category of its own."""
        if not self.categorical_features:
            return X
        table = X.astype(object)
        columns = list(self.categorical_features)
        table[:, columns] = X[:, columns].astype(str)
        return table

    def _predict(self, X: np.ndarray) -> GaussianMixture:
        mean, variance = self.model.predict(self._table(X), prediction_type="RMSEWithUncertainty", thread_count=1).T
        return GaussianMixture.normal(mean, np.maximum(np.sqrt(variance), SCALE_FLOOR))
