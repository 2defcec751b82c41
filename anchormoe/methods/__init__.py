"""Competing methods, and how one is run on a split.

A method is a class with two functions: fit(X, y, seed=...) on raw features and the z-scored target of the whole
training fold, and predict(X) -> Distribution of the z-scored target. What it needs for choosing its settings it holds
out itself. One with raw_target = True gets and predicts the target in its own units.
"""

from __future__ import annotations

import importlib
from typing import Protocol

import numpy as np

from anchormoe.model.settings import Config
from anchormoe.data.dataset import Dataset
from anchormoe.data.splits import Split
from anchormoe.distributions.foreign import Distribution
from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.distributions.scores import Outcome
from anchormoe.errors import UserError
from anchormoe.methods.preparation import SCALE_FLOOR
from anchormoe.model import crossfit
from anchormoe.model import paper as recipe
from anchormoe.model.kernels.compiled import clock


class Method(Protocol):
    def fit(self, X: np.ndarray, y: np.ndarray, *, seed: int) -> None: ...

    def predict(self, X: np.ndarray) -> Distribution: ...


# name -> module and class; a module is imported only when its method is asked for
METHODS = {
    "catboost_uncertainty": "catboost_uncertainty.CatBoostUncertainty",
    "concrete_dropout": "concrete_dropout.ConcreteDropout",
    "deep_ensembles": "deep_ensembles.DeepEnsemble",
    "dist_forest": "dist_forest.DistributionalForest",
    "gamlss": "gamlss.GAMLSS",
    "gaussian_process": "gaussian_process.GaussianProcess",
    "gbdt_homoscedastic": "gbdt_homoscedastic.HomoscedasticGBDT",
    "mc_dropout": "mc_dropout.MCDropout",
    "mdn": "mdn.MDN",
    "ngboost": "ngboost.NGBoost",
    "ngboost_authors": "ngboost.NGBoost",
    "quantile_forest": "quantile_forest.QuantileForest",
    "rff_krr": "rff_krr.RFFKernelRidge",
    "sklearn": "any_regressor.AnyRegressor",
    "xgboost_normal": "xgboost_normal.XGBoostNormal",
}


def fit_predict(config: Config, dataset: Dataset, split: Split, *, inner_seed: int) -> Outcome:
    """Run the configuration's method on one split."""
    if config.effective_method == "anchormoe":
        if config.crossfit.folds:
            return crossfit.fit_predict(config, dataset, split)
        return recipe.fit_predict(config, dataset, split, inner_seed=inner_seed)
    start = clock()
    y = dataset.y[split.train]
    center, scale = float(y.mean()), float(y.std()) or 1.0  # zero: a target that never varies
    method = make(config)
    raw = getattr(method, "raw_target", False)
    # A seed of its own for every split, as the published runs of other methods had.
    method = fitted(method, dataset.X[split.train], y if raw else (y - center) / scale, seed=config.seed + split.number)
    after_fit = clock()
    distribution = method.predict(dataset.X[split.test])
    if raw:
        assert isinstance(distribution, GaussianMixture)
        distribution = distribution.affine(scale=1 / scale, shift=-center / scale)
    mean_y = distribution.mean.double().numpy() * scale + center
    return Outcome(
        distribution_z=distribution,
        center=center,
        scale=scale,
        mean_y=mean_y,
        mean_y_uncalibrated=mean_y,
        fit_seconds=after_fit - start,
        predict_seconds=clock() - after_fit,
    )


def fitted(method: Method, X: np.ndarray, y: np.ndarray, *, seed: int) -> Method:
    if np.ptp(y) == 0:
        method = _OneValue()  # nothing to learn, and most methods would divide by a spread of zero
    method.fit(X, y, seed=seed)
    return method


class _OneValue:
    """Of a target that never varies."""

    def fit(self, X: np.ndarray, y: np.ndarray, *, seed: int) -> None:
        self.value = y[0]

    def predict(self, X: np.ndarray) -> GaussianMixture:
        return GaussianMixture.normal(np.full(len(X), self.value), SCALE_FLOOR)


def make(config: Config) -> Method:
    """The configuration's method; what is missing to run it, or a parameter it does not have, is said in one line."""
    name, parameters = config.effective_method, dict(config.method.params)
    if name not in METHODS:
        raise UserError(f"method must be one of anchormoe, {', '.join(METHODS)}, received {name}")
    if config.method.target is not None:
        parameters["target"] = config.method.target
    module_name, _, class_name = METHODS[name].partition(".")
    try:
        method_class = getattr(importlib.import_module(f"anchormoe.methods.{module_name}"), class_name)
    except ModuleNotFoundError as error:
        raise UserError(f"method={name} needs the {error.name} package: pip install 'anchormoe[baselines]'") from None
    try:
        return method_class(**parameters)
    except TypeError as error:
        raise UserError(
            f"method.params must be parameters of {name}, received {config.method.params}: {error}"
        ) from None
