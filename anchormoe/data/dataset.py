"""Datasets, read and verified: from the copy in the package, the public home, a file of the user's or OpenML."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from anchormoe.data import openml
from anchormoe.data.catalogue import DatasetInfo, raise_unknown
from anchormoe.data.columns import Level
from anchormoe.data.containers import ContainerError
from anchormoe.data.dates import calendar_parts
from anchormoe.data.download import fetch
from anchormoe.data.formats import DATA_SUFFIXES, read_table, require_content
from anchormoe.data.resolution import recording_step
from anchormoe.data.splits import Scheme
from anchormoe.data.table import Kind, Table, TableColumn
from anchormoe.errors import UserError
from anchormoe.paths import shipped

SOURCES = ("embedded", "download")
MIN_ROWS = 40  # fewer leave only a handful to validate, calibrate and test on
MAX_FILE_BYTES = 2**30
SMALLEST_RANGE = 1e-30  # of a target; squares of smaller differences leave the range of float64 or float32


@dataclass(frozen=True, eq=False)
class Dataset:
    """One regression task in original units; rows in the order of the file.

    X: numbers; nan is a missing value, and the columns at the positions `categorical` hold codes 0, 1, ...
    """

    name: str
    variant: str
    X: np.ndarray  # (rows, features) float64, C-contiguous
    y: np.ndarray  # (rows,) float64, or (rows, targets) of several
    feature_names: tuple[str, ...]
    target_names: tuple[str, ...]
    sha256: str  # content hash of the whole table, shared by all variants
    steps: tuple[float, ...]  # each target is recorded in steps of this size, 0 if in none
    categorical: tuple[int, ...] = ()
    levels: tuple[tuple[Level, ...], ...] = ()  # of each categorical column, in order of their codes
    kinds: tuple[Kind, ...] = ()  # of each feature; a part of a date is of kind date
    scheme: Scheme = Scheme.random  # how the outer splits are cut
    split_key: np.ndarray | None = None  # (rows,) the group or the time of each row, for schemes that need one
    left_out: dict[str, str] = field(default_factory=dict)  # columns of the file that are no features, and why
    missing_targets: int = 0  # rows of the file that were dropped because they have no target

    @property
    def is_joint(self) -> bool:
        """Tell whether there are several targets."""
        return len(self.target_names) > 1

    @property
    def target_name(self) -> str:
        """Return the name of the target, of several ones their names."""
        return ", ".join(self.target_names)

    @property
    def step(self) -> float:
        """Return the step in which the target is recorded, 0 if in none; of several targets that of the first."""
        return self.steps[0]

    def take(self, rows: np.ndarray) -> Dataset:
        """Return the dataset with some of its rows."""
        key = None if self.split_key is None else self.split_key[rows]
        return dataclasses.replace(self, X=self.X[rows], y=self.y[rows], split_key=key)

    def frame(self) -> pd.DataFrame:
        """Return the features as a DataFrame whose categorical columns hold their levels."""
        frame = pd.DataFrame(self.X, columns=list(self.feature_names))
        for position, levels in zip(self.categorical, self.levels, strict=True):
            codes = np.where(np.isnan(self.X[:, position]), -1, self.X[:, position]).astype(int)
            frame[self.feature_names[position]] = pd.Categorical.from_codes(codes, pd.Index(levels, dtype=object))
        return frame


def load(
    info: DatasetInfo,
    *,
    variant: str | None = None,
    source: str = "embedded",
    mirror: str | None = None,
    cache_dir: Path | None = None,
) -> Dataset:
    """Load all rows of the named variant, else of the chosen or the default one; a stated content hash is verified.

    A dataset with a path is read from there. `source` says where any other is taken from; `mirror` and `cache_dir`
    matter only to `source="download"`, and to datasets that have an original to download.
    """
    info.choose_variant(variant)  # a wrong name should fail before anything is downloaded
    if source not in SOURCES:
        raise_unknown("data source", source, SOURCES)
    if info.path is None and info.urls and source == "download":
        table = Table.of_numbers(info.columns, fetch(info, mirror=mirror, cache_dir=cache_dir).table)
    else:
        table = file_table(info)
    return _select(info, table, variant)


def num_rows(info: DatasetInfo, variant: str | None = None) -> int:
    """Return the number of rows of a variant; the table is read only if the description does not state it."""
    _, chosen = info.choose_variant(variant)
    if info.path is not None or (chosen.rows is None and info.rows is None):
        return len(load(info, variant=variant).y)
    return info.rows or 0 if chosen.rows is None else chosen.rows[1] - chosen.rows[0]


def pinned(info: DatasetInfo) -> DatasetInfo:
    """Return the description with its table's content hash stated, so that a file that changes later is refused."""
    return info if info.content_sha256 else dataclasses.replace(info, content_sha256=load(info).sha256)


