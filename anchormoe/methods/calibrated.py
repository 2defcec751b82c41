"""Calibrated: any regressor with its distributions recalibrated on rows that it has not seen."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from anchormoe import methods
from anchormoe.distributions.base import Distribution
from anchormoe.distributions.foreign import as_distribution, distribution_predictor
from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.distributions.recalibrated import MedianDistribution
from anchormoe.errors import UserError
from anchormoe.model.calibration import fit_pit_map
from anchormoe.model.conformal import fit_conformal_map
from anchormoe.model.crossfit import TargetStatistics, with_outlier_component
from anchormoe.model.kernels.clock import clock
from anchormoe.model.training_rows import folds_of, rows_outside

CALIBRATIONS = ("pit", "conformal")


class Calibrated(RegressorMixin, BaseEstimator):
    """A regressor whose predicted distributions are recalibrated by cross-validation.

    The regressor is fitted once without each fold, and the targets of the fold show where they lie in its predictions.

    `conformal` keeps the fitted regressors. Each with its own fold is a split-conformal predictor: its central interval
    of coverage c holds a new row with probability at least c, whatever the regressor and the distribution of the rows,
    if the rows are exchangeable. What is predicted is, at every level, the median of their quantiles, whose intervals
    hold a new row with probability at least 1 - 2 (1 - c), and in practice with about c or a little more.

    `pit` fits a smooth map to all folds together, and applies it to the regressor fitted to all rows.

    Parameters
    ----------
    regressor : object
        Any regressor with `fit(X, y)` and `predict_dist`, `pred_dist`, `predict_proba` or `predict`. Around the points
        of one that predicts nothing else lies a normal distribution, which the map replaces by that of its errors.
    calibration : {"conformal", "pit"}
    folds : int or splitter
        Number of folds, odd for `conformal`, or a splitter of scikit-learn, such as GroupKFold.
    random_state : int
        The seed of the folds.

    Attributes
    ----------
    models_ : list
        The fitted regressors that predict: one per fold, or the one fitted to all rows.
    diagnostics_ : dict

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import LinearRegression
    >>> from anchormoe import Calibrated
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = Calibrated(LinearRegression(), "conformal").fit(X[:400], y[:400])
    >>> model.predict_interval(X[400:], coverage=0.9).shape
    (42, 2)
    """

    def __init__(
        self, regressor: Any, calibration: str = "conformal", *, folds: Any = 5, random_state: int = 0
    ) -> None:
        self.regressor = regressor
        self.calibration = calibration
        self.folds = folds
        self.random_state = random_state

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Fit to a table X (N, I) and targets y (N,); `groups` are passed to a splitter."""
        if self.calibration not in CALIBRATIONS:
            raise ValueError(f"calibration must be one of {', '.join(CALIBRATIONS)}, received {self.calibration!r}")
        start, self._seconds_saved = clock(), 0.0
        X, y = self._validated(X, reset=True), self._target(y)
        check_consistent_length(X, y)
        folds = self._folds(X, y, groups)
        if self.calibration == "conformal" and len(folds) % 2 == 0:
            raise ValueError(
                f"folds must be odd for calibration='conformal', which takes medians, received {len(folds)}"
            )
        parts = [self._fitted(X, y, kept) for kept, _ in folds]
        pits = [part.dist(_safe_indexing(X, out)).cdf(y[out]) for part, (_, out) in zip(parts, folds, strict=True)]
        if self.calibration == "conformal":
            self.parts_, self.maps_ = parts, [fit_conformal_map(pit) for pit in pits]
        else:
            self.parts_, self.maps_ = [self._fitted(X, y, np.arange(len(y)))], [fit_pit_map(np.concatenate(pits))]
        self.models_ = [part.model for part in self.parts_]
        self.diagnostics_: dict[str, Any] = {
            "calibration_knots": len(self.maps_[0].map.knots),
            "fit_seconds": clock() - start + self._seconds_saved,
        }
        return self

    def predict_dist(self, X: Any) -> Distribution:
        """Predict the distribution of each row, in the target's units."""
        check_is_fitted(self, "maps_")
        X = self._validated(X, reset=False)
        recalibrated = [fit(part.dist(X)) for fit, part in zip(self.maps_, self.parts_, strict=True)]
        if len(recalibrated) == 1:
            return recalibrated[0]
        guaranteed = min(part.guaranteed_rows or 0 for part in recalibrated)
        first = recalibrated[0]
        return MedianDistribution(tuple(recalibrated), guaranteed, first.center, first.scale)

    def predict(self, X: Any) -> np.ndarray:
        """Predict the mean of each row (N,)."""
        return self.predict_dist(X).mean

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Predict the central interval that holds the target with probability `coverage`: (N, 2), low and high."""
        return self.predict_dist(X).interval(coverage)

    def predict_quantiles(self, X: Any, quantiles: Sequence[float] = (0.05, 0.5, 0.95)) -> np.ndarray:
        """Predict quantiles at the given levels: (N, Q)."""
        return self.predict_dist(X).quantile(list(quantiles))

    def _validated(self, X: Any, *, reset: bool) -> Any:
        """Check shape and names of the columns; their values are the regressor's concern."""
        if isinstance(X, pd.DataFrame):
            validate_data(self, X, reset=reset, skip_check_array=True)
            return X
        least = 2 * self.folds if reset and isinstance(self.folds, int) else 1
        return validate_data(self, X, reset=reset, dtype=None, ensure_all_finite=False, ensure_min_samples=least)

    def _target(self, y: Any) -> np.ndarray:
        if y is None:
            raise ValueError(f"This {type(self).__name__} estimator requires y to be passed, but the target y is None.")
        return column_or_1d(check_array(y, ensure_2d=False, dtype=np.float64, input_name="y"), warn=True)

    def _folds(self, X: Any, y: np.ndarray, groups: Any) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the rows to fit to and the rows held out, of every fold."""
        if hasattr(self.folds, "split"):
            return list(self.folds.split(X, y, groups))
        if not isinstance(self.folds, int) or not 2 <= self.folds <= len(y) // 2:
            raise ValueError(f"folds must be a splitter or from 2 to {len(y) // 2}, received {self.folds!r}")
        return [(rows_outside(out, len(y)), out) for out in folds_of(len(y), self.folds, seed=self.random_state)]

    def _fitted(self, X: Any, y: np.ndarray, rows: np.ndarray) -> _Part:
        regressor = self.regressor
        new = clone(regressor) if hasattr(regressor, "get_params") else copy.deepcopy(regressor)
        start = clock()
        fitted = new.fit(_safe_indexing(X, rows), y[rows])
        seconds = clock() - start
        # A regressor whose parts were fitted before, in the same run, says how long they took.
        self._seconds_saved += getattr(fitted, "diagnostics_", {}).get("fit_seconds", seconds) - seconds
        return _Part(fitted, TargetStatistics.of(y[rows]))


class _Part:
    """A fitted regressor, and the statistics of the targets it was fitted to."""

    def __init__(self, model: Any, target: TargetStatistics) -> None:
        self.model, self.target = model, target

    def dist(self, X: Any) -> Distribution:
        """Predict distributions that the map can widen as far as it must: a normal's tail underflows to 0."""
        predict = distribution_predictor(self.model)
        if predict is None:
            mean = np.asarray(self.model.predict(X), dtype=np.float64).reshape(-1)
            return GaussianMixture.normal(mean, self.target.std or 1e-8)
        predicted = as_distribution(predict(X), np.shape(X)[0])
        if not isinstance(predicted, GaussianMixture):
            return predicted
        mixture = predicted.float64().affine(scale=predicted.scale, shift=predicted.center)
        return with_outlier_component(mixture, self.target).in_units(0.0, 1.0)


def calibrated_method(*, method: str, arguments: dict[str, Any], calibration: str, random_state: int) -> Calibrated:
    """Make the calibrated form of a method of the registry."""
    if calibration not in CALIBRATIONS:
        raise UserError(f"method.calibration must be none, pit or conformal, received {calibration}")
    return Calibrated(methods.make(method, arguments), calibration, random_state=random_state)
