"""The plain stack of good libraries with a t-distribution, which any new method should beat."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from anchormoe.methods.base import Standardiser, standardiser
from anchormoe.methods.catboost import fit_catboost
from anchormoe.methods.fold_stack import Fitter, FoldStack, Part, Predict
from anchormoe.methods.lightgbm import TUNED, fit_lightgbm
from anchormoe.methods.realmlp import fit_realmlp

PROCESS_ROWS = 1500  # the cost of a Gaussian process is cubic in its rows
SEARCH_ROWS = 500


class StackT(FoldStack):
    """CatBoost, LightGBM, RealMLP-TD and a Gaussian process with non-negative weights from out-of-fold predictions."""

    slow = frozenset({"realmlp"})

    def __init__(
        self, *, rounds: int = 5000, epochs: int = 256, folds_up_to: int = 2000, random_state: int = 0
    ) -> None:
        super().__init__(folds_up_to=folds_up_to, random_state=random_state)
        self.rounds, self.epochs = rounds, epochs

    def _members(self) -> dict[str, Sequence[Fitter]]:
        return {
            "catboost": [functools.partial(fit_catboost, rounds=self.rounds, depth=6, learning_rate=0.03)],
            "lightgbm": [functools.partial(fit_lightgbm, rounds=self.rounds, settings=TUNED)],
            "realmlp": [functools.partial(fit_realmlp, epochs=self.epochs)],
            "gaussian_process": [fit_gaussian_process],
        }


def fit_gaussian_process(part: Part) -> Predict:
    """Fit scikit-learn's process to standardised features and return its means as a function of rows.

    The kernel's parameters are searched on at most `SEARCH_ROWS` rows, and the process has at most `PROCESS_ROWS`.
    """
    to_columns = standardiser(part.X)
    order = np.random.default_rng(part.seed).permutation(len(part.y))
    num_columns = part.X.shape[1]
    kernel = ConstantKernel(1.0, (1e-3, 1e4)) * Matern(np.full(num_columns, num_columns**0.5), (1e-2, 1e4), nu=2.5)
    kernel += WhiteKernel(0.1, (1e-6, 10.0))
    X, y = to_columns(part.X), part.y
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a length-scale at its bound: the column does not matter
        search = GaussianProcessRegressor(kernel, n_restarts_optimizer=0, random_state=part.seed)
        search.fit(X[order[:SEARCH_ROWS]], y[order[:SEARCH_ROWS]])
    rows = order[:PROCESS_ROWS]
    process = GaussianProcessRegressor(search.kernel_, optimizer=None).fit(X[rows], y[rows])
    return ProcessMean(process, to_columns)


@dataclass(frozen=True)
class ProcessMean:
    """The means of a Gaussian process of standardised features."""

    process: GaussianProcessRegressor
    to_columns: Standardiser

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return self.process.predict(self.to_columns(X))