def table_path(info: DatasetInfo) -> Path:
    """Return the file with the table: the user's, or the copy that ships with the package."""
    if info.path is None:
        return shipped("data") / f"{info.table or info.name}.csv.xz"
    # Path.expanduser raises an error for a user that does not exist, this one leaves the path as it is.
    return Path(info.path if openml.is_address(info.path) else os.path.expanduser(info.path))


def file_table(info: DatasetInfo) -> Table:
    """Return the table in the dataset's file, checked against what its description states."""
    path = table_path(info)
    try:
        table = _read(info, path)
        require_content(table.sha256, table.values.shape, info)
        if info.rows not in (None, len(table)) or len(info.columns or table.columns) != len(table.columns):
            expected = f"{info.rows or len(table)} rows x {len(info.columns or table.columns)} columns"
            raise ContainerError(f"expected {expected}, found {len(table)} rows x {len(table.columns)} columns")
        return _renamed(table, info.columns) if info.columns else table
    except OSError as error:
        reason = f"found {error.strerror or error}"
    except ContainerError as error:
        reason = str(error)
    if info.path is None:
        raise UserError(
            f"embedded copy of dataset {info.name!r} is unusable: required {path}, {reason}; "
            "reinstall the package or use data.source=download"
        )
    raise UserError(
        f"dataset {info.name!r} cannot be read from {path}: {reason}; correct the file or the dataset's description"
    )


def _read(info: DatasetInfo, path: Path) -> Table:
    trusted = info.path is None
    if info.path is not None and openml.is_address(info.path):
        path, trusted = openml.cached(info.path), True
    path = _only_table(path)
    state = path.stat()
    if not path.is_file():
        raise ContainerError("must be a file or a folder with one, found neither")
    if state.st_size > MAX_FILE_BYTES:
        raise ContainerError(f"refused: larger than {MAX_FILE_BYTES // 2**30} GiB")
    # A group's name is not a number, even if it looks like one. The names in the file count here; stated names of
    # columns replace them afterwards.
    categorical = (*info.categorical, *([info.groups] if info.groups else []))
    if info.columns and categorical:
        original = _parsed(path.absolute(), state.st_mtime_ns, state.st_size, trusted, ()).names
        categorical = tuple(old for old, new in zip(original, info.columns, strict=False) if new in categorical)
    return _parsed(path.absolute(), state.st_mtime_ns, state.st_size, trusted, categorical)


def _only_table(path: Path) -> Path:
    """Return the one data file of a folder; anything else is returned as it is."""
    if not path.is_dir():
        return path
    found = [item for item in sorted(path.iterdir()) if item.name.lower().endswith((*DATA_SUFFIXES, ".zip"))]
    if len(found) != 1:
        names = ", ".join(item.name for item in found[:5]) or "none"
        raise ContainerError(f"a folder must hold one table, found {len(found)} ({names}): name one of the files")
    return found[0]


@functools.lru_cache(maxsize=2)
def _parsed(path: Path, modified_ns: int, size: int, trusted: bool, categorical: tuple[str, ...]) -> Table:
    """Return the table of a file, which is parsed once as long as it does not change."""
    return read_table(path.read_bytes(), trusted=trusted, categorical=categorical)


def _renamed(table: Table, names: Sequence[str]) -> Table:
    columns = (dataclasses.replace(column, name=name) for column, name in zip(table.columns, names, strict=True))
    return Table(tuple(columns), table.values)


@dataclass(frozen=True)
class _Feature:
    name: str
    values: np.ndarray
    kind: Kind
    levels: tuple[Level, ...] | None  # None unless it is categorical


