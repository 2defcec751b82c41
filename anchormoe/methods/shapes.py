"""The shapes in which regressors of other libraries predict, each turned into a distribution per row.

A shape is recognised by the methods and parameters that a regressor has, before it is fitted. Only a plain `predict`
has to be called to know what it returns.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.stats

from anchormoe.distributions.base import Distribution
from anchormoe.distributions.empirical import LEVELS, NUM_POINTS, Empirical
from anchormoe.distributions.foreign import ForeignDistribution, as_distribution, distribution_predictor
from anchormoe.distributions.integral import require_density
from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.methods.base import SCALE_FLOOR

_CHECKED_ROWS = 5  # rows whose density is integrated
# Names that regressors give to the levels of their quantiles, the columns of what they predict.
_LEVEL_NAMES = ("quantiles", "quantile_levels", "quantile_alpha", "levels")
# The distributions that xgboost-distribution names, where scipy has them under another name; all have densities.
_SCIPY_NAMES = {"normal": "norm", "exponential": "expon", "log-normal": "lognorm", "laplace": "laplace"}


@dataclass(frozen=True)
class Shape:
    """One way to predict. `density` says what a density is made of that the regressor itself does not have."""

    name: str
    fits: Callable[[Any], bool]
    predict: Callable[[Any, np.ndarray, int], Distribution]  # a fitted regressor, rows, a seed
    density: str | None = None


def shape_of(regressor: Any) -> Shape | None:
    """Return the shape of an unfitted regressor's predictions; None if only its `predict` can tell."""
    last = _last_step(regressor)
    return next((shape for shape in SHAPES if shape.fits(last)), None)


def predict_shape(shape: Shape, regressor: Any, X: np.ndarray, seed: int) -> Distribution:
    """Predict distributions of rows; the steps of a pipeline before its last transform them."""
    return shape.predict(_last_step(regressor), _transformed(regressor, X), seed)


def points_or_distribution(regressor: Any, predicted: Any, num_rows: int) -> np.ndarray | tuple[Distribution, Shape]:
    """Turn what a plain `predict` returned into one number per row (N,), or into distributions and their shape."""
    if isinstance(predicted, tuple):
        return _parameters(_last_step(regressor), predicted, num_rows), _PARAMETERS
    values = _array("predict", predicted)
    levels = _levels_of(_last_step(regressor))
    if values.ndim == 2 and levels is not None and values.shape == (num_rows, len(levels)) and len(levels) > 1:
        return _quantiles(levels, values), _COLUMNS
    if values.shape not in ((num_rows,), (num_rows, 1)):
        raise ValueError(
            f"predict must return one number per row, ({num_rows},), received {values.shape}; columns of quantiles "
            "need their levels in an attribute quantiles, and several numbers per row a method of their own"
        )
    return _finite("predict", values.reshape(num_rows))


def _array(name: str, values: Any) -> np.ndarray:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError) as error:  # RuntimeError: a tensor that belongs to a graph
        kind = type(values).__name__
        raise ValueError(f"{name} must return numbers, received a value of type {kind}: {error}") from None


def _finite(name: str, values: np.ndarray) -> np.ndarray:
    rows = int((~np.isfinite(values)).reshape(len(values), -1).any(axis=1).sum())
    if rows:
        raise ValueError(f"{name} must return finite numbers, received nan or infinity in {rows} of {len(values)}")
    return values


def _require_shape(name: str, values: Any, shape: tuple[int, ...], what: str) -> np.ndarray:
    array = _array(name, values)
    if array.shape == (*shape, 1):  # one target, in a column
        array = array[..., 0]
    if array.shape != shape:
        raise ValueError(f"{name} must return {what}, {shape}, received {array.shape}")
    return _finite(name, array)


# --- distributions


def _predict_distribution(regressor: Any, X: np.ndarray, seed: int) -> Distribution:
    predict = distribution_predictor(regressor)
    assert predict is not None
    some = _distribution(predict(X[:_CHECKED_ROWS]), len(X[:_CHECKED_ROWS]))
    if not isinstance(some, Empirical):
        require_density(some)
    return _distribution(predict(X), len(X))


def _distribution(predicted: Any, num_rows: int) -> Distribution:
    distribution = as_distribution(predicted, num_rows)
    if distribution.num_rows != num_rows:
        raise ValueError(f"predictions must have one distribution per row, {num_rows}, found {distribution.num_rows}")
    if isinstance(distribution, ForeignDistribution) and not distribution.has_density:
        return Empirical(np.sort(_finite("the distribution", distribution.quantile(LEVELS)), axis=1))
    return distribution


