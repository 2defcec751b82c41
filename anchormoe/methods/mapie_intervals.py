"""Intervals of MAPIE around the means of the cross-fitted recipe: an independent reference of its own intervals."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from mapie.regression import CrossConformalRegressor, SplitConformalRegressor
from scipy.special import ndtr, ndtri
from scipy.stats import norm
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.model_selection import PredefinedSplit

from anchormoe.distributions.intervals import LEVELS
from anchormoe.distributions.recalibrated import NumericalDistribution
from anchormoe.methods.base import hold_out
from anchormoe.model.crossfit import CrossfitAnchorMoE, FittedCrossfit
from anchormoe.model.settings import Calibration
from anchormoe.model.training_rows import folds_of


class MapieIntervals:
    """MAPIE's intervals of absolute residuals, at the levels of distributions/intervals.py.

    `cross` is CV+ on the folds and members of the recipe; `split` fits the recipe to 80% of the rows and takes the
    residuals of the others. Their rows tell coverage, width and interval score; between the levels the distribution is
    filled in, so NLL and CRPS say nothing.
    """

    def __init__(self, *, kind: str, random_state: int, **settings: Any) -> None:
        self.kind, self.random_state = kind, random_state
        self.recipe = CrossfitAnchorMoE(calibration=Calibration.none, random_state=random_state, **settings)
        self.diagnostics_: dict[str, Any] = {}

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        """Fit to rows X (N, I) and targets y (N,)."""
        fit_rows, held_out = hold_out(len(y), self.random_state) if self.kind == "split" else (np.arange(len(y)),) * 2
        fitted = self.recipe.fit(X[fit_rows], y[fit_rows]).fitted_
        numbered = np.column_stack([X, np.arange(len(y))])
        self.num_rows = len(held_out)
        if self.kind == "split":
            means = _Means(_Uncopied(fitted, [])).fit(numbered[fit_rows], y[fit_rows])
            split = SplitConformalRegressor(means, self._levels(), prefit=True)
            self.mapie: Any = split.conformalize(numbered[held_out], y[held_out])
            return self
        folds = folds_of(len(y), len(fitted.members), seed=self.random_state)
        fold_of_row = np.empty(len(y), dtype=int)
        for number, fold in enumerate(folds):
            fold_of_row[fold] = number
        means = _Means(_Uncopied(fitted, folds))
        cross = CrossConformalRegressor(means, self._levels(), method="plus", cv=PredefinedSplit(fold_of_row))
        self.mapie = cross.fit_conformalize(numbered, y)
        return self

    def _levels(self) -> list[float]:
        return [level for level in LEVELS if (1 - level) * (self.num_rows + 1) >= 1]

    def predict_dist(self, X: np.ndarray) -> TabulatedDistribution:
        """Predict the ends of the intervals as quantiles."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # MAPIE's advice on other aggregations
            mean, ends = self.mapie.predict_interval(np.column_stack([X, np.full(len(X), -1)]))
        levels = np.array(self._levels())
        order = np.argsort(np.concatenate([(1 - levels) / 2, (1 + levels) / 2]))
        quantiles = np.sort(np.concatenate([ends[:, 0], ends[:, 1]], axis=1)[:, order], axis=1)
        at = np.concatenate([(1 - levels) / 2, (1 + levels) / 2])[order]
        return TabulatedDistribution(at, quantiles, np.asarray(mean))


class _Uncopied:
    """A fitted recipe and its folds, which copies of an estimator share."""

    def __init__(self, fitted: FittedCrossfit, folds: list[np.ndarray]) -> None:
        self.fitted, self.folds = fitted, folds

    def __deepcopy__(self, memo: object) -> _Uncopied:
        return self


class _Means(RegressorMixin, BaseEstimator):
    """The recipe's means under MAPIE's contract: fitted to all rows but a fold, it is the member without that fold.

    The last column of X is the number of the row, which is how it knows the fold.
    """

    def __init__(self, recipe: _Uncopied) -> None:
        self.recipe = recipe
        self.member_: Any = None

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        rows = set(X[:, -1].astype(int).tolist())
        missing = [k for k, fold in enumerate(self.recipe.folds) if rows.isdisjoint(fold.tolist())]
        self.member_ = self.recipe.fitted.members[missing[0]] if missing else None
        self.n_features_in_ = X.shape[1]  # MAPIE warns of estimators that do not have it
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        features = X[:, :-1]
        fitted = self.recipe.fitted
        return fitted.predict_dist(features).mean if self.member_ is None else self.member_.predict(features).mean

    def __sklearn_is_fitted__(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class TabulatedDistribution(NumericalDistribution):
    """Quantiles (N, Q) at some levels (Q), linear in a normal's quantile between them and beyond."""

    levels: np.ndarray
    quantiles: np.ndarray
    reported_mean: np.ndarray | None = None
    center: float = 0.0
    scale: float = 1.0
    mean_before_calibration: np.ndarray | None = None

    @property
    def num_rows(self) -> int:
        return len(self.quantiles)

    def quantile(self, level: Any) -> np.ndarray:
        """Return quantiles at levels within the table; others are refused."""
        levels = np.atleast_1d(np.asarray(level, dtype=np.float64))
        if levels.min(initial=1.0) < self.levels[0] - 1e-9 or levels.max(initial=0.0) > self.levels[-1] + 1e-9:
            raise ValueError(f"level must be from {self.levels[0]} to {self.levels[-1]}, received {level}")
        return super().quantile(level)

    def _piece(self, values: np.ndarray, among: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the normal's quantile and the value at the left end of the piece of each row, and the slope."""
        piece = (values[:, None] >= among[:, 1:-1]).sum(1)
        rows, normal = np.arange(self.num_rows), ndtri(self.levels)
        left, right = self.quantiles[rows, piece], self.quantiles[rows, piece + 1]
        slope = np.maximum(right - left, 1e-12) / (normal[piece + 1] - normal[piece])
        return normal[piece], left, slope

    def _quantile(self, level: np.ndarray) -> np.ndarray:
        wanted = ndtri(level)
        normal, left, slope = self._piece(wanted, np.broadcast_to(ndtri(self.levels), self.quantiles.shape))
        return left + slope * (wanted - normal)

    def _cdf(self, z: np.ndarray) -> np.ndarray:
        normal, left, slope = self._piece(z, self.quantiles)
        return ndtr(normal + (z - left) / slope)

    def _log_prob(self, z: np.ndarray) -> np.ndarray:
        normal, left, slope = self._piece(z, self.quantiles)
        return norm.logpdf(normal + (z - left) / slope) - np.log(slope)