def _select(info: DatasetInfo, table: Table, variant: str | None) -> Dataset:
    """Cut one variant's features and target out of the table."""
    name, chosen = info.choose_variant(variant)
    index = {column: k for k, column in enumerate(table.names)}
    roles = {"target": [*chosen.targets], "feature": chosen.features, "categorical column": info.categorical}
    roles |= {"groups": [info.groups] if info.groups else [], "time": [info.time] if info.time else []}
    for kind, columns in roles.items():
        for column in columns:
            if column not in index:
                raise_unknown(f"{kind} of dataset {info.name!r} in {table_path(info)}", column, table.names)
    start, stop = chosen.rows or (0, len(table))
    left_out = {} if chosen.features else _left_out(table, chosen.targets, info.groups)
    features = [column for column in chosen.feature_names(table.names) if column not in left_out]
    y = np.column_stack(
        [_target(info, table.columns[index[one]], table.values[:, index[one]]) for one in chosen.targets]
    )
    known = np.flatnonzero(~np.isnan(y[start:stop]).any(axis=1)) + start
    if stop > len(table) or len(known) < MIN_ROWS:
        missing = f" ({stop - start - len(known)} of them without a target)" if len(known) < stop - start else ""
        raise UserError(
            f"dataset {info.name!r} must have at least {MIN_ROWS} rows, received rows {start} to {stop}{missing} of "
            f"{len(table)} in {table_path(info)}; add data"
        )
    if not features:
        unused = "".join(f"; {column} is left out: {reason}" for column, reason in list(left_out.items())[:3])
        raise UserError(
            f"dataset {info.name!r} must have a feature beside the target {', '.join(chosen.targets)!r}, received "
            f"{len(table.columns)} columns in {table_path(info)}{unused}"
        )
    for target, values in zip(chosen.targets, y[known].T, strict=True):
        _require_variation(info, target, values)
    parts = [
        part
        for column in features
        for part in _features(info, table.columns[index[column]], table.values[known, index[column]])
    ]
    if not parts:
        raise UserError(f"dataset {info.name!r} must have a feature that varies, received {', '.join(features)}")
    categorical = tuple(k for k, part in enumerate(parts) if part.levels is not None)
    key = info.groups or info.time
    return Dataset(
        name=info.name,
        variant=name,
        X=np.ascontiguousarray(np.column_stack([part.values for part in parts])),
        y=y[known] if chosen.is_joint else y[known, 0],
        feature_names=tuple(part.name for part in parts),
        target_names=chosen.targets,
        sha256=info.content_sha256 or table.sha256,
        steps=tuple(recording_step(column) for column in y[known].T),
        categorical=categorical,
        levels=tuple(parts[k].levels or () for k in categorical),
        kinds=tuple(part.kind for part in parts),
        scheme=scheme_of(info),
        split_key=None if key is None else _split_key(info, table.columns[index[key]], table.values[known, index[key]]),
        left_out=left_out,
        missing_targets=stop - start - len(known),
    )


def scheme_of(info: DatasetInfo) -> Scheme:
    """Return how the outer splits of a dataset are cut."""
    return Scheme.groups if info.groups else Scheme.time if info.time else Scheme.random


def _left_out(table: Table, targets: Sequence[str], groups: str | None) -> dict[str, str]:
    """Return the columns that are no features unless they are listed as such, and why."""
    found = {}
    for column, values in zip(table.columns, table.values.T, strict=True):
        if column.name in targets:
            continue
        if column.name == groups:
            found[column.name] = "says the group of a row"
        elif column.kind is Kind.text and not column.problem:
            found[column.name] = f"free text: {len(column.levels)} different values in {len(table)} rows"
        elif len(values) and np.isnan(values).all() and not column.problem:
            found[column.name] = "empty"
    return found


def _target(info: DatasetInfo, column: TableColumn, values: np.ndarray) -> np.ndarray:
    problem = column.problem
    if not problem and column.kind not in (Kind.numeric, Kind.boolean):
        problem = f"column {column.name!r} must be numeric, found {column.kind.value} values"
        problem += f" such as {column.levels[0]!r}" if column.levels else ""
    if not problem and len(values) and np.isnan(values).all():
        problem = f"column {column.name!r} must have values, found none in {len(values)} rows"
    if problem:
        raise UserError(f"target of dataset {info.name!r} in {table_path(info)}: {problem}")
    return values


def _require_variation(info: DatasetInfo, name: str, y: np.ndarray) -> None:
    """Refuse a target that every method predicts perfectly, or that is too small to be squared."""
    if np.ptp(y) < SMALLEST_RANGE:
        raise UserError(
            f"target of dataset {info.name!r} in {table_path(info)}: column {name!r} must vary by more than "
            f"{SMALLEST_RANGE:g}, found values from {y.min():g} to {y.max():g}; is it the right column, and its unit?"
        )


def _features(info: DatasetInfo, column: TableColumn, values: np.ndarray) -> Iterator[_Feature]:
    """Yield the features that a column gives: itself, or the parts of a date."""
    problem = column.problem
    if column.kind is Kind.text and not problem:
        problem = (
            f"column {column.name!r} must be numeric or categorical, found free text: {len(column.levels)} different "
            "values; drop it from features, or name it in categorical"
        )
    if problem:
        raise UserError(f"feature of dataset {info.name!r} in {table_path(info)}: {problem}")
    if column.kind is Kind.date:
        for name, part in calendar_parts(column.name, values):
            yield _Feature(name, part, Kind.date, None)
    else:
        yield _Feature(column.name, values, column.kind, column.levels if column.kind is Kind.categorical else None)


def _split_key(info: DatasetInfo, column: TableColumn, values: np.ndarray) -> np.ndarray:
    """Return the numbers that the groups or the order of time are read from."""
    role = "groups" if info.groups else "time"
    where = f"{role} of dataset {info.name!r} in {table_path(info)}: column {column.name!r}"
    if column.problem and role == "time":
        raise UserError(f"{where}: {column.problem}")
    if role == "time" and column.kind not in (Kind.numeric, Kind.date):
        raise UserError(f"{where} must hold dates or numbers, found {column.kind.value} values")
    missing = int(np.isnan(values).sum())
    if missing:
        raise UserError(f"{where} must have a value in every row, found none in {missing} rows; fill or drop them")
    return values
