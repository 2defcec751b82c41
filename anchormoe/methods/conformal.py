"""Conformal prediction by the MAPIE library: intervals at many levels, read as quantiles."""

from __future__ import annotations

import contextlib
import logging
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from catboost import CatBoostRegressor
from lightgbm import LGBMRegressor
from mapie.regression import ConformalizedQuantileRegressor, CrossConformalRegressor
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.model_selection import KFold

from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.methods.base import StandardisedRegressor, hold_out
from anchormoe.methods.fold_stack import Part
from anchormoe.methods.lightgbm import SHALLOW, boosted
from anchormoe.methods.quantile_folds import LEVELS, NUM_LEVELS, equal_levels
from anchormoe.methods.smoothing import best_bandwidth, smoothed


def coverages(levels: np.ndarray) -> list[float]:
    """Return the central intervals that end at the levels, such as 95% from 0.025 to 0.975, the widest first."""
    return [round(1 - 2 * float(level), 6) for level in levels[: len(levels) // 2]]


class _Intervals(StandardisedRegressor):
    """A method whose conformal intervals are read as quantiles; a density comes from smoothing them."""

    @abstractmethod
    def _quantiles(self, X: np.ndarray) -> np.ndarray:
        """Return the quantiles of all levels (N, 20)."""

    def _choose_bandwidth(self, X: np.ndarray, y: np.ndarray) -> None:
        self.bandwidth = best_bandwidth(self._quantiles(X), y)
        self.diagnostics_ |= {"density": "smoothed quantiles", "bandwidth": self.bandwidth}

    def _predict(self, X: np.ndarray) -> GaussianMixture:
        return smoothed(self._quantiles(X), self.bandwidth)


class CrossConformal(_Intervals):
    """Cross-conformal intervals (the CV+ method) around the point model with the lowest held-out error."""

    def __init__(self, *, rounds: int = 1500, num_trees: int = 300, random_state: int = 0) -> None:
        super().__init__(random_state=random_state)
        self.rounds, self.num_trees = rounds, num_trees

    def _point_models(self, seed: int) -> dict[str, Any]:
        quiet = {"thread_count": 1, "verbose": False, "allow_writing_files": False}
        return {
            "catboost": CatBoostRegressor(
                iterations=self.rounds, learning_rate=0.05, depth=6, random_seed=seed, **quiet
            ),
            "lightgbm": LGBMRegressor(
                n_estimators=self.rounds, learning_rate=0.03, num_leaves=16, random_state=seed, n_jobs=1, verbose=-1
            ),
            "extra_trees": ExtraTreesRegressor(self.num_trees, random_state=seed, n_jobs=1),
        }

    def _fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> None:
        train, validation = hold_out(len(y), seed)
        models = self._point_models(seed)
        errors = {}
        for name, model in models.items():
            predicted = _predicted(clone(model).fit(X[train], y[train]), X[validation])
            errors[name] = float(np.mean((predicted - y[validation]) ** 2))
        chosen = min(errors, key=errors.__getitem__)
        self.diagnostics_["point_model"] = chosen
        with _quiet():
            # The bandwidth is chosen on rows that these intervals have not seen, the intervals then made from all rows.
            self.conformal = self._conformal(models[chosen], seed).fit_conformalize(X[train], y[train])
            self._choose_bandwidth(X[validation], y[validation])
            self.conformal = self._conformal(models[chosen], seed).fit_conformalize(X, y)

    def _conformal(self, model: Any, seed: int) -> CrossConformalRegressor:
        folds = KFold(5, shuffle=True, random_state=seed)
        return CrossConformalRegressor(clone(model), confidence_level=coverages(LEVELS), method="plus", cv=folds)

    def _quantiles(self, X: np.ndarray) -> np.ndarray:
        with _quiet():
            _, intervals = self.conformal.predict_interval(X)  # (N, 2, number of coverages)
        return np.sort(np.concatenate([intervals[:, 0], intervals[:, 1]], axis=1), axis=1)


class ConformalQuantiles(_Intervals):
    """Conformalised quantile regression (Romano et al., 2019): LightGBM's quantiles, widened or narrowed to cover.

    Held-out rows conform the intervals and choose the bandwidth of the smoothed density. More than two of them are
    needed for each level, so there are fewer levels where there are few rows.
    """

    def __init__(self, *, rounds: int = 2000, random_state: int = 0) -> None:
        super().__init__(random_state=random_state)
        self.rounds = rounds

    def _fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> None:
        train, held_out = hold_out(len(y), seed, fraction=0.3)
        part = Part(X[train], y[train], X[held_out], y[held_out], seed)
        levels = equal_levels(2 * min(NUM_LEVELS // 2, (len(held_out) - 1) // 4))
        models = [
            _Fitted(
                boosted(part, {**SHALLOW, "objective": "quantile", "alpha": level}, rounds=self.rounds, patience=50)
            )
            for level in [*levels, 0.5]
        ]
        self.conformal = []
        for number, coverage in enumerate(coverages(levels)):
            estimators = [models[number], models[len(levels) - 1 - number], models[-1]]
            regressor = ConformalizedQuantileRegressor(estimators, confidence_level=coverage, prefit=True)
            with _quiet():
                self.conformal.append(regressor.conformalize(X[held_out], y[held_out]))
        self._choose_bandwidth(X[held_out], y[held_out])

    def _quantiles(self, X: np.ndarray) -> np.ndarray:
        with _quiet():
            intervals = [regressor.predict_interval(X)[1][:, :, 0] for regressor in self.conformal]
        return np.sort(np.concatenate(intervals, axis=1), axis=1)


class _Fitted:
    """A fitted model as MAPIE wants it: an estimator of scikit-learn with `predict`."""

    def __init__(self, predict: Any) -> None:
        self.predict = predict
        self.fitted_ = True

    def fit(self, X: np.ndarray, y: np.ndarray) -> _Fitted:
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True


def _predicted(model: Any, X: np.ndarray) -> np.ndarray:
    with _quiet():
        return np.asarray(model.predict(X))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence notes about feature names and the number of calibration rows, and log lines about crossing quantiles."""
    before = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
