"""A table as it is in a file: named columns of numbers, truth values, dates, categories or text, in one matrix.

The kind of a column is found from its cells. A date is held as seconds since 1970, a category or a text as the number
of its level, a missing value as nan. A column that cannot be used is only refused where somebody wants to use it.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

import numpy as np
import pandas as pd

from anchormoe.data.columns import LARGEST, Columns, Level

LARGEST_EXACT = 2**53  # float64 holds all whole numbers up to this one
_MISSING = ("", "?")  # beside what pandas takes for missing
_GROUPED = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")  # 1,234,567.8
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+")  # 3,14
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ].*)?|\d{1,2}[./]\d{1,2}[./]\d{4}")
_DATE_FORMATS = ("ISO8601", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y")


class Kind(Enum):
    numeric = "numeric"
    boolean = "boolean"
    date = "date"
    categorical = "categorical"
    text = "text"  # nearly every row has a value of its own, from which nothing can be learnt


@dataclass(frozen=True)
class TableColumn:
    """One column of a file: its name, its kind, and its levels in order of their codes if it has codes."""

    name: str
    kind: Kind = Kind.numeric
    levels: tuple[Level, ...] = ()
    problem: str = ""  # why its values cannot be used as they are


@dataclass(frozen=True, eq=False)
class Table:
    """A file's columns and their values (rows, columns), float64."""

    columns: tuple[TableColumn, ...]
    values: np.ndarray

    @classmethod
    def of_numbers(cls, names: Collection[str], values: np.ndarray) -> Table:
        return cls(tuple(TableColumn(name) for name in names), values)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def sha256(self) -> str:
        """Return the content hash: of the values, and of the columns' kinds and levels if not all are numbers."""
        if all(column.kind is Kind.numeric for column in self.columns):
            return content_sha256(self.values)
        kinds = json.dumps([[column.kind.value, column.levels] for column in self.columns])
        return hashlib.sha256(f"{content_sha256(self.values)}\n{kinds}".encode()).hexdigest()


def content_sha256(values: np.ndarray) -> str:
    """Return the SHA-256 of the shape and the C-order little-endian float64 values."""
    values = np.ascontiguousarray(values, dtype="<f8") + 0.0  # adding 0.0 turns -0.0, which equals 0.0, into 0.0
    values[np.isnan(values)] = np.nan  # a missing value has one form
    return hashlib.sha256(f"{values.shape[0]}x{values.shape[1]}\n".encode() + values.tobytes()).hexdigest()


def as_table(cells: pd.DataFrame, categorical: Collection[str] = ()) -> Table:
    """Find out the kind of every column of cells; the named ones are categorical whatever they hold."""
    found = [_column(cells.iloc[:, k], str(name) in categorical) for k, name in enumerate(cells.columns)]
    values = np.column_stack([values for _, values in found]) if found else np.empty((len(cells), 0))
    return Table(tuple(column for column, _ in found), np.ascontiguousarray(values, dtype=np.float64))


Found = tuple[TableColumn, np.ndarray]


def _column(cells: pd.Series, categorical: bool) -> Found:
    name, dtype = str(cells.name), cells.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return _with_levels(name, cells, Kind.categorical)
    if not categorical and pd.api.types.is_bool_dtype(dtype):
        return TableColumn(name, Kind.boolean), cells.astype("float64").to_numpy()
    if not categorical and pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_complex_dtype(dtype):
        return _numeric(name, cells)
    if not categorical and pd.api.types.is_datetime64_any_dtype(dtype):
        return TableColumn(name, Kind.date), _seconds(cells)
    cells = cells.astype(object).map(_plain)
    present = cells.dropna()
    types = {type(value) for value in present}
    strange = next((kind for kind in types if not issubclass(kind, str | int | float | datetime.date)), None)
    if strange is not None:
        problem = f"column {name!r} must hold numbers, dates or categories, found values of type {strange.__name__}"
        return TableColumn(name, Kind.text, problem=problem), np.full(len(cells), np.nan)
    if categorical:
        return _with_levels(name, _texts_of_dates(cells), Kind.categorical)
    if types == {bool}:
        return TableColumn(name, Kind.boolean), cells.astype("float64").to_numpy()
    dates = _dates(cells, present)
    return (TableColumn(name, Kind.date), _seconds(dates)) if dates is not None else _text_or_numbers(name, cells)


