"""Rows on disk: `results/<experiment>/<dataset>.jsonl`, one JSON object per line, appended as each split ends.

Several runs may append to one file. A line is written under a lock, in one write, and synced. A line that a power
failure left incomplete is dropped with a warning when it is read, and removed by the next append.
"""

from __future__ import annotations

import fcntl
import json
import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchormoe.errors import UserError
from anchormoe.rows import IDENTITY, Row, good, identity

if TYPE_CHECKING:
    import pandas as pd


def path_for(results_dir: Path, experiment: str, dataset: str) -> Path:
    """Return the file that holds an experiment's rows of a dataset."""
    return results_dir / experiment / f"{dataset}.jsonl"


class RowFile:
    """One file of rows. It reads only what was appended since it last read, never the whole file again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows: dict[tuple[Any, ...], Row] = {}
        self._position = 0  # position of the first byte not yet read
        self._line_number = 0

    def rows(self) -> list[Row]:
        """Return the last row of each identity, in order of first appearance; none if there is no file."""
        try:
            with self.path.open("rb") as file:
                tail = self._read_on(file.fileno())
            self._take(tail, "the last line is torn")
        except FileNotFoundError:
            self._rows.clear()
            self._position = self._line_number = 0
        return list(self._rows.values())

    def append(self, row: Row) -> bool:
        """Append a row and sync it; return False and write nothing if a good row of its identity is already there."""
        line = (json.dumps(row, allow_nan=False) + "\n").encode()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(self.path) as descriptor:
            tail = self._read_on(descriptor)
            whole_tail = _parsed(tail)  # a whole row without its newline, as an editor may leave it
            if whole_tail is not None:
                self._rows[identity(whole_tail)] = whole_tail
            stored = self._rows.get(identity(row))
            if stored is not None and good(stored):
                return False
            os.ftruncate(descriptor, self._position)  # else a torn last line would join this one
            os.lseek(descriptor, self._position, os.SEEK_SET)
            if whole_tail is not None:
                line = tail + b"\n" + line
            with os.fdopen(os.dup(descriptor), "wb") as file:
                file.write(line)
            os.fsync(descriptor)
            self._read_on(descriptor)
        return True

    def _read_on(self, descriptor: int) -> bytes:
        """Read the lines that were added since the last call, and return what follows the last newline."""
        if os.fstat(descriptor).st_size < self._position:  # the file was cut or replaced
            self._rows.clear()
            self._position = self._line_number = 0
        with os.fdopen(os.dup(descriptor), "rb") as file:
            file.seek(self._position)
            *lines, tail = file.read().split(b"\n")
        for line in lines:
            self._line_number += 1
            self._position += len(line) + 1
            self._take(line, f"line {self._line_number} is not a row")
        return tail

    def _take(self, line: bytes, complaint: str) -> None:
        row = _parsed(line)
        if row is not None:
            self._rows[identity(row)] = row
        elif line.strip():
            warnings.warn(f"{self.path}: {complaint} and was dropped", stacklevel=3)


def read(path: Path) -> list[Row]:
    """Return the rows of one file."""
    return RowFile(path).rows()


def load_results(results_dir: Path, experiments: Iterable[str] | None = None) -> pd.DataFrame:
    """Return stored rows of the named experiments (default: all of them) as a table with an `experiment` column."""
    import pandas as pd

    names = sorted(p.name for p in results_dir.glob("*") if p.is_dir()) if experiments is None else experiments
    rows = [
        {"experiment": name, **row}
        for name in names
        for path in sorted((results_dir / name).glob("*.jsonl"))
        for row in read(path)
    ]
    return pd.DataFrame(rows, columns=None if rows else ["experiment", *IDENTITY, "status"])


def require_writable(path: Path) -> None:
    """Raise a UserError before a run if its rows could not be stored."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab"):
            pass
    except OSError as error:
        raise UserError(
            f"results_dir must be a folder that can be written to, received {path.parent.parent}: {error.strerror}"
        ) from None


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)  # releases the lock


def _parsed(line: bytes) -> Row | None:
    """Return the row on a line, or None if the line holds no row."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    plain = (str, int, float, type(None))
    whole = isinstance(row, dict) and all(isinstance(row.get(name, []), plain) for name in (*IDENTITY, "status"))
    return row if whole else None
