"""AnchorMoERegressor: Anchor-MoE as a scikit-learn regressor that predicts whole distributions.

This is the face of all recipes. The harness runs `method=anchormoe_fast` and its siblings through this class: what is
benchmarked is what is used.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)
from threadpoolctl import threadpool_limits

from anchormoe.data.columns import LARGEST, Columns
from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.distributions.recalibrated import Recalibrated
from anchormoe.errors import UserError
from anchormoe.estimator.progress import fit_progress
from anchormoe.estimator.recipes import make_recipe, num_pieces, num_threads
from anchormoe.model.encoding import Takes
from anchormoe.model.joint import FittedJoint
from anchormoe.model.parallel import Workers
from anchormoe.model.settings import ModelSettings, TrainingSettings
from anchormoe.model.training_rows import LEAST_ROWS, TrainingRows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.console import Console


class AnchorMoERegressor(RegressorMixin, BaseEstimator):
    """A probabilistic regressor of tables: each row gets a mixture of Gaussians around an anchor's mean.

    Targets y of several columns (N, T) are predicted together, by mixtures of multivariate Gaussians around a vector of
    anchors (docs/several-targets.md).

    Parameters
    ----------
    recipe : {"fast", "best", "crossfit", "paper"}
        The first three stack several anchors out of fold and train a network per fold. `crossfit` is the model of the
        paper with four experts and a router; `fast` has one expert and fewer anchors; `best` has one expert, more
        anchors than `crossfit` and more folds. `paper` is the recipe of the paper, one boosted anchor and one network.
        Parameters that are None take the recipe's preset.
    anchor : "auto", str, regressor or None
        The point regressor whose mean the experts correct: a name of conf/anchor (such as "stack", "xgboost", "trees",
        "kernel", "ridge"), any scikit-learn regressor, or None for experts without an anchor.
    num_experts, top_k, hidden_dim, num_components : int or None
        Sizes of the network: experts, experts that a row uses, hidden units, Gaussians of an expert.
    folds : int or None
        Number of folds of all recipes but `paper`.
    loss : {"nll", "crps"}
        The score that training minimises.
    calibration : {"auto", "none", "linear", "weighted", "pit", "conformal"}
        What is fitted on rows that were held out: `linear` and `weighted` map the predicted means; `pit` and
        `conformal` map the whole distribution function, the first to be smooth, the second so that its intervals cover
        what they promise (docs/calibration.md). With several targets the last two are refused. `auto` is `pit` for the
        recipe `best` (with several targets `weighted`), `linear` for `paper`, and `weighted` for the others.
    covariance : {"full", "low_rank", "diagonal"}
        The covariance of a Gaussian where there are several targets: any; a diagonal one plus one of rank `rank`, a
        setting of `network`; or a diagonal one, whose targets depend on each other only through means and weights.
        With one target it changes nothing.
    categorical_features : "auto", None, or list of names, positions or truth values
        `auto` takes the columns of text and categories of a DataFrame.
    network, training : dict or None
        Further settings by name, those of ModelSettings and TrainingSettings in anchormoe/model/settings.py.
    recipe_parameters : dict or None
        Further arguments of the recipe's class, CrossfitAnchorMoE or PaperAnchorMoE.
    n_jobs : int or None
        Folds that are fitted, and blocks of rows that are predicted, at a time, in threads; -1 means one per core. The
        result does not depend on it.
    device : str
        "auto" trains on a GPU if there is one; else torch's name of a device.
    verbose : bool
        Show a progress bar with the remaining time.
    random_state : int, RandomState or None
        The seed of folds, initial weights and anchors.

    Attributes
    ----------
    fitted_ : object
        The fitted members, the calibration and the held-out densities.
    diagnostics_ : dict
        The selected epoch and the calibration.
    fit_seconds_ : float
        Seconds of the fit. It is not saved: the same model gives the same file.
    columns_ : Columns
        The kinds of the columns and the levels of the categorical ones.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : array of str
        Names of the columns, if they are texts.
    """

    takes = Takes.categories

    def __init__(
        self,
        recipe: str = "fast",
        *,
        anchor: Any = "auto",
        num_experts: int | None = None,
        top_k: int | None = None,
        hidden_dim: int | None = None,
        num_components: int | None = None,
        folds: int | None = None,
        loss: str = "nll",
        calibration: str = "auto",
        covariance: str = "full",
        categorical_features: Any = "auto",
        network: Mapping[str, Any] | ModelSettings | None = None,
        training: Mapping[str, Any] | TrainingSettings | None = None,
        recipe_parameters: Mapping[str, Any] | None = None,
        n_jobs: int | None = None,
        device: str = "auto",
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.recipe = recipe
        self.anchor = anchor
        self.num_experts = num_experts
        self.top_k = top_k
        self.hidden_dim = hidden_dim
        self.num_components = num_components
        self.folds = folds
        self.loss = loss
        self.calibration = calibration
        self.covariance = covariance
        self.categorical_features = categorical_features
        self.network = network
        self.training = training
        self.recipe_parameters = recipe_parameters
        self.n_jobs = n_jobs
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to a table X (N, I), targets y (N,) or (N, T) and, if given, weights of the rows (N,).

        The names of several targets are those of the columns of a DataFrame y.
        """
        table, target, weight = self._validated(X, y, sample_weight)
        columns = Columns.learn(table, self.categorical_features)
        rows = _weighted_rows(columns.matrix(table), target, weight, columns.categorical)
        try:
            regressor = make_recipe(self, len(rows), None if target.ndim == 1 else _names(y))
            total = num_pieces(regressor, rows)
            with threadpool_limits(1), fit_progress(total, shown=bool(self.verbose)) as on_finished:
                regressor.fit_rows(rows, Workers(num_threads(self.n_jobs), on_finished))
        except UserError as error:  # a setting of a wrong value
            raise ValueError(str(error)) from None
        self.columns_ = columns
        self.fitted_ = regressor.fitted_
        self.diagnostics_ = dict(regressor.diagnostics_)
        self.fit_seconds_ = self.diagnostics_.pop("fit_seconds")
        return self

    def predict_dist(self, X: Any) -> Any:
        """Predict the distribution of each row, in the target's units.

        It has `mean`, `std`, `log_prob`, `cdf`, `quantile`, `interval`, `crps`, `prob` and `sample`. Of several targets
        it is a JointMixture, which has `covariance`, `marginal` and `condition` as well.
        """
        check_is_fitted(self, "fitted_")
        matrix = self.columns_.matrix(self._validated_features(X, reset=False))
        with threadpool_limits(1):
            return self.fitted_.predict_dist(matrix, Workers(num_threads(self.n_jobs)))

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict the mean of each row, with `return_std` also its standard deviation: (N,), or (N, T)."""
        predicted = self.predict_dist(X)
        return (predicted.mean, predicted.std) if return_std else predicted.mean

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Predict the central interval that holds the target with probability `coverage`: (N, 2), low and high.

        Of several targets each has its own: (N, T, 2).
        """
        return self.predict_dist(X).interval(coverage)

    def predict_quantiles(self, X: Any, quantiles: Sequence[float] = (0.05, 0.5, 0.95)) -> np.ndarray:
        """Predict quantiles at the given levels: (N, Q), or (N, T, Q)."""
        if not np.iterable(quantiles):
            raise ValueError(f"quantiles must be a list of levels between 0 and 1, received {quantiles!r}")
        return self.predict_dist(X).quantile(list(quantiles))

    def unlikeness(self, X: Any) -> np.ndarray:
        """Return how unlike the training rows each row is, from 0 to 1 (N,).

        It is the share of training rows that are closer to each other, in the networks' latent spaces, than the row is
        to them. About one row in a hundred of those like the training rows lies above 0.99.
        """
        check_is_fitted(self, "fitted_")
        if self.fitted_.latent is None:
            raise ValueError(
                "unlikeness needs the places of training rows, which this saved file does not have: fit again"
            )
        matrix = self.columns_.matrix(self._validated_features(X, reset=False))
        return self.fitted_.latent.unlikeness(self.fitted_.networks, matrix)

    def summary(self, console: Console | None = None, X: Any = None) -> None:
        """Print what was fitted, and how good it was on rows that were held out: an honest estimate for new rows.

        With new rows X it also says how many of them are unlike all training rows, and warns if they are too many.
        """
        from anchormoe.estimator.summary import print_summary

        check_is_fitted(self, "fitted_")
        print_summary(self, console, X)

    def plot_reliability(self, X: Any = None, y: Any = None, ax: Axes | None = None) -> Axes:
        """Plot observed against nominal coverage, of held-out training rows or of the rows given."""
        from anchormoe.estimator import plots

        return plots.reliability(*self._to_plot(X, y), ax)

    def plot_pit(self, X: Any = None, y: Any = None, ax: Axes | None = None) -> Axes:
        """Plot the histogram of each target's place in its predicted distribution, which is flat if that is right."""
        from anchormoe.estimator import plots

        return plots.pit(*self._to_plot(X, y), ax)

    def plot_intervals(self, X: Any = None, y: Any = None, coverage: float = 0.9, ax: Axes | None = None) -> Axes:
        """Plot predicted intervals against the true targets."""
        from anchormoe.estimator import plots

        return plots.intervals(*self._to_plot(X, y), coverage, ax)

    def plot_router(self, X: Any, member: int = 0, ax: Axes | None = None) -> Axes:
        """Plot where rows lie in the latent plane of one network, with its windows and each row's first expert."""
        from anchormoe.estimator import plots

        check_is_fitted(self, "fitted_")
        matrix = self.columns_.matrix(self._validated_features(X, reset=False))
        return plots.router(self.fitted_, matrix, member, ax)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the fitted regressor to one file, without pickle."""
        from anchormoe.estimator.saving import save

        check_is_fitted(self, "fitted_")
        save(self, Path(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str], trusted: Sequence[str] = ()) -> AnchorMoERegressor:
        """Load a regressor that was saved.

        Nothing in the file is executed. An anchor of another library is loaded by skops; types that skops does not know
        are refused unless `trusted` names them.
        """
        from anchormoe.estimator.saving import load

        return load(Path(path), trusted)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.target_tags.multi_output = True
        return tags

    def _validated(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, np.ndarray, np.ndarray | None]:
        if y is None:
            raise ValueError(f"This {type(self).__name__} estimator requires y to be passed, but the target y is None.")
        table = self._validated_features(X, reset=True)
        if np.asarray(y).dtype.kind in "mM":
            raise ValueError("y must be numeric, received dates or durations: turn them into numbers, such as days")
        target = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y", estimator=self)
        if target.ndim == 1 or target.shape[1] == 1:
            target = column_or_1d(target, warn=True)
        if np.abs(target).max() > LARGEST:
            raise ValueError(f"y must have values up to {LARGEST:g} in size, received {np.abs(target).max():g}")
        check_consistent_length(table, target)
        if sample_weight is None:
            return table, target, None
        return table, target, _check_sample_weight(sample_weight, target, dtype=np.float64, ensure_non_negative=True)

    def _validated_features(self, X: Any, *, reset: bool) -> Any:
        """Check shape, names and number of the columns; their values are checked where they become numbers."""
        least = LEAST_ROWS if reset else 1
        if not isinstance(X, pd.DataFrame):
            checks = {"dtype": None, "ensure_all_finite": False, "ensure_min_samples": least}
            return validate_data(self, X, reset=reset, **checks)
        if len(X) < least or X.shape[1] == 0:
            check_array(np.zeros(X.shape), ensure_min_samples=least, estimator=self)  # the error users know
        validate_data(self, X, reset=reset, skip_check_array=True)
        return X

    def _to_plot(self, X: Any, y: Any) -> tuple[GaussianMixture | Recalibrated, np.ndarray]:
        check_is_fitted(self, "fitted_")
        if isinstance(self.fitted_, FittedJoint):
            raise ValueError(
                "plots of distributions need one target, received a fit of several: fit one, or use marginal(target)"
            )
        if X is None and y is None:
            return self.fitted_.held_out.densities, self.fitted_.held_out.y
        if X is None or y is None:
            raise ValueError("X and y must be given together, or neither for the held-out training rows")
        predicted = self.predict_dist(X)
        target = column_or_1d(check_array(y, ensure_2d=False, dtype=np.float64, input_name="y"))
        check_consistent_length(predicted.mean, target)
        return predicted, target


def _names(y: Any) -> tuple[str, ...]:
    """Return the names of several targets, which only a DataFrame has."""
    return tuple(map(str, y.columns)) if isinstance(y, pd.DataFrame) else ()


def _weighted_rows(
    matrix: np.ndarray, y: np.ndarray, weight: np.ndarray | None, categorical: tuple[int, ...]
) -> TrainingRows:
    """Return the rows that count, with weights of mean 1; equal weights are none."""
    if weight is None:
        return TrainingRows(matrix, y, None, categorical)
    counted = weight > 0
    if counted.sum() < LEAST_ROWS:
        raise ValueError(
            f"sample_weight must be positive for at least {LEAST_ROWS} rows, received {counted.sum()} positive weights"
        )
    weight = weight[counted] / weight[counted].mean()
    return TrainingRows(matrix[counted], y[counted], None if np.ptp(weight) == 0 else weight, categorical)
