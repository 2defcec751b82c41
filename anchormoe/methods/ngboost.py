"""NGBoost: natural gradient boosting of a Normal's mean and log-scale, by the ngboost library."""

from __future__ import annotations

import copy
import warnings

import numpy as np
from ngboost import NGBRegressor
from ngboost.learners import default_tree_learner
from sklearn.base import clone

from anchormoe import trees
from anchormoe.methods.preparation import SCALE_FLOOR, hold_out
from anchormoe.mixture import GaussianMixture


class NGBoost:
    """As its paper: the stage with the lowest validation NLL on 20% of the rows, then a refit on all of them.

    `select_stage=False` is the setting behind the published Wine and Protein cells: all stages, no validation.
    `own_trees=True` leaves the library its own learner: the same trees but for ties, in several times the time.
    """

    def __init__(
        self, *, stages: int = 2000, learning_rate: float = 0.01, select_stage: bool = True, own_trees: bool = False
    ) -> None:
        self.stages, self.learning_rate, self.select_stage, self.own_trees = (
            stages,
            learning_rate,
            select_stage,
            own_trees,
        )

    def fit(self, X: np.ndarray, y: np.ndarray, *, seed: int) -> None:
        stages = self.stages
        if self.select_stage:
            train, validation = hold_out(len(y), seed)
            model = self._model(stages, X[train], seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # a validation density of zero is an infinite loss
                model.fit(X[train], y[train], X_val=X[validation], Y_val=y[validation], early_stopping_rounds=100)
            stages = model.best_val_loss_itr + 1
        self.model = self._model(stages, X, seed).fit(X, y)

    def _model(self, stages: int, X: np.ndarray, seed: int) -> NGBRegressor:
        return NGBRegressor(
            Base=clone(default_tree_learner).set_params(random_state=seed) if self.own_trees else Tree(X),
            n_estimators=stages,
            learning_rate=self.learning_rate,
            verbose=False,
            random_state=seed,
        )

    def predict(self, X: np.ndarray) -> GaussianMixture:
        predicted = self.model.pred_dist(X)
        return GaussianMixture.normal(predicted.loc, np.maximum(predicted.scale, SCALE_FLOOR))


class Tree:
    """A learner for the ngboost library: what its own, scikit-learn's tree of depth 3, computes on columns sorted once.

    The library clones its learner for every tree and fits it to the same rows.
    """

    def __init__(self, X: np.ndarray) -> None:
        self.columns = trees.SortedColumns(X)

    def __sklearn_clone__(self) -> Tree:
        return copy.copy(self)

    def fit(self, X: np.ndarray, y: np.ndarray) -> Tree:
        self.tree = self.columns.tree(y, max_depth=3)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.tree.predict(X, stages=1)
