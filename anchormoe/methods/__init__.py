"""Competing methods, and how one is run on a split.

A method is a class with two functions: fit(X, y, seed=...) on raw features and the z-scored target of the whole
training fold, and predict(X) -> Distribution of the z-scored target. What it needs for choosing its settings it holds
out itself.
"""

from __future__ import annotations

import importlib
import time
from typing import Any, Protocol

import numpy as np

from anchormoe import recipe
from anchormoe.config import Config
from anchormoe.data import Dataset
from anchormoe.distributions import Distribution
from anchormoe.errors import UserError
from anchormoe.metrics import Outcome
from anchormoe.splits import Split


class Method(Protocol):
    def fit(self, X: np.ndarray, y: np.ndarray, *, seed: int) -> None: ...

    def predict(self, X: np.ndarray) -> Distribution: ...


# name -> module and class; a module is imported only when its method is asked for
METHODS = {
    "gbdt_homoscedastic": "gbdt_homoscedastic.HomoscedasticGBDT",
    "rff_krr": "rff_krr.RFFKernelRidge",
}


def fit_predict(config: Config, dataset: Dataset, split: Split, *, inner_seed: int) -> Outcome:
    """Run the configuration's method on one split."""
    name = config.effective_method
    if name == "anchormoe":
        return recipe.fit_predict(config, dataset, split, inner_seed=inner_seed)
    start = time.perf_counter()
    y = dataset.y[split.train]
    center, scale = float(y.mean()), float(y.std()) + 1e-8
    method = make(name, config.method.params if config.method.name == name else {})
    # A seed of its own for every split, as the published runs of other methods had.
    method.fit(dataset.X[split.train], (y - center) / scale, seed=config.seed + split.number)
    fitted = time.perf_counter()
    distribution = method.predict(dataset.X[split.test])
    mean_y = distribution.mean.double().numpy() * scale + center
    return Outcome(
        distribution_z=distribution,
        center=center,
        scale=scale,
        mean_y=mean_y,
        mean_y_uncalibrated=mean_y,
        fit_seconds=fitted - start,
        predict_seconds=time.perf_counter() - fitted,
    )


def make(name: str, parameters: dict[str, Any]) -> Method:
    """A method by its name; what is missing to run it, or a parameter it does not have, is said in one line."""
    if name not in METHODS:
        raise UserError(f"method must be one of anchormoe, {', '.join(METHODS)}, received {name}")
    module_name, _, class_name = METHODS[name].partition(".")
    try:
        method_class = getattr(importlib.import_module(f"anchormoe.methods.{module_name}"), class_name)
    except ModuleNotFoundError as error:
        raise UserError(f"method={name} needs the {error.name} package: pip install 'anchormoe[baselines]'") from None
    try:
        return method_class(**parameters)
    except TypeError as error:
        raise UserError(f"method.params must be parameters of {class_name}, received {parameters}: {error}") from None
