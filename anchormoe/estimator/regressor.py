"""AnchorMoERegressor: Anchor-MoE as a scikit-learn regressor that predicts whole distributions.

This is the face of both recipes. The harness runs `method=anchormoe_crossfit` through this class: what is benchmarked
is what is used.
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

from anchormoe.data.columns import Columns
from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.errors import UserError
from anchormoe.estimator.progress import fit_progress
from anchormoe.estimator.recipes import make_recipe, num_pieces, num_threads
from anchormoe.model.parallel import Workers
from anchormoe.model.settings import ModelSettings, TrainingSettings
from anchormoe.model.training_rows import TrainingRows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.console import Console

LEAST_ROWS = 5


class AnchorMoERegressor(RegressorMixin, BaseEstimator):
    """A probabilistic regressor of tables: each row gets a mixture of Gaussians around an anchor's mean.

    Parameters
    ----------
    recipe : {"crossfit", "paper"}
        `crossfit` stacks several anchors out of fold and trains a network per fold; `paper` is the recipe of the paper,
        one boosted anchor and one network. Parameters that are None take the recipe's preset.
    anchor : "auto", str, regressor or None
        The point regressor whose mean the experts correct: a name of conf/anchor (such as "stack", "xgboost", "trees",
        "kernel", "ridge"), any scikit-learn regressor, or None for experts without an anchor.
    num_experts, top_k, hidden_dim, num_components : int or None
        Sizes of the network: experts, experts that a row uses, hidden units, Gaussians of an expert.
    folds : int or None
        Number of folds of the crossfit recipe.
    loss : {"nll", "crps"}
        The score that training minimises.
    calibration : {"auto", "none", "linear", "weighted"}
        The map of the predicted means, fitted on rows that were held out.
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
    columns_ : Columns
        The kinds of the columns and the levels of the categorical ones.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : array of str
        Names of the columns, if they are texts.
    """

    def __init__(
        self,
        recipe: str = "crossfit",
        *,
        anchor: Any = "auto",
        num_experts: int | None = None,
        top_k: int | None = None,
        hidden_dim: int | None = None,
        num_components: int | None = None,
        folds: int | None = None,
        loss: str = "nll",
        calibration: str = "auto",
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
        self.categorical_features = categorical_features
        self.network = network
        self.training = training
        self.recipe_parameters = recipe_parameters
        self.n_jobs = n_jobs
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to a table X (N, I), targets y (N,) and, if given, weights of the rows (N,)."""
        table, target, weight = self._validated(X, y, sample_weight)
        columns = Columns.learn(table, self.categorical_features)
        rows = _weighted_rows(columns.matrix(table), target, weight, columns.categorical)
        try:
            regressor = make_recipe(self, len(rows))
            total = num_pieces(regressor, len(rows))
            with threadpool_limits(1), fit_progress(total, shown=bool(self.verbose)) as on_finished:
                regressor.fit_rows(rows, Workers(num_threads(self.n_jobs), on_finished))
        except UserError as error:  # a setting of a wrong value
            raise ValueError(str(error)) from None
        self.columns_ = columns
        self.fitted_ = regressor.fitted_
        self.diagnostics_ = regressor.diagnostics_
        return self

    def predict_dist(self, X: Any) -> GaussianMixture:
        """Predict the distribution of each row, in the target's units.

        It has `mean`, `std`, `log_prob`, `cdf`, `quantile`, `interval`, `crps`, `prob` and `sample`.
        """
        check_is_fitted(self, "fitted_")
        matrix = self.columns_.matrix(self._validated_features(X, reset=False))
        with threadpool_limits(1):
            return self.fitted_.predict_dist(matrix, Workers(num_threads(self.n_jobs)))

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict the mean of each row (N,), with `return_std` also its standard deviation (N,)."""
        predicted = self.predict_dist(X)
        return (predicted.mean, predicted.std) if return_std else predicted.mean

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Predict the central interval that holds the target with probability `coverage`: (N, 2), low and high."""
        return self.predict_dist(X).interval(coverage)

    def predict_quantiles(self, X: Any, quantiles: Sequence[float] = (0.05, 0.5, 0.95)) -> np.ndarray:
        """Predict quantiles at the given levels: (N, Q)."""
        return self.predict_dist(X).quantile(list(quantiles))

    def summary(self, console: Console | None = None) -> None:
        """Print what was fitted, and how good it was on rows that were held out: an honest estimate for new rows."""
        from anchormoe.estimator.summary import print_summary

        check_is_fitted(self, "fitted_")
        print_summary(self, console)

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
        return tags

    def _validated(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, np.ndarray, np.ndarray | None]:
        if y is None:
            raise ValueError(f"This {type(self).__name__} estimator requires y to be passed, but the target y is None.")
        table = self._validated_features(X, reset=True)
        target = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y", estimator=self)
        target = column_or_1d(target, warn=True)
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

    def _to_plot(self, X: Any, y: Any) -> tuple[GaussianMixture, np.ndarray]:
        check_is_fitted(self, "fitted_")
        if X is None and y is None:
            return self.fitted_.held_out.densities, self.fitted_.held_out.y
        if X is None or y is None:
            raise ValueError("X and y must be given together, or neither for the held-out training rows")
        predicted = self.predict_dist(X)
        target = column_or_1d(check_array(y, ensure_2d=False, dtype=np.float64, input_name="y"))
        check_consistent_length(predicted.mean, target)
        return predicted, target


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