# --- quantiles, draws, intervals


def _has_quantiles(regressor: Any) -> bool:
    return hasattr(regressor, "predict_quantiles") or "quantiles" in _parameters_of(regressor, "predict")


def _predict_quantiles(regressor: Any, X: np.ndarray, seed: int) -> Distribution:
    if hasattr(regressor, "predict_quantiles"):
        name, values = "predict_quantiles", regressor.predict_quantiles(X, LEVELS.tolist())
    else:
        name, values = "predict", regressor.predict(X, quantiles=LEVELS.tolist())
    return Empirical(np.sort(_require_shape(name, values, (len(X), NUM_POINTS), "one value per row and level"), axis=1))


def _predict_columns(regressor: Any, X: np.ndarray, seed: int) -> Distribution:
    levels = _levels_of(regressor)
    assert levels is not None
    return _quantiles(levels, _require_shape("predict", regressor.predict(X), (len(X), len(levels)), "its quantiles"))


def _quantiles(levels: Sequence[float], values: np.ndarray) -> Distribution:
    return Empirical.from_quantiles(levels, _finite("predict", values))


def _levels_of(regressor: Any) -> list[float] | None:
    """Return the levels of the quantiles that a regressor says it predicts, by an attribute or a parameter."""
    said = regressor.get_params(deep=False) if hasattr(regressor, "get_params") else {}
    for name in _LEVEL_NAMES:
        levels = getattr(regressor, name, said.get(name))
        if isinstance(levels, list | tuple | np.ndarray) and len(levels) and all(0 < level < 1 for level in levels):
            return [float(level) for level in levels]
    return None


def _has_sample(regressor: Any) -> bool:
    return len(_parameters_of(regressor, "sample")) >= 2


def _predict_draws(regressor: Any, X: np.ndarray, seed: int) -> Distribution:
    seeds = [name for name in ("seed", "random_state") if name in _parameters_of(regressor, "sample")]
    draws = regressor.sample(X, NUM_POINTS, **dict.fromkeys(seeds[:1], seed))
    return Empirical.from_draws(_require_shape("sample", draws, (NUM_POINTS, len(X)), "draws by row"))


def is_conformal(regressor: Any) -> bool:
    """Tell whether a regressor has MAPIE's interface: intervals that are fitted to rows of their own."""
    return hasattr(regressor, "predict_interval") and any(
        hasattr(regressor, name) for name in ("conformalize", "fit_conformalize")
    )


