"""The rows of one dataset of an experiment: what is the same for a file and for the objects of a store."""

from __future__ import annotations

import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from anchormoe.rows import IDENTITY, Row, good, identity


class StoredRows(ABC):
    """Rows by identity, of which a good one is stored once. A subclass reads and writes lines of JSON."""

    def __init__(self) -> None:
        self._rows: dict[tuple[Any, ...], Row] = {}

    @abstractmethod
    def rows(self) -> list[Row]:
        """Return the last row of each identity, in order of first appearance; none if nothing is stored."""

    @abstractmethod
    def append_all(self, rows: Iterable[Row]) -> list[Row]:
        """Store rows together and durably; return those written, without any whose good row is already there."""

    def append(self, row: Row) -> bool:
        """Append a row; return False and write nothing if a good row of its identity is already there."""
        return self.append_all([row]) == [row]

    @abstractmethod
    def tidy(self) -> None:
        """Bring what a run has stored into a shape that is quick to read."""

    def _not_stored(self, rows: Iterable[Row]) -> dict[tuple[Any, ...], Row]:
        """Return the rows to write, by identity: those that have no good row yet, here or among themselves."""
        new: dict[tuple[Any, ...], Row] = {}
        for row in rows:
            key = identity(row)
            if not any(good(known[key]) for known in (self._rows, new) if key in known):
                new[key] = row
        return new

    def _take(self, line: bytes, where: object, complaint: str) -> None:
        """Take a line that was read; anything but a row is dropped with a warning."""
        row = parsed(line)
        if row is not None:
            self._keep(row)
        elif line.strip():
            warnings.warn(f"{where}: {complaint} and was dropped", stacklevel=3)

    def _keep(self, row: Row) -> None:
        self._rows[identity(row)] = row


def text_of(rows: Iterable[Row]) -> bytes:
    """Write rows as lines of JSON."""
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows).encode()


def parsed(line: bytes) -> Row | None:
    """Return the row on a line, or None if the line holds no row."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    plain = (str, int, float, type(None))
    whole = isinstance(row, dict) and all(isinstance(row.get(name, []), plain) for name in (*IDENTITY, "status"))
    return row if whole else None
