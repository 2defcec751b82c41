"""The method that wraps any regressor of another library or of the user's, named by its import path."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from anchormoe.distributions.base import Distribution
from anchormoe.distributions.empirical import Empirical
from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.errors import UserError
from anchormoe.methods.base import SCALE_FLOOR, StandardisedRegressor, hold_out
from anchormoe.methods.shapes import (
    Shape,
    confidence_levels,
    conformal_parameters,
    conformal_shape,
    fit_conformal,
    is_conformal,
    points_or_distribution,
    predict_shape,
    shape_of,
)
from anchormoe.model.anchors.imported import (
    import_regressor,
    new_regressor,
    parameters_of,
    signature_of,
    with_estimators,
)
from anchormoe.model.encoding import Takes

NUM_RESIDUALS = 50
BANDWIDTH = 0.3  # bandwidth of the residuals' kernel, in their standard deviations


class AnyRegressor(StandardisedRegressor):
    """A regressor of another library under the contract of methods.

    What it predicts is turned into distributions (anchormoe/methods/shapes.py). A regressor of points gets the
    distribution of its residuals on 20% of the rows, the same for every row, and is fitted again to all rows.
    """

    def __init__(self, *, target: str, random_state: int = 0, **parameters: Any) -> None:
        super().__init__(random_state=random_state)
        self.prototype = import_regressor("method.target", target)
        accepted = parameters_of(self.prototype)
        unknown = [] if accepted is None else sorted(set(parameters) - accepted)
        if unknown:
            raise UserError(f"method.params must be parameters of the regressor: {target} has no {', '.join(unknown)}")
        self.parameters = with_estimators("method.params", parameters)
        try:
            example = self._new(random_state, num_held_out=10)
        except UserError:
            raise
        except Exception as error:  # whatever a class of the user's raises while it is made
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise UserError(f"{target} cannot be made: {reason}; its arguments are method.params.<name>=") from None
        self.takes = _takes(example)

    def _new(self, seed: int, num_held_out: int) -> Any:
        """Make an unfitted regressor."""
        open_arguments: dict[str, Any] = {}
        if inspect.isclass(self.prototype) and is_conformal(self.prototype):
            open_arguments = conformal_parameters(signature_of(self.prototype), num_held_out)
        if self.categorical_features and self.takes is Takes.categories:
            open_arguments["categorical_features"] = list(self.categorical_features)
        return new_regressor(self.prototype, {**open_arguments, **self.parameters}, seed)

    def _fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> None:
        self.residuals = None
        train, held_out = hold_out(len(y), seed)
        self.regressor = self._new(seed, len(held_out))
        if is_conformal(self.regressor):
            self.shape: Shape | None = self._fit_conformal(X, y, train, held_out)
        else:
            self.shape = shape_of(self.regressor) or self._shape_of_points(X, y, train, held_out, seed)
            self.regressor.fit(X, y)
        density = "smoothed residuals" if self.shape is None else self.shape.density
        if density is not None:
            self.diagnostics_["density"] = density

    def _fit_conformal(self, X: np.ndarray, y: np.ndarray, train: np.ndarray, held_out: np.ndarray) -> Shape:
        fit_conformal(self.regressor, X, y, train, held_out)
        accepted = signature_of(self.prototype) if inspect.isclass(self.prototype) else {}
        if "confidence_level" not in accepted:  # whoever made it has chosen the levels
            return conformal_shape(confidence_levels(self.regressor))
        default = {"confidence_level": accepted["confidence_level"].default}
        arguments = {**default, **conformal_parameters(accepted, len(held_out)), **self.parameters}
        return conformal_shape(arguments["confidence_level"])

    def _shape_of_points(
        self, X: np.ndarray, y: np.ndarray, train: np.ndarray, held_out: np.ndarray, seed: int
    ) -> Shape | None:
        """Fit to a part of the rows, find out what `predict` returns, and keep the residuals of the others."""
        self.regressor.fit(X[train], y[train])
        found = points_or_distribution(self.regressor, self.regressor.predict(X[held_out]), len(held_out))
        self.regressor = self._new(seed, len(held_out))
        if isinstance(found, tuple):
            return found[1]
        self.residuals = y[held_out] - found
        return None

    def _predict(self, X: np.ndarray) -> Distribution:
        if self.shape is not None:
            distribution = predict_shape(self.shape, self.regressor, X, self.random_state)
            if isinstance(distribution, Empirical):  # also of a library's distributions that have no density
                self.diagnostics_.setdefault("density", "smoothed quantiles")
            return distribution
        assert self.residuals is not None
        points = points_or_distribution(self.regressor, self.regressor.predict(X), len(X))
        assert isinstance(points, np.ndarray)
        levels = (np.arange(NUM_RESIDUALS) + 0.5) / NUM_RESIDUALS
        scale = max(BANDWIDTH * float(self.residuals.std()), SCALE_FLOOR)
        return GaussianMixture.equal_weights(points[:, None] + np.quantile(self.residuals, levels), scale)


def _takes(regressor: Any) -> Takes:
    """Find out what columns a regressor takes.

    It may say so by an attribute `takes`: `numbers`, `gaps` or `categories`. One with a parameter
    `categorical_features` takes categories, one that scikit-learn's tags allow nan takes gaps.
    """
    said = getattr(regressor, "takes", None)
    if said is not None:
        names = [item.name for item in Takes]
        if not isinstance(said, Takes) and said not in names:
            raise TypeError(f"takes must be one of {', '.join(names)}, received {said!r}")
        return said if isinstance(said, Takes) else Takes[said]
    if "categorical_features" in inspect.signature(type(regressor)).parameters:
        return Takes.categories
    # quantile-forest inherits the tag of scikit-learn's forests, and refuses nan.
    if hasattr(regressor, "__sklearn_tags__") and not type(regressor).__module__.startswith("quantile_forest"):
        from sklearn.utils import get_tags

        return Takes.gaps if get_tags(regressor).input_tags.allow_nan else Takes.numbers
    return Takes.numbers
