"""The rows that a model is fitted to."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from anchormoe.errors import UserError

LEAST_ROWS = 5


@dataclass(frozen=True)
class TrainingRows:
    """Features (N, I), targets (N,), or (N, T) of several targets, and weights (N,) of rows.

    X: numbers; nan is a missing value, and the columns at the positions `categorical` hold codes 0, 1, ...
    weight: has mean 1; None means that all rows count alike.
    """

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None = None
    categorical: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: np.ndarray) -> TrainingRows:
        """Return some of the rows; their weights keep the mean of all."""
        weight = None if self.weight is None else self.weight[index]
        return TrainingRows(self.X[index], self.y[index], weight, self.categorical)

    def require_fittable(self) -> None:
        """Raise a UserError unless there are enough rows, a feature, and values that can be fitted."""
        for needed, is_met, received in (
            (f"at least {LEAST_ROWS} rows", len(self) >= LEAST_ROWS, f"{len(self)}"),
            ("at least one feature", self.X.shape[1] > 0, "none"),
            ("finite targets", np.isfinite(self.y).all(), "NaN or infinity; leave out the rows that have one"),
            ("features that are finite or NaN", not np.isinf(self.X).any(), "infinity; give NaN for what is missing"),
        ):
            if not is_met:
                raise UserError(f"a fit needs {needed}, received {received}")

    @property
    def by_target(self) -> tuple[TrainingRows, ...]:
        """Return the rows with one target each, as often as there are targets."""
        if self.y.ndim == 1:
            return (self,)
        return tuple(dataclasses.replace(self, y=np.ascontiguousarray(column)) for column in self.y.T)

    @property
    def are_plain(self) -> bool:
        """Tell whether all features are numbers without gaps."""
        return not self.categorical and not np.isnan(self.X).any()

    def mean(self, values: np.ndarray) -> float:
        """Return the weighted mean of one value per row."""
        return float(values.mean() if self.weight is None else np.average(values, weights=self.weight))

    @property
    def center(self) -> float:
        """Return the weighted mean of the target."""
        return self.mean(self.y)

    @property
    def scale(self) -> float:
        """Return the weighted standard deviation of the target, 1 if it never varies."""
        spread = self.y.std() if self.weight is None else np.sqrt(self.mean((self.y - self.center) ** 2))
        return float(spread) or 1.0


def some_rows(num_rows: int, most: int, seed: int) -> np.ndarray | slice:
    """Return all rows, or as many as wanted, drawn at random, where there are more."""
    return slice(None) if num_rows <= most else np.random.default_rng(seed).permutation(num_rows)[:most]


def folds_of(num_rows: int, num_folds: int, *, seed: int) -> list[np.ndarray]:
    """Cut the rows at random into folds; each array holds the rows its fold holds out."""
    return np.array_split(np.random.default_rng(seed).permutation(num_rows), num_folds)


def rows_outside(fold: np.ndarray, num_rows: int) -> np.ndarray:
    """Return the rows that a fold does not hold out."""
    kept = np.ones(num_rows, dtype=bool)
    kept[fold] = False
    return np.flatnonzero(kept)
