"""Rows on disk: `results/<experiment>/<dataset>.jsonl`, one JSON object per line, appended as each split ends.

One run at a time appends to a file (running/ownership.py). Lines are written in one write and synced. A line that a
power failure left incomplete is dropped with a warning when it is read, and removed by the next append. Reading and
appending take time in proportion to the rows.
"""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Iterable
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
        """Append a row; return False and write nothing if a good row of its identity is already there."""
        return self.append_all([row]) == [row]

    def append_all(self, rows: Iterable[Row]) -> list[Row]:
        """Append rows in one write and sync them; return those written, without any whose good row is already there."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            tail = self._read_on(descriptor)
            whole_tail = _parsed(tail)  # a whole row without its newline, as an editor may leave it
            if whole_tail is not None:
                self._rows[identity(whole_tail)] = whole_tail
            new: dict[tuple[Any, ...], Row] = {}
            for row in rows:
                key = identity(row)
                if not any(good(known[key]) for known in (self._rows, new) if key in known):
                    new[key] = row
            if not new:
                return []
            text = "".join(json.dumps(row, allow_nan=False) + "\n" for row in new.values()).encode()
            self._write(descriptor, tail + b"\n" + text if whole_tail is not None else text)
            self._read_on(descriptor)
        finally:
            os.close(descriptor)
        return list(new.values())

    def _write(self, descriptor: int, text: bytes) -> None:
        """Write after the last whole line, and leave no part of it where that fails."""
        is_new = self._position == 0
        os.ftruncate(descriptor, self._position)  # else a torn last line would join this one
        os.lseek(descriptor, self._position, os.SEEK_SET)
        try:
            with os.fdopen(os.dup(descriptor), "wb") as file:
                file.write(text)
            os.fsync(descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, self._position)
            raise
        if is_new:
            for folder in (self.path.parent, self.path.parent.parent):
                _sync_folder(folder)  # else a power failure may take the name of the new file

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


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # some network file systems cannot
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _parsed(line: bytes) -> Row | None:
    """Return the row on a line, or None if the line holds no row."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    plain = (str, int, float, type(None))
    whole = isinstance(row, dict) and all(isinstance(row.get(name, []), plain) for name in (*IDENTITY, "status"))
    return row if whole else None
