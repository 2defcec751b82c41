"""A quantile forest (the quantile-forest library) with a density: its quantiles, smoothed by a Gaussian kernel."""

from __future__ import annotations

import numpy as np
from quantile_forest import RandomForestQuantileRegressor

from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.methods.base import StandardisedRegressor
from anchormoe.methods.smoothing import BANDWIDTHS, smoothed, smoothed_nll

LEAF_SIZES = (1, 5, 10)


class QuantileForest(StandardisedRegressor):
    """A quantile forest whose quantiles are the centres of the components of a mixture.

    Leaf size and bandwidth are chosen by the NLL of out-of-bag rows.
    """

    def __init__(self, *, num_trees: int = 200, num_quantiles: int = 50, random_state: int = 0) -> None:
        super().__init__(random_state=random_state)
        self.num_trees = num_trees
        self.levels = list((np.arange(num_quantiles) + 0.5) / num_quantiles)

    def _fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> None:
        self.diagnostics_["density"] = "smoothed quantiles"
        best = np.inf
        for leaf_size in LEAF_SIZES:
            forest = RandomForestQuantileRegressor(
                self.num_trees, min_samples_leaf=leaf_size, max_features=1 / 3, bootstrap=True, random_state=seed
            ).fit(X, y)
            quantiles = forest.predict(X, quantiles=self.levels, oob_score=True)
            seen = ~np.isnan(quantiles).any(1)  # with few trees a row may never be out of the bag
            for bandwidth in BANDWIDTHS:
                nll = smoothed_nll(quantiles[seen], bandwidth, y[seen])
                if nll < best:
                    best, self.forest, self.bandwidth = nll, forest, bandwidth

    def _predict(self, X: np.ndarray) -> GaussianMixture:
        return smoothed(self.forest.predict(X, quantiles=self.levels), self.bandwidth)
