"""The registry of methods. Each is a regressor with fit(X, y) and predict_dist(X).

A module is imported only when its method is asked for.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from anchormoe.distributions.base import Distribution
from anchormoe.errors import UserError


class Regressor(Protocol):
    """The contract of every method, which owns its inner splits, held-out rows and seeds."""

    diagnostics_: dict[str, Any]  # facts about the fit that the row stores: selected stage, epoch, calibration, ...

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        """Fit to rows X (N, I) and targets y (N,)."""

    def predict_dist(self, X: np.ndarray) -> Distribution:
        """Predict distributions of rows, in y's units."""


@dataclass(frozen=True)
class Method:
    """The import path of a method's class, its title in tables, and the extra that installs what it needs."""

    path: str
    title: str
    extra: str | None = None


# In the order of the tables: Anchor-MoE, the other methods of the paper, then those that the paper does not have.
METHODS = {
    "anchormoe_crossfit": Method("anchormoe.estimator.regressor.AnchorMoERegressor", "Anchor-MoE, cross-fitted"),
    "anchormoe": Method("anchormoe.model.paper.PaperAnchorMoE", "Anchor-MoE"),
    "ngboost": Method("anchormoe.methods.ngboost.NGBoost", "NGBoost", "baselines"),
    "ngboost_authors": Method("anchormoe.methods.ngboost.NGBoost", "NGBoost, over-trained", "baselines"),
    "mc_dropout": Method("anchormoe.methods.mc_dropout.MCDropout", "MC dropout"),
    "deep_ensembles": Method("anchormoe.methods.deep_ensembles.DeepEnsemble", "Deep ensembles"),
    "concrete_dropout": Method("anchormoe.methods.concrete_dropout.ConcreteDropout", "Concrete dropout"),
    "gaussian_process": Method("anchormoe.methods.gaussian_process.GaussianProcess", "Gaussian process", "baselines"),
    "gamlss": Method("anchormoe.methods.gamlss.GAMLSS", "GAMLSS"),
    "dist_forest": Method("anchormoe.methods.dist_forest.DistributionalForest", "Dist. forest"),
    "rff_krr": Method("anchormoe.methods.rff_krr.RFFKernelRidge", "Kernel ridge mixture"),
    "xgboost_normal": Method("anchormoe.methods.xgboost_normal.XGBoostNormal", "XGBoost pair"),
    "catboost_uncertainty": Method(
        "anchormoe.methods.catboost_uncertainty.CatBoostUncertainty", "CatBoost", "baselines"
    ),
    "quantile_forest": Method("anchormoe.methods.quantile_forest.QuantileForest", "Quantile forest", "baselines"),
    "gbdt_homoscedastic": Method("anchormoe.methods.gbdt_homoscedastic.HomoscedasticGBDT", "GBDT, one variance"),
    "mdn": Method("anchormoe.methods.mdn.MDN", "MDN"),
    "sklearn": Method("anchormoe.methods.any_regressor.AnyRegressor", "any regressor"),
}


def title(name: str) -> str:
    """Return the title of a method in tables; for a regressor of the user's it is the import path."""
    return METHODS[name].title if name in METHODS else name


def make(name: str, arguments: dict[str, Any]) -> Regressor:
    """Make an unfitted regressor; a missing library or an unknown argument is a UserError."""
    if name not in METHODS:
        raise UserError(f"method must be one of {', '.join(METHODS)}, received {name}")
    method = METHODS[name]
    module_name, _, class_name = method.path.rpartition(".")
    try:
        regressor_class = getattr(importlib.import_module(module_name), class_name)
    except ModuleNotFoundError as error:
        extra = f"pip install 'anchormoe[{method.extra}]'" if method.extra else f"pip install {error.name}"
        raise UserError(f"method={name} needs the {error.name} package: {extra}") from None
    try:
        return regressor_class(**arguments)
    except TypeError as error:
        raise UserError(f"method.params must be parameters of {name}, received {arguments}: {error}") from None
