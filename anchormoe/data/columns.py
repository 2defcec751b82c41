"""The columns of a table as people have them, turned into one matrix of numbers.

A numeric column keeps its values. A categorical column becomes codes: a level's number, one code beyond the last for a
level that was not there when the columns were learnt. A missing value is nan in both. How codes and gaps enter a model
is the model's business.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

Level = str | int | float | bool
LARGEST = 1e36  # the largest size of a number; networks and trees compute in float32, which ends at 3e38


class ColumnError(ValueError):
    """A column cannot be used; the message names it, says what was required and what to do."""


@dataclass(frozen=True)
class Column:
    """One column: its name, and its levels in order of their codes if it is categorical."""

    name: str
    levels: tuple[Level, ...] | None = None

    @property
    def is_categorical(self) -> bool:
        return self.levels is not None


@dataclass(frozen=True)
class Columns:
    """The columns that a model was fitted with, in order."""

    columns: tuple[Column, ...]

    @classmethod
    def learn(cls, X: Any, categorical_features: Any = "auto") -> Columns:
        """Find out the kind of every column, and the levels of the categorical ones.

        X: a DataFrame, or an array (N, I) whose columns are named x0, x1, ...
        categorical_features: `auto` takes columns of text, categories or mixed values; a list names columns or gives
            their positions; a mask has one truth value per column; None means that all columns are numeric.
        """
        frame = as_frame(X)
        chosen = _chosen(frame, categorical_features)
        return cls(tuple(_learn(frame.iloc[:, k], chosen[k]) for k in range(frame.shape[1])))

    @property
    def categorical(self) -> tuple[int, ...]:
        """Return the positions of the categorical columns."""
        return tuple(k for k, column in enumerate(self.columns) if column.is_categorical)

    def matrix(self, X: Any) -> np.ndarray:
        """Return the table as numbers (N, I), float64 in C order; the columns must be those that were learnt."""
        if isinstance(X, np.ndarray) and X.dtype.kind in "fiub" and not self.categorical:
            matrix = np.ascontiguousarray(X, dtype=np.float64)
            _require_finite(matrix, [column.name for column in self.columns])
            return matrix
        frame = as_frame(X)
        matrix = np.empty(frame.shape, dtype=np.float64)
        for k, column in enumerate(self.columns):
            values = frame.iloc[:, k]
            matrix[:, k] = _numbers(values, column.name) if column.levels is None else _codes(values, column.levels)
        return matrix


def as_frame(X: Any) -> pd.DataFrame:
    """Return a table as a DataFrame; an array's columns are named x0, x1, ..."""
    if isinstance(X, pd.DataFrame):
        return X
    array = np.asarray(X)
    return pd.DataFrame(array, columns=[f"x{k}" for k in range(array.shape[1])])


def _chosen(frame: pd.DataFrame, wanted: Any) -> list[bool | None]:
    """Return for each column whether it is categorical, None where its values decide."""
    names, count = list(frame.columns), frame.shape[1]
    if wanted is None:
        return [False] * count
    if isinstance(wanted, str) and wanted == "auto":
        return [None] * count
    listed = [wanted] if isinstance(wanted, str) else list(wanted)
    if len(listed) == count and all(isinstance(item, bool | np.bool_) for item in listed):
        return [bool(item) for item in listed]
    chosen: list[bool | None] = [False] * count
    for item in listed:
        if item in names:
            chosen[names.index(item)] = True
        elif isinstance(item, int | np.integer) and -count <= item < count:
            chosen[int(item)] = True
        else:
            raise ColumnError(
                f"categorical_features must be 'auto', None, or names or positions of the {count} columns, "
                f"received {item!r}"
            )
    return chosen


def _learn(values: pd.Series, categorical: bool | None) -> Column:
    name = str(values.name)
    dtype = values.dtype
    if isinstance(dtype, pd.DatetimeTZDtype | pd.PeriodDtype | pd.IntervalDtype) or getattr(dtype, "kind", "") in "mMc":
        raise ColumnError(
            f"column {name!r} must be numeric or categorical, received {dtype}: turn it into numbers, "
            "for example year, month and weekday, or drop it"
        )
    if categorical is None:
        categorical = isinstance(dtype, pd.CategoricalDtype) or not (_is_numeric(dtype) or _are_numbers(values))
        if categorical and not isinstance(dtype, pd.CategoricalDtype):
            _refuse_text(values, name)
    return Column(name, _levels(values, name) if categorical else None)


def _is_numeric(dtype: Any) -> bool:
    return pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_bool_dtype(dtype)


def _are_numbers(values: pd.Series) -> bool:
    """Tell whether all values of an object column are numbers; digits in text are not."""
    return all(isinstance(value, int | float | np.number | np.bool_) for value in values.dropna())


def _refuse_text(values: pd.Series, name: str) -> None:
    """Refuse free text and identifiers: nearly every row has a value of its own, from which nothing can be learnt."""
    present = values.dropna()
    for value in present:
        if not isinstance(value, str | int | float | bool | np.generic):
            raise ColumnError(
                f"column {name!r} must hold numbers or categories, received a value of type {type(value).__name__}; "
                "argument must be a string or a number"
            )
    distinct = present.nunique()
    if distinct > 20 and distinct > 0.5 * len(present):
        raise ColumnError(
            f"column {name!r} must be numeric or categorical, received text: {distinct} different values in "
            f"{len(present)} rows; drop it, or name it in categorical_features"
        )


def _levels(values: pd.Series, name: str) -> tuple[Level, ...]:
    """Return the levels in a fixed order, whichever order the rows are in; a category's own order is kept."""
    if isinstance(values.dtype, pd.CategoricalDtype):
        used = values.cat.remove_unused_categories().cat.categories
        found = [_plain(level) for level in used]
    else:
        found = sorted({_plain(value) for value in values.dropna()}, key=lambda level: (type(level).__name__, level))
    if not all(isinstance(level, str | int | float | bool) for level in found):
        raise ColumnError(
            f"column {name!r} must have texts or numbers as categories, received {found[0]!r}: turn them into texts"
        )
    return tuple(found)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _codes(values: pd.Series, levels: Sequence[Level]) -> np.ndarray:
    number = {level: code for code, level in enumerate(levels)}
    unknown = len(levels)
    missing = values.isna().to_numpy()
    plain = values.astype(object).to_numpy()
    known = (number.get(_plain(value), unknown) if isinstance(value, Hashable) else unknown for value in plain)
    codes = np.fromiter(known, dtype=np.float64, count=len(plain))
    codes[missing] = np.nan
    return codes


def _numbers(values: pd.Series, name: str) -> np.ndarray:
    try:
        numbers = pd.to_numeric(values).to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise ColumnError(f"column {name!r} must be numeric, received: {error}") from None
    _require_finite(numbers[:, None], [name])
    return numbers


def _require_finite(matrix: np.ndarray, names: Sequence[str]) -> None:
    too_large = np.abs(matrix) > LARGEST
    if not too_large.any():
        return
    position = int(np.argmax(too_large.any(axis=0)))
    value = matrix[int(np.argmax(too_large[:, position])), position]
    if np.isinf(value):
        received = "infinity: replace it by a number or by nan"
    else:
        received = f"{value:g}: numbers may be up to {LARGEST:g} in size, choose another unit"
    raise ColumnError(f"column {names[position]!r} must be finite, received {received}")
