"""A distributional forest: leaves weight the training rows, and a Normal is fitted to the weighted targets."""

from __future__ import annotations

import numpy as np
from sklearn.ensemble import RandomForestRegressor

from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.methods.base import SCALE_FLOOR, StandardisedRegressor
from anchormoe.model.encoding import Takes

LEAF_SIZES = (3, 5, 10, 20)


class DistributionalForest(StandardisedRegressor):
    """A forest that predicts y and y^2 together.

    Its trees split where either moment changes, and the weighted Normal has mean E[y] and variance E[y^2] - E[y]^2. The
    leaf size is chosen by the NLL of out-of-bag rows.
    """

    takes = Takes.gaps

    def __init__(self, *, num_trees: int = 200, random_state: int = 0) -> None:
        super().__init__(random_state=random_state)
        self.num_trees = num_trees

    def _fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> None:
        moments = np.column_stack([y, y**2])
        best = np.inf
        for leaf_size in LEAF_SIZES:
            forest = RandomForestRegressor(
                self.num_trees, min_samples_leaf=leaf_size, max_features=1 / 3, oob_score=_no_score, random_state=seed
            ).fit(X, moments)
            seen = ~np.isnan(forest.oob_prediction_).any(1)  # with few trees a row may never be out of the bag
            log_prob = _normal(forest.oob_prediction_[seen]).log_prob(y[seen])
            nll = float(-log_prob.mean())
            if nll < best:
                best, self.forest = nll, forest

    def _predict(self, X: np.ndarray) -> GaussianMixture:
        return _normal(self.forest.predict(X))


def _normal(moments: np.ndarray) -> GaussianMixture:
    mean, square = moments.T
    return GaussianMixture.normal(mean, np.sqrt(np.maximum(square - mean**2, SCALE_FLOOR**2)))


def _no_score(y: np.ndarray, predicted: np.ndarray) -> float:
    """Return 0: the forest keeps its out-of-bag predictions only if it is given a score to compute."""
    return 0.0
