"""The registry of methods. Each is a regressor with fit(X, y) and predict_dist(X).

A module is imported only when its method is asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from anchormoe.errors import UserError

if TYPE_CHECKING:
    from anchormoe.distributions.base import Distribution


class Regressor(Protocol):
    """The contract of every method, which owns its inner splits, held-out rows and seeds."""

    diagnostics_: dict[str, Any]  # facts about the fit that the row stores: selected stage, epoch, calibration, ...
    categorical_features: Any  # positions of the columns of X that hold category codes; set before fit

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        """Fit to rows X (N, I), in which nan is a missing value, and targets y (N,)."""

    def predict_dist(self, X: np.ndarray) -> Distribution:
        """Predict distributions of rows, in y's units."""


@dataclass(frozen=True)
class Method:
    """The import path of a method's class, its title in tables, and the extra that installs what it needs.

    A recipe of Anchor-MoE, and what is built on its parts, has the settings of an anchor and a network. Most methods
    predict one target; `takes_several` and `takes_one` say of the others what they can be fitted to.
    """

    path: str
    title: str
    extra: str | None = None
    is_recipe: bool = False
    takes_several: bool = False
    takes_one: bool = True


_CROSSFITTED = "anchormoe.estimator.regressor.AnchorMoERegressor"

# In the order of the tables: Anchor-MoE, the other methods of the paper, then those that the paper does not have.
METHODS = {
    "anchormoe_best": Method(_CROSSFITTED, "Anchor-MoE, best", is_recipe=True, takes_several=True),
    "anchormoe_fast": Method(_CROSSFITTED, "Anchor-MoE, fast", is_recipe=True, takes_several=True),
    "anchormoe_crossfit": Method(_CROSSFITTED, "Anchor-MoE, cross-fitted", is_recipe=True, takes_several=True),
    "anchormoe": Method("anchormoe.model.paper.PaperAnchorMoE", "Anchor-MoE", is_recipe=True),
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
    "stack_t": Method("anchormoe.methods.stack_t.StackT", "Stack + t", "rivals"),
    "catboost": Method("anchormoe.methods.catboost.CatBoost", "CatBoost + t", "rivals"),
    "lightgbm": Method("anchormoe.methods.lightgbm.LightGBM", "LightGBM + t", "rivals"),
    "lightgbm_quantiles": Method(
        "anchormoe.methods.lightgbm_quantiles.LightGBMQuantiles", "LightGBM, quantiles", "rivals"
    ),
    "realmlp": Method("anchormoe.methods.realmlp.RealMLP", "RealMLP + t", "rivals"),
    "realmlp_quantiles": Method("anchormoe.methods.realmlp.RealMLPQuantiles", "RealMLP, quantiles", "rivals"),
    "tabm": Method("anchormoe.methods.tabm.TabM", "TabM + t", "rivals"),
    "bart": Method("anchormoe.methods.bart.BART", "BART", "rivals"),
    "flow": Method("anchormoe.methods.flow.SplineFlow", "Spline flow", "rivals"),
    "conformal": Method("anchormoe.methods.conformal.CrossConformal", "Conformal (CV+)", "rivals"),
    "cqr": Method("anchormoe.methods.conformal.ConformalQuantiles", "Conformal quantiles", "rivals"),
    "deep_ensembles_tuned": Method("anchormoe.methods.deep_ensembles_tuned.TunedDeepEnsemble", "Deep ensembles, tuned"),
    "tabpfn": Method("anchormoe.methods.foundation.TabPFN", "TabPFN"),
    "tabicl": Method("anchormoe.methods.foundation.TabICL", "TabICL"),
    "sklearn": Method("anchormoe.methods.any_regressor.AnyRegressor", "any regressor"),
    "calibrated": Method("anchormoe.methods.calibrated.calibrated_method", "any method, calibrated"),
    "mapie_split": Method("anchormoe.methods.mapie_intervals.MapieIntervals", "MAPIE, split conformal", "checks", True),
    "mapie_cross": Method("anchormoe.methods.mapie_intervals.MapieIntervals", "MAPIE, CV+", "checks", True),
    "control_no_router": Method(_CROSSFITTED, "Experts, no router", is_recipe=True),
    "control_one_expert": Method(_CROSSFITTED, "One expert, 3 Gaussians", is_recipe=True),
    "control_one_gaussian": Method(_CROSSFITTED, "One expert, 1 Gaussian", is_recipe=True),
    "control_xgboost_scale": Method("anchormoe.methods.stack_controls.XGBoostScale", "XGBoost scale", is_recipe=True),
    "control_one_variance": Method("anchormoe.methods.stack_controls.OneVariance", "One variance", is_recipe=True),
    "control_residual_quantiles": Method(
        "anchormoe.methods.stack_controls.ResidualQuantiles", "Average of members, residual quantiles", is_recipe=True
    ),
    "anchormoe_diagonal": Method(
        _CROSSFITTED, "Anchor-MoE, diagonal covariance", is_recipe=True, takes_several=True, takes_one=False
    ),
    "independent": Method(
        "anchormoe.methods.independent.OneByOne",
        "Anchor-MoE, a model per target",
        is_recipe=True,
        takes_several=True,
        takes_one=False,
    ),
    "stack_gaussian": Method(
        "anchormoe.methods.stack_gaussian.StackGaussian",
        "Stack, one Gaussian",
        is_recipe=True,
        takes_several=True,
        takes_one=False,
    ),
}


def require_targets(name: str, dataset: str, num_targets: int) -> None:
    """Refuse a method that cannot be fitted to the number of targets that a dataset has."""
    method = METHODS.get(name)
    if num_targets > 1 and (method is None or not method.takes_several):
        able = ", ".join(name for name, method in METHODS.items() if method.takes_several)
        raise UserError(f"method must be one of {able} for the {num_targets} targets of {dataset!r}, received {name}")
    if num_targets == 1 and method is not None and not method.takes_one:
        raise UserError(
            f"method={name} must have a dataset of several targets, such as energy_joint, received {dataset!r} with one"
        )


def title(name: str) -> str:
    """Return the title of a method in tables; for a regressor of the user's it is the import path."""
    return METHODS[name].title if name in METHODS else name


def make(name: str, arguments: dict[str, Any], *, categorical: Sequence[int] = ()) -> Regressor:
    """Make an unfitted regressor; a missing library or an unknown argument is a UserError.

    The columns at the positions `categorical` of the rows that it will get hold category codes. How a method takes
    these, and gaps, its class says by the attribute `takes` (anchormoe/methods/base.py).
    """
    if name not in METHODS:
        raise UserError(f"method must be one of {', '.join(METHODS)}, received {name}")
    method = METHODS[name]
    module_name, _, class_name = method.path.rpartition(".")
    try:
        regressor_class = getattr(importlib.import_module(module_name), class_name)
    except ModuleNotFoundError as error:
        extra = f"pip install 'anchormoe[{method.extra}]'" if method.extra else f"pip install {error.name}"
        raise UserError(f"method={name} needs the {error.name} package: {extra}") from None
    if method.path == _CROSSFITTED:  # it takes categories and gaps as they are
        arguments = {**arguments, "categorical_features": list(categorical)} if categorical else arguments
    try:
        regressor = regressor_class(**arguments)
    except TypeError as error:
        raise UserError(f"method.params must be parameters of {name}, received {arguments}: {error}") from None
    if categorical:
        regressor.categorical_features = list(categorical)
    return regressor
