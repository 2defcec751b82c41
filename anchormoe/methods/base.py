"""The base class of the other methods, which fits to a standardised target, and a few helpers.

A method subclasses `StandardisedRegressor` and implements `_fit(X, y, seed)` and `_predict(X)`. It holds out rows
itself to choose its settings. By `takes` it says whether it gets categories and gaps as they are.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any, Self

import numpy as np

from anchormoe.distributions.base import Distribution
from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.model.encoding import Encoder, Takes, dense_encoder, encode_folds
from anchormoe.model.training_rows import TrainingRows, folds_of

VALIDATION_FRACTION = 0.2
ENCODING_FOLDS = 5
SCALE_FLOOR = 1e-4  # least predicted scale, in standard deviations of the target, so that no density is a spike


class StandardisedRegressor(ABC):
    """A regressor that is fitted to the z-scored target.

    With `raw_target` it gets and predicts the target in its own units.
    """

    raw_target = False
    takes = Takes.numbers
    categorical_features: Sequence[int] = ()  # positions of the columns of X that hold category codes

    def __init__(self, *, random_state: int = 0) -> None:
        self.random_state = random_state

    @abstractmethod
    def _fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> None: ...

    @abstractmethod
    def _predict(self, X: np.ndarray) -> Distribution: ...

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        """Fit to rows X (N, I), in which nan is a missing value, and targets y (N,)."""
        self.diagnostics_: dict[str, Any] = {}
        self.center_, self.scale_ = float(y.mean()), float(y.std()) or 1.0  # 1 for a constant target
        self.is_constant_ = np.ptp(y) == 0
        if not self.is_constant_:  # else there is nothing to learn, and most methods would divide by zero
            z = (y - self.center_) / self.scale_
            X, self.encoder_ = self._encoded(TrainingRows(X, z, None, tuple(self.categorical_features)))
            self._fit(X, y if self.raw_target else z, self.random_state)
        return self

    def _encoded(self, rows: TrainingRows) -> tuple[np.ndarray, Encoder]:
        """Return the training rows in the form that `_fit` takes, and the encoder of new rows.

        A category with many levels is encoded by its levels' mean targets. A training row gets these from folds
        without it, because a mean that includes its own target would give that away.
        """
        if self.takes is Takes.categories or (self.takes is Takes.gaps and not rows.categorical):
            return rows.X, Encoder(None)
        make = partial(dense_encoder, keep_gaps=self.takes is Takes.gaps)
        folds = folds_of(len(rows), ENCODING_FOLDS, seed=self.random_state)
        return encode_folds(make, rows, folds).rows.X, make(rows)

    def predict_dist(self, X: np.ndarray) -> Distribution:
        """Predict distributions of rows, in the target's units."""
        if self.is_constant_:
            distribution: Distribution = GaussianMixture.normal(np.zeros(len(X)), SCALE_FLOOR)
        else:
            distribution = self._predict(self.encoder_(X))
            if self.raw_target:
                assert isinstance(distribution, GaussianMixture)
                distribution = distribution.affine(scale=1 / self.scale_, shift=-self.center_ / self.scale_)
        assert dataclasses.is_dataclass(distribution)
        return dataclasses.replace(distribution, center=self.center_, scale=self.scale_)


@dataclasses.dataclass(frozen=True)
class Standardiser:
    """Subtracts each column's mean and divides by its standard deviation."""

    mean: np.ndarray
    std: np.ndarray

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return (X - self.mean) / self.std


def standardiser(X: np.ndarray) -> Standardiser:
    """Return a map to columns of mean 0 and standard deviation 1 on X; a constant column becomes 0."""
    mean, std = X.mean(0), X.std(0)
    return Standardiser(mean, np.where(std > 0, std, 1.0))


def hold_out(num_rows: int, seed: int, *, fraction: float = VALIDATION_FRACTION) -> tuple[np.ndarray, np.ndarray]:
    """Draw rows to fit on and held-out rows to choose settings on."""
    order = np.random.default_rng(seed).permutation(num_rows)
    held_out = max(1, round(fraction * num_rows))
    return order[held_out:], order[:held_out]
