"""The anchor alone with one residual variance: the baseline every method must beat."""

from __future__ import annotations

import numpy as np

from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.methods.base import SCALE_FLOOR, StandardisedRegressor, hold_out
from anchormoe.model.anchors import exact_trees


class HomoscedasticGBDT(StandardisedRegressor):
    """Boosted trees with the stage of the lowest validation error, which is the predicted scale of every row."""

    def __init__(
        self, *, stages: int = 2000, learning_rate: float = 0.05, max_depth: int = 3, random_state: int = 0
    ) -> None:
        super().__init__(random_state=random_state)
        self.stages, self.learning_rate, self.max_depth = stages, learning_rate, max_depth

    def _fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> None:
        train, validation = hold_out(len(y), seed)
        model = self._trees(X[train], y[train], self.stages)
        rmse = model.staged_rmse(X[validation], y[validation])
        self.stage = 1 + int(np.argmin(rmse))
        self.scale = max(float(rmse.min()), SCALE_FLOOR)
        self.model = self._trees(X, y, self.stage)

    def _trees(self, X: np.ndarray, y: np.ndarray, stages: int) -> exact_trees.BoostedTrees:
        return exact_trees.fit(X, y, stages=stages, learning_rate=self.learning_rate, max_depth=self.max_depth)

    def _predict(self, X: np.ndarray) -> GaussianMixture:
        return GaussianMixture.normal(self.model.predict(X, stages=self.stage), self.scale)
