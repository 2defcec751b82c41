"""The store of rows: `<results_dir>/<experiment>/<dataset>.jsonl`, in a folder or in an object store.

A `Place` is a path below results_dir. It has two implementations: `LocalPlace` for folders (running/local_store.py) and
`ObjectPlace` for object stores (running/object_store.py). Everything that reads or writes results goes through it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from anchormoe.errors import UserError
from anchormoe.rows import IDENTITY, SPLIT, Row
from anchormoe.rows import kind as kind_of
from anchormoe.running.local_store import LocalPlace, RowFile
from anchormoe.running.stored_rows import StoredRows

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Place", "RowFile", "load_results", "path_for", "place", "read"]

_Self = TypeVar("_Self", bound="Place")


class Place(Protocol):
    """A file or folder below results_dir, or results_dir itself; names are composed as those of pathlib."""

    @property
    def name(self) -> str: ...
    @property
    def parent(self: _Self) -> _Self: ...
    def __truediv__(self: _Self, name: str) -> _Self: ...
    def with_name(self: _Self, name: str) -> _Self: ...
    def with_suffix(self: _Self, suffix: str) -> _Self: ...
    def __lt__(self: _Self, other: _Self) -> bool: ...
    def __hash__(self) -> int: ...

    def resolve(self: _Self) -> _Self:
        """Return the place by the name that all its names lead to."""

    def is_dir(self) -> bool:
        """Tell whether anything is stored below this place."""

    def glob(self: _Self, pattern: str) -> Iterable[_Self]:
        """Return the files below this place whose relative path matches, such as `*/*.predictions/*.parquet`."""

    def read_bytes(self) -> bytes:
        """Return the content of a file; raise FileNotFoundError if there is none."""

    def put(self, content: bytes) -> None:
        """Write a file of any kind: durably, and as a whole or not at all."""

    def stored_rows(self) -> StoredRows:
        """Return the rows of the file of rows at this place."""

    def experiments(self: _Self, names: Iterable[str] | None) -> Iterable[tuple[str, StoredRows]]:
        """Return the rows of the named experiments (default: all) below this place, each with its experiment."""

    def require_writable(self) -> None:
        """Raise a UserError before a run if the rows of this place could not be stored."""

    # What a lock needs. A version stands for the content of a file: what it is, is the implementation's own business.

    def create(self, content: bytes) -> object | None:
        """Create a small file and return its version; None if there is one already."""

    def version(self) -> tuple[bytes, object] | None:
        """Return the content of a small file and its version; None if there is no file."""

    def replace_version(self, content: bytes, version: object) -> object | None:
        """Replace a file if it still has a version, and return the new one; None if it has changed or is gone."""

    def remove_version(self, version: object) -> None:
        """Remove a file if it still has a version."""

    @property
    def creates_exclusively(self) -> bool:
        """Tell whether, of two that create a file at the same moment, only one can succeed, for certain."""


def place(where: str | Path | Place) -> Place:
    """Return the place that results_dir names: a folder, or a URL such as s3://bucket/folder."""
    if isinstance(where, Path):
        return LocalPlace(where)
    if not isinstance(where, str):
        return where
    if not re.match(r"\w+://", where):
        return LocalPlace(where)
    from anchormoe.running.object_store import SCHEMES, open_store

    scheme, _, rest = where.partition("://")
    if scheme not in SCHEMES or not rest.strip("/"):
        schemes = ", ".join(f"{name}://" for name in SCHEMES)
        raise UserError(f"results_dir must be a folder or a bucket's URL ({schemes}), received {where}")
    return open_store(where)


def path_for(results_dir: str | Path | Place, experiment: str, dataset: str) -> Place:
    """Return the place that holds an experiment's rows of a dataset."""
    return place(results_dir) / experiment / f"{dataset}.jsonl"


def read(path: Path | Place) -> list[Row]:
    """Return the rows of one place."""
    return place(path).stored_rows().rows()


def load_results(
    results_dir: str | Path | Place, experiments: Iterable[str] | None = None, kind: str | None = SPLIT
) -> pd.DataFrame:
    """Return stored rows of the named experiments (default: all of them) as a table with an `experiment` column.

    The rows are those of one kind: of splits unless `kind` says otherwise, of any kind if it is None.
    """
    import pandas as pd

    rows = [
        {"experiment": name, **row}
        for name, file in place(results_dir).experiments(experiments)
        for row in file.rows()
        if kind is None or kind_of(row) == kind
    ]
    return pd.DataFrame(rows, columns=None if rows else ["experiment", *IDENTITY, "status"])