def _plain(value: Any) -> Any:
    """Return a cell without spaces around it and without its library's type; what stands for nothing is missing."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        value = value.strip()
        return np.nan if value in _MISSING else value
    return float(value) if isinstance(value, Decimal) else value


def _numeric(name: str, cells: pd.Series) -> Found:
    values = cells.to_numpy(dtype=np.float64, na_value=np.nan)
    problem = ""
    if np.isinf(values).any():
        problem = f"column {name!r} must have finite values, found infinity in row {np.argmax(np.isinf(values)) + 1}"
    elif (too_large := np.abs(values) > LARGEST).any():
        row = int(np.argmax(too_large))
        problem = f"column {name!r} must have values up to {LARGEST:g}, found {values[row]:g} in row {row + 1}"
    elif (np.abs(values) > LARGEST_EXACT).any() and (huge := _first_huge(cells)) is not None:
        problem = (
            f"column {name!r} must have whole numbers up to 2**53, which float64 holds exactly, found "
            f"{cells.iloc[huge]} in row {huge + 1}; it looks like an identifier: leave it out of features"
        )
    return TableColumn(name, Kind.numeric, problem=problem), values


def _first_huge(cells: pd.Series) -> int | None:
    """Return the first row with a whole number that is too large; numbers such as 6e23 are measurements."""
    if pd.api.types.is_float_dtype(cells.dtype):
        return None
    is_huge = [bool(re.fullmatch(r"[+-]?\d+", str(value))) and abs(int(value)) > LARGEST_EXACT for value in cells]
    return int(np.argmax(is_huge)) if any(is_huge) else None


def _text_or_numbers(name: str, cells: pd.Series) -> Found:
    """Tell numbers that were written as text, mixtures, categories and free text apart."""
    present = cells.dropna()
    numbers = pd.to_numeric(cells, errors="coerce")
    wrong = present[numbers[present.index].isna()]
    if not len(wrong):
        return _numeric(name, cells if _first_huge(cells) is not None else numbers)
    if all(isinstance(value, str) for value in wrong):
        for pattern, old, new in ((_GROUPED, ",", ""), (_DECIMAL_COMMA, ",", ".")):
            if all(pattern.fullmatch(value) for value in wrong):
                written = cells.map(lambda value, old=old, new=new: str(value).replace(old, new), na_action="ignore")
                return _numeric(name, pd.to_numeric(written))
    if len(wrong) < 0.5 * len(present):
        problem = (
            f"column {name!r} must be numeric, found {wrong.iloc[0]!r} in row {wrong.index[0] + 1}; correct the cell, "
            "or name the column in categorical"
        )
        return TableColumn(name, Kind.numeric, problem=problem), numbers.to_numpy(dtype=np.float64)
    distinct = present.nunique()
    kind = Kind.text if distinct > 20 and distinct > 0.5 * len(present) else Kind.categorical
    return _with_levels(name, cells, kind)


def _with_levels(name: str, cells: pd.Series, kind: Kind) -> Found:
    frame = cells.to_frame()
    learnt = Columns.learn(frame, [True])
    return TableColumn(name, kind, learnt.columns[0].levels or ()), learnt.matrix(frame)[:, 0]


def _texts_of_dates(cells: pd.Series) -> pd.Series:
    return cells.map(lambda value: str(value) if isinstance(value, datetime.date) else value, na_action="ignore")


def _dates(cells: pd.Series, present: pd.Series) -> pd.Series | None:
    """Return the cells as dates if all of them are, in one format and no other; else None."""
    if not len(present):
        return None
    if all(isinstance(value, datetime.date) for value in present):
        return pd.to_datetime(cells, errors="coerce", utc=True)
    if not all(isinstance(value, str) and _DATE.fullmatch(value) for value in present):
        return None
    fitting = []
    for form in _DATE_FORMATS:
        dates = pd.to_datetime(cells, format=form, errors="coerce", utc=True)
        if dates[present.index].notna().all():
            fitting.append(dates)
    return fitting[0] if len(fitting) == 1 else None  # 01/02/2020 alone may be in January or in February


def _seconds(dates: pd.Series) -> np.ndarray:
    """Return dates as seconds since 1970 in UTC; a date without a time zone is taken as it is written."""
    moments = pd.to_datetime(dates, utc=True)
    seconds = moments.astype("datetime64[ns, UTC]").astype("int64").to_numpy() / 1e9
    return np.where(moments.isna(), np.nan, seconds)
