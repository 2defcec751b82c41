"""Bayesian additive regression trees with a forest for the variance, by the stochtree library."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from stochtree import BARTModel

from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.methods.base import SCALE_FLOOR, StandardisedRegressor, hold_out


class BART(StandardisedRegressor):
    """The posterior predictive distribution: a normal distribution for each draw of the forests.

    Chains start from the library's fast grow-from-root forests. The number of trees for the variance, 0 for one
    variance of all rows, is the one with the lowest NLL of held-out rows.
    """

    def __init__(
        self,
        *,
        trees: int = 200,
        variance_trees: Sequence[int] = (0, 50),
        burn_in: int = 200,
        draws: int = 500,
        components: int = 100,
        random_state: int = 0,
    ) -> None:
        super().__init__(random_state=random_state)
        self.trees, self.variance_trees = trees, tuple(variance_trees)
        self.burn_in, self.draws, self.components = burn_in, draws, components

    def _fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> None:
        chosen = self.variance_trees[0]
        if len(self.variance_trees) > 1:
            train, validation = hold_out(len(y), seed)
            nll = {}
            for number in self.variance_trees:
                model = self._sampled(X[train], y[train], number, seed)
                nll[number] = float(-self._distribution(model, number, X[validation]).log_prob(y[validation]).mean())
            chosen = min(nll, key=nll.__getitem__)
        self.model, self.chosen = self._sampled(X, y, chosen, seed), chosen
        self.diagnostics_["variance_trees"] = chosen

    def _sampled(self, X: np.ndarray, y: np.ndarray, variance_trees: int, seed: int) -> BARTModel:
        model = BARTModel()
        model.sample(
            X_train=X,
            y_train=y,
            num_gfr=10,
            num_burnin=self.burn_in,
            num_mcmc=self.draws,
            general_params={
                "random_seed": seed,
                "num_threads": 1,
                "sample_sigma2_global": variance_trees == 0,
            },
            mean_forest_params={"num_trees": self.trees},
            variance_forest_params={"num_trees": variance_trees},
        )
        return model

    def _distribution(self, model: BARTModel, variance_trees: int, X: np.ndarray) -> GaussianMixture:
        kept = np.unique(np.linspace(0, self.draws - 1, self.components).astype(int))
        means = model.predict(X, terms="y_hat")[:, kept]
        if variance_trees:
            variances = model.predict(X, terms="variance_forest")[:, kept]
        else:
            variances = np.broadcast_to(model.global_var_samples[kept], means.shape)
        return GaussianMixture.equal_weights(means, np.maximum(np.sqrt(variances), SCALE_FLOOR))

    def _predict(self, X: np.ndarray) -> GaussianMixture:
        return self._distribution(self.model, self.chosen, X)
