"""A quantile forest (the quantile-forest library) with a density: its quantiles, smoothed by a Gaussian kernel."""

from __future__ import annotations

import numpy as np
import torch
from quantile_forest import RandomForestQuantileRegressor

from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.methods.preparation import SCALE_FLOOR

BANDWIDTHS = (0.2, 0.3, 0.5, 0.7, 1.0)
LEAF_SIZES = (1, 5, 10)


class QuantileForest:
    """Each of `num_quantiles` equally likely quantiles is the centre of a component; all of a row have one scale, a
    fraction of the row's spread. Leaf size and fraction are chosen by the NLL of out-of-bag rows."""

    def __init__(self, *, num_trees: int = 200, num_quantiles: int = 50) -> None:
        self.num_trees = num_trees
        self.levels = list((np.arange(num_quantiles) + 0.5) / num_quantiles)

    def fit(self, X: np.ndarray, y: np.ndarray, *, seed: int) -> None:
        best, targets = np.inf, torch.as_tensor(y)
        for leaf_size in LEAF_SIZES:
            forest = RandomForestQuantileRegressor(
                self.num_trees, min_samples_leaf=leaf_size, max_features=1 / 3, bootstrap=True, random_state=seed
            ).fit(X, y)
            quantiles = forest.predict(X, quantiles=self.levels, oob_score=True)
            seen = torch.as_tensor(~np.isnan(quantiles).any(1))  # with few trees a row may never be out of the bag
            for bandwidth in BANDWIDTHS:
                mixture = _smoothed(quantiles[seen.numpy()], bandwidth)
                nll = float(-mixture.log_prob(targets[seen]).mean())
                if nll < best:
                    best, self.forest, self.bandwidth = nll, forest, bandwidth

    def predict(self, X: np.ndarray) -> GaussianMixture:
        return _smoothed(self.forest.predict(X, quantiles=self.levels), self.bandwidth)


def _smoothed(quantiles: np.ndarray, bandwidth: float) -> GaussianMixture:
    means = torch.as_tensor(quantiles, dtype=torch.float64)
    spread = means.std(-1, correction=0, keepdim=True)
    # Around a common centre slightly narrower, so that smoothing leaves the row's spread as it was.
    center = means.mean(-1, keepdim=True)
    means = center + (means - center) / np.sqrt(1 + bandwidth**2)
    scales = (spread * bandwidth / np.sqrt(1 + bandwidth**2)).clamp(min=SCALE_FLOOR).expand(means.shape)
    return GaussianMixture(torch.full_like(means, -np.log(means.shape[-1])), means, scales)
