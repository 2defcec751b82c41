"""Datasets, read and verified: from the copy in the package, the public home, or a file of the user's."""

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from anchormoe.data.catalogue import DatasetInfo, raise_unknown
from anchormoe.data.containers import ContainerError
from anchormoe.data.download import fetch
from anchormoe.data.formats import content_sha256, read_table, require_content
from anchormoe.errors import UserError
from anchormoe.paths import shipped

SOURCES = ("embedded", "download")
MIN_ROWS = 40  # fewer leave only a handful to validate, calibrate and test on


@dataclass(frozen=True, eq=False)
class Dataset:
    """One regression task in original units; rows in the order of the file."""

    name: str
    variant: str
    X: np.ndarray  # (rows, features) float64, C-contiguous
    y: np.ndarray  # (rows,) float64
    feature_names: tuple[str, ...]
    target_name: str
    sha256: str  # content hash of the whole table, shared by all variants


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
    matter only to `source="download"`.
    """
    info.choose_variant(variant)  # a wrong name should fail before anything is downloaded
    if source not in SOURCES:
        raise_unknown("data source", source, SOURCES)
    if info.path is None and source == "download":
        columns, table = info.columns, fetch(info, mirror=mirror, cache_dir=cache_dir).table
    else:
        columns, table = file_table(info)
    return _select(info, columns, table, variant)


def num_rows(info: DatasetInfo, variant: str | None = None) -> int:
    """Return the number of rows of a variant; the table is read only if the description does not state it."""
    _, chosen = info.choose_variant(variant)
    if chosen.rows is not None:
        return chosen.rows[1] - chosen.rows[0]
    return len(load(info, variant=variant).y) if info.rows is None else info.rows


def pinned(info: DatasetInfo) -> DatasetInfo:
    """Return the description with its table's content hash stated, so that a file that changes later is refused."""
    return info if info.content_sha256 else dataclasses.replace(info, content_sha256=load(info).sha256)


def table_path(info: DatasetInfo) -> Path:
    """Return the file with the table: the user's, or the copy that ships with the package."""
    return shipped("data") / f"{info.name}.csv.xz" if info.path is None else Path(info.path).expanduser()


def file_table(info: DatasetInfo) -> tuple[list[str], np.ndarray]:
    """Return the column names and values of the dataset's file, checked against what its description states."""
    path = table_path(info)
    try:
        state = path.stat()
        columns, table = _parsed(path.absolute(), state.st_mtime_ns, state.st_size, info.path is None)
        require_content(table, info)
        if info.rows not in (None, len(table)) or len(info.columns or columns) != len(columns):
            expected = f"{info.rows or len(table)} rows x {len(info.columns or columns)} columns"
            raise ContainerError(f"expected {expected}, found {len(table)} rows x {len(columns)} columns")
        return info.columns or columns, table
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


@functools.lru_cache(maxsize=2)
def _parsed(path: Path, modified_ns: int, size: int, trusted: bool) -> tuple[list[str], np.ndarray]:
    """Return the column names and values of a file, which is parsed once as long as it does not change."""
    return read_table(path.read_bytes(), trusted=trusted)


def _select(info: DatasetInfo, columns: Sequence[str], table: np.ndarray, variant: str | None) -> Dataset:
    """Cut one variant's features and target out of the table."""
    name, chosen = info.choose_variant(variant)
    features = chosen.feature_names(columns)
    index = {column: k for k, column in enumerate(columns)}
    for kind, column in [("target", chosen.target), *(("feature", feature) for feature in features)]:
        if column not in index:
            raise_unknown(f"{kind} of dataset {info.name!r} in {table_path(info)}", column, columns)
    start, stop = chosen.rows or (0, len(table))
    if stop > len(table) or stop - start < MIN_ROWS or not features:
        raise UserError(
            f"dataset {info.name!r} must have at least {MIN_ROWS} rows and a feature, received rows {start} to {stop} "
            f"and {len(features)} features of {len(table)} x {len(columns)} values in {table_path(info)}; add data"
        )
    rows = table[start:stop]
    return Dataset(
        name=info.name,
        variant=name,
        X=np.ascontiguousarray(rows[:, [index[column] for column in features]]),
        y=rows[:, index[chosen.target]].copy(),
        feature_names=tuple(features),
        target_name=chosen.target,
        sha256=info.content_sha256 or content_sha256(table),
    )
