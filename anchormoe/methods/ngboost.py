"""NGBoost: natural gradient boosting of a Normal's mean and log-scale, by the ngboost library."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence

import numpy as np
from ngboost import NGBRegressor
from ngboost.learners import default_tree_learner
from sklearn.base import clone

from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.methods.base import SCALE_FLOOR, StandardisedRegressor, hold_out
from anchormoe.model.anchors import exact_trees


class NGBoost(StandardisedRegressor):
    """NGBoost as in its paper: the stage with the lowest validation NLL on 20% of the rows, then a refit on all rows.

    The learning rate is chosen together with the stage: at 0.01 large datasets need more than 2000 stages, at 0.05
    small ones stop too early. `own_trees=True` uses the library's own learner, which gives the same trees except for
    ties and takes several times as long.

    `select_stage=False` with `raw_target=True` is the setting behind the published Wine and Protein cells: all stages
    at the first rate, no validation, the target in its own units. The units matter there: where no step lowers the loss
    any more, the library's line search ends with a step of 1e-4 in these units, which is less on Protein than on a
    z-scored target.
    """

    def __init__(
        self,
        *,
        stages: int = 2000,
        learning_rates: Sequence[float] = (0.01, 0.05),
        select_stage: bool = True,
        own_trees: bool = False,
        raw_target: bool = False,
        random_state: int = 0,
    ) -> None:
        super().__init__(random_state=random_state)
        self.stages, self.learning_rates = stages, tuple(learning_rates)
        self.select_stage, self.own_trees, self.raw_target = select_stage, own_trees, raw_target

    def _fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> None:
        stages, learning_rate = (
            self._selected(X, y, seed) if self.select_stage else (self.stages, self.learning_rates[0])
        )
        self.model = self._model(stages, learning_rate, X, seed).fit(X, y)
        self.scale_floor = SCALE_FLOOR * y.std()

    def _selected(self, X: np.ndarray, y: np.ndarray, seed: int) -> tuple[int, float]:
        train, validation = hold_out(len(y), seed)
        lowest = {}
        for rate in self.learning_rates:
            model = self._model(self.stages, rate, X[train], seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # a validation density of zero is an infinite loss
                model.fit(X[train], y[train], X_val=X[validation], Y_val=y[validation], early_stopping_rounds=100)
            best = model.best_val_loss_itr
            lowest[best + 1, rate] = model.evals_result["val"]["LOGSCORE"][best]
        return min(lowest, key=lowest.__getitem__)

    def _model(self, stages: int, learning_rate: float, X: np.ndarray, seed: int) -> NGBRegressor:
        return NGBRegressor(
            Base=clone(default_tree_learner).set_params(random_state=seed) if self.own_trees else Tree(X),
            n_estimators=stages,
            learning_rate=learning_rate,
            verbose=False,
            random_state=seed,
        )

    def _predict(self, X: np.ndarray) -> GaussianMixture:
        predicted = self.model.pred_dist(X)
        return GaussianMixture.normal(predicted.loc, np.maximum(predicted.scale, self.scale_floor))


class Tree:
    """A learner for the ngboost library: the same trees of depth 3 as its default learner, on columns sorted once.

    The library clones its learner for every tree and fits it to the same rows.
    """

    def __init__(self, X: np.ndarray) -> None:
        self.columns = exact_trees.SortedColumns(X)

    def __sklearn_clone__(self) -> Tree:
        return copy.copy(self)

    def fit(self, X: np.ndarray, y: np.ndarray) -> Tree:
        self.tree = self.columns.tree(y, max_depth=3)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.tree.predict(X, stages=1)