def conformal_parameters(accepted: dict[str, inspect.Parameter], num_rows: int) -> dict[str, Any]:
    """Return the arguments of a conformal regressor that the user left open.

    It is to be fitted here, and asked for as many intervals as its `num_rows` held-out rows can tell apart.
    """
    arguments: dict[str, Any] = {"prefit": False} if "prefit" in accepted else {}
    level = accepted.get("confidence_level")
    if level is not None and level.annotation not in (float, "float"):  # some take only one
        count = max(1, min(19, num_rows // 2))
        arguments["confidence_level"] = [float(share) for share in (np.arange(count) + 1) / (count + 1)]
    return arguments


def confidence_levels(regressor: Any) -> float | Sequence[float]:
    """Return the levels of the intervals that a conformal regressor was made with; MAPIE keeps what is missing to 1."""
    for name in ("confidence_level", "confidence_levels"):
        if getattr(regressor, name, None) is not None:
            return getattr(regressor, name)
    for name in ("_alphas", "_alpha"):
        if getattr(regressor, name, None) is not None:
            return [1 - float(alpha) for alpha in np.atleast_1d(getattr(regressor, name))]
    raise ValueError("a regressor with predict_interval must say its levels in an attribute confidence_level")


def fit_conformal(regressor: Any, X: np.ndarray, y: np.ndarray, train: np.ndarray, held_out: np.ndarray) -> None:
    """Fit to the training rows and conformalize on the others; one that splits the rows itself gets them all."""
    if hasattr(regressor, "fit_conformalize"):
        regressor.fit_conformalize(X, y)
    else:
        regressor.fit(X[train], y[train])
        regressor.conformalize(X[held_out], y[held_out])


def conformal_shape(confidence_levels: float | Sequence[float]) -> Shape:
    """Return the shape of a conformal regressor whose intervals have these confidence levels."""
    levels = [float(level) for level in np.atleast_1d(np.asarray(confidence_levels, dtype=np.float64))]
    tails = [*((1 - level) / 2 for level in levels), 0.5, *((1 + level) / 2 for level in levels)]

    def predict(regressor: Any, X: np.ndarray, seed: int) -> Distribution:
        points, intervals = regressor.predict_interval(X)
        shape = (len(X), 2, len(levels))
        bounds = np.asarray(intervals, dtype=np.float64).reshape(len(X), 2, -1)
        bounds = _require_shape("predict_interval", bounds, shape, "a low and a high bound per row and level")
        middle = _require_shape("predict_interval", points, (len(X),), "one number per row")
        return Empirical.from_quantiles(tails, np.column_stack([bounds[:, 0], middle, bounds[:, 1]]))

    return Shape("intervals", is_conformal, predict, "smoothed intervals")


# --- parameters of a Normal


def _predict_std(regressor: Any, X: np.ndarray, seed: int) -> Distribution:
    predicted = regressor.predict(X, return_std=True)
    if not (isinstance(predicted, tuple) and len(predicted) == 2):
        raise ValueError(f"predict(X, return_std=True) must return mean and std, received {type(predicted).__name__}")
    mean, std = (_require_shape("predict", part, (len(X),), "one mean and one std per row") for part in predicted)
    return GaussianMixture.normal(mean, _scale(std))


def _scale(values: np.ndarray) -> np.ndarray:
    """Return scales, a zero among them as the smallest that a density can have."""
    if (values < 0).any():
        raise ValueError(f"a predicted scale must be positive, received {values.min():.4g}")
    return np.maximum(values, SCALE_FLOOR)


def _predict_parameters(regressor: Any, X: np.ndarray, seed: int) -> Distribution:
    return _parameters(regressor, regressor.predict(X), len(X))


def _parameters(regressor: Any, predicted: tuple[Any, ...], num_rows: int) -> Distribution:
    """Return the distribution whose parameters were predicted: loc and scale of a Normal, or those of a named one."""
    named = getattr(regressor, "distribution", "normal")
    scipy_name = _SCIPY_NAMES.get(named) if isinstance(named, str) else None
    fields = getattr(predicted, "_fields", ("loc", "scale"))
    if scipy_name is None or len(predicted) != len(fields):
        raise ValueError(
            "a tuple that predict returns must be (loc, scale) or the parameters of a distribution among "
            f"{', '.join(_SCIPY_NAMES)}, received {len(predicted)} parts of {named!r}"
        )
    parts = {
        name: _require_shape("predict", part, (num_rows,), "one number of each parameter per row")
        for name, part in zip(fields, predicted, strict=True)
    }
    if "scale" in parts:
        parts["scale"] = _scale(parts["scale"])
    if scipy_name == "norm":
        return GaussianMixture.normal(parts["loc"], parts["scale"])
    return ForeignDistribution(getattr(scipy.stats, scipy_name)(**parts), num_rows)


# --- what a regressor has


def _parameters_of(regressor: Any, method: str) -> list[str]:
    found = getattr(regressor, method, None)
    try:
        return [] if found is None else list(inspect.signature(found).parameters)
    except (TypeError, ValueError):  # a compiled method has no signature
        return []


def _last_step(regressor: Any) -> Any:
    return regressor.steps[-1][1] if isinstance(getattr(regressor, "steps", None), list) else regressor


def _transformed(regressor: Any, X: np.ndarray) -> Any:
    has_steps = isinstance(getattr(regressor, "steps", None), list) and len(regressor.steps) > 1
    return regressor[:-1].transform(X) if has_steps else X


SHAPES = (
    Shape("distribution", lambda regressor: distribution_predictor(regressor) is not None, _predict_distribution),
    Shape("quantiles", _has_quantiles, _predict_quantiles, "smoothed quantiles"),
    Shape("draws", _has_sample, _predict_draws, "smoothed draws"),
    Shape("std", lambda regressor: "return_std" in _parameters_of(regressor, "predict"), _predict_std),
)
_PARAMETERS = Shape("parameters", lambda regressor: False, _predict_parameters)
_COLUMNS = Shape("columns", lambda regressor: False, _predict_columns, "smoothed quantiles")
