"""Encoders from a table with categories and gaps to the numbers a model can take.

Each is fitted to the training rows of one fold, because some of them use the target, and is then applied to any rows.
On complete numeric tables all of them return the rows as they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from anchormoe.model.training_rows import TrainingRows, rows_outside

MOST_INDICATORS = 12  # levels that get a column each; a column with more levels is encoded by its target's means
PRIOR_ROWS = 10.0  # a level's mean counts as if this number of rows with the mean of all were added to it


class Takes(Enum):
    """The columns that a method can be fitted to; an encoder turns all others into columns that it can."""

    numbers = "complete numbers"
    gaps = "numbers, nan where one is missing"
    categories = "numbers and category codes, nan where one is missing"


@dataclass(frozen=True)
class NumericColumn:
    """A numeric column: gaps are filled, and a second column says where they were if the training rows had any."""

    position: int
    fill: float
    had_gaps: bool

    def __call__(self, values: np.ndarray) -> list[np.ndarray]:
        gap = np.isnan(values)
        filled = np.where(gap, self.fill, values)
        return [filled, gap.astype(np.float64)] if self.had_gaps else [filled]


@dataclass(frozen=True)
class IndicatorColumn:
    """A categorical column as one column of zeros and ones per level; unknown levels and gaps share the last one."""

    position: int
    num_levels: int

    def __call__(self, values: np.ndarray) -> list[np.ndarray]:
        known = [(values == level).astype(np.float64) for level in range(self.num_levels)]
        return [*known, (np.isnan(values) | (values >= self.num_levels)).astype(np.float64)]


@dataclass(frozen=True)
class MeanColumn:
    """A categorical column as its levels' mean target; the last two means are those of unknown levels and of gaps."""

    position: int
    means: np.ndarray

    def __call__(self, values: np.ndarray) -> list[np.ndarray]:
        gap, last = len(self.means) - 1, len(self.means) - 2
        codes = np.where(np.isnan(values), gap, np.minimum(values, last)).astype(np.intp)
        return [self.means[codes]]


@dataclass(frozen=True)
class LowestColumn:
    """A numeric column whose gaps are put below all values, where a tree can part them from the rest."""

    position: int

    def __call__(self, values: np.ndarray) -> list[np.ndarray]:
        return [np.where(np.isnan(values), -np.inf, values)]


EncodedColumn = NumericColumn | IndicatorColumn | MeanColumn | LowestColumn


@dataclass(frozen=True)
class Encoder:
    """Encodes a table column by column."""

    columns: tuple[EncodedColumn, ...] | None  # None leaves all rows as they are
    keeps_plain_rows: bool = True  # whether complete rows need no encoding

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Return the encoded rows (N, E), float64."""
        if self.columns is None or (self.keeps_plain_rows and not np.isnan(X).any()):
            return X
        return np.column_stack([part for column in self.columns for part in column(X[:, column.position])])


MakeEncoder = Callable[[TrainingRows, TrainingRows], Encoder]


def unchanged(rows: TrainingRows, whole: TrainingRows | None = None) -> Encoder:
    """Leave the rows as they are, for models that take codes and gaps themselves."""
    return Encoder(None)


def dense_encoder(rows: TrainingRows, whole: TrainingRows | None = None, *, keep_gaps: bool = False) -> Encoder:
    """Encode for models that need complete numbers on comparable scales: networks, ridge and kernel regression.

    Statistics come from `rows`. The encoded columns are those that `whole`, the table `rows` were taken from, needs, so
    that encoders of all folds agree in them. With `keep_gaps` the gaps of numeric columns stay nan, for models that
    take them.
    """
    whole = rows if whole is None else whole
    columns: list[EncodedColumn] = []
    for position in range(rows.X.shape[1]):
        values = rows.X[:, position]
        num_levels = _num_levels(whole.X[:, position]) if position in rows.categorical else 0
        if position not in rows.categorical and keep_gaps:
            columns.append(NumericColumn(position, np.nan, had_gaps=False))
        elif position not in rows.categorical:
            present = values[~np.isnan(values)]
            fill = float(np.median(present)) if len(present) else 0.0
            columns.append(NumericColumn(position, fill, bool(np.isnan(whole.X[:, position]).any())))
        elif num_levels <= MOST_INDICATORS:
            columns.append(IndicatorColumn(position, num_levels))
        else:
            columns.extend(_mean_column(one, position, num_levels) for one in rows.by_target)
    return Encoder(tuple(columns), whole.are_plain)


def tree_encoder(rows: TrainingRows, whole: TrainingRows | None = None) -> Encoder:
    """Encode for trees of ordered columns.

    Categories are put in the order of their mean target: the best split of a regression tree's node into two groups of
    categories is one of the cuts of that order.
    """
    whole = rows if whole is None else whole
    columns = [
        _mean_column(rows, position, _num_levels(whole.X[:, position]))
        if position in rows.categorical
        else LowestColumn(position)
        for position in range(rows.X.shape[1])
    ]
    return Encoder(tuple(columns), whole.are_plain)


@dataclass(frozen=True)
class EncodedFolds:
    """All rows encoded out of fold, as anchors are: a row's encoding does not know the targets of its own fold.

    `encoders` has the encoder of each fold, fitted to the rows outside it, for new rows.
    """

    rows: TrainingRows
    encoders: tuple[Encoder, ...]


def encode_folds(make: MakeEncoder, rows: TrainingRows, folds: Sequence[np.ndarray]) -> EncodedFolds:
    """Fit an encoder without each fold and encode the fold with it."""
    if rows.are_plain or make is unchanged:  # one encoder serves all folds
        return EncodedFolds(rows, (make(rows, rows),) * len(folds))
    encoders = tuple(make(rows[rows_outside(fold, len(rows))], rows) for fold in folds)
    parts = [encoder(rows.X[fold]) for encoder, fold in zip(encoders, folds, strict=True)]
    X = np.empty((len(rows), parts[0].shape[1]))
    for fold, part in zip(folds, parts, strict=True):
        X[fold] = part
    return EncodedFolds(dataclasses.replace(rows, X=X, categorical=()), encoders)


def encoded(rows: TrainingRows, encoder: Encoder) -> TrainingRows:
    """Return rows with encoded features; those that are left as they are keep their categorical columns."""
    categorical = rows.categorical if encoder.columns is None else ()
    return dataclasses.replace(rows, X=encoder(rows.X), categorical=categorical)


def _num_levels(codes: np.ndarray) -> int:
    present = codes[~np.isnan(codes)]
    return int(present.max()) + 1 if len(present) else 0


def _mean_column(rows: TrainingRows, position: int, num_levels: int) -> MeanColumn:
    """Average the target of each level, drawn towards the mean of all rows where a level has few of them."""
    codes, weight = rows.X[:, position], np.ones(len(rows)) if rows.weight is None else rows.weight
    slot = np.where(np.isnan(codes), num_levels + 1, codes).astype(np.intp)
    count = np.bincount(slot, weight, minlength=num_levels + 2)
    total = np.bincount(slot, weight * rows.y, minlength=num_levels + 2)
    return MeanColumn(position, (total + PRIOR_ROWS * rows.center) / (count + PRIOR_ROWS))
