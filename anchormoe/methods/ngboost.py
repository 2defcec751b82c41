"""NGBoost: natural gradient boosting of a Normal's mean and log-scale, by the ngboost library."""

from __future__ import annotations

import warnings

import numpy as np
from ngboost import NGBRegressor
from sklearn.tree import DecisionTreeRegressor

from anchormoe.methods.preparation import SCALE_FLOOR, hold_out
from anchormoe.mixture import GaussianMixture


class NGBoost:
    """As its paper: the stage with the lowest validation NLL on 20% of the rows, then a refit on all of them.

    `select_stage=False` is the setting behind the published Wine and Protein cells: all stages, no validation.
    """

    def __init__(self, *, stages: int = 2000, learning_rate: float = 0.01, select_stage: bool = True) -> None:
        self.stages, self.learning_rate, self.select_stage = stages, learning_rate, select_stage

    def fit(self, X: np.ndarray, y: np.ndarray, *, seed: int) -> None:
        stages = self.stages
        if self.select_stage:
            train, validation = hold_out(len(y), seed)
            model = self._model(stages, seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # a validation density of zero is an infinite loss
                model.fit(X[train], y[train], X_val=X[validation], Y_val=y[validation], early_stopping_rounds=100)
            stages = model.best_val_loss_itr + 1
        self.model = self._model(stages, seed).fit(X, y)

    def _model(self, stages: int, seed: int) -> NGBRegressor:
        tree = DecisionTreeRegressor(criterion="friedman_mse", max_depth=3, random_state=seed)
        return NGBRegressor(
            Base=tree, n_estimators=stages, learning_rate=self.learning_rate, verbose=False, random_state=seed
        )

    def predict(self, X: np.ndarray) -> GaussianMixture:
        predicted = self.model.pred_dist(X)
        return GaussianMixture.normal(predicted.loc, np.maximum(predicted.scale, SCALE_FLOOR))
