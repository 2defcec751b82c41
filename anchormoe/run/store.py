"""Rows on disk: `results/<experiment>/<dataset>.jsonl`, one JSON object per line, appended as each split ends.

Several processes may append to one file. A line is written under a lock, in one write, and synced; what a power cut
leaves of a line is dropped with a warning when read and cut off by the next append.
"""

from __future__ import annotations

import fcntl
import json
import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from anchormoe.errors import UserError

Row = dict[str, Any]

# What makes two rows the same measurement. The config hash tells apart runs whose settings differ in any other way.
IDENTITY = ("dataset", "method", "ablation", "protocol", "anchor", "seed", "split", "config_hash")


def identity(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in IDENTITY)


def path_for(results_dir: Path, experiment: str, dataset: str) -> Path:
    return results_dir / experiment / f"{dataset}.jsonl"


def require_writable(path: Path) -> None:
    """Fail before hours of work, not after, where a row could not be stored."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab"):
            pass
    except OSError as error:
        raise UserError(
            f"results_dir must be a folder that can be written to, received {path.parent.parent}: {error.strerror}"
        ) from None


def append(path: Path, row: Row) -> bool:
    """Add a row, durably. Returns False, and writes nothing, if a good row of that identity is already there."""
    line = (json.dumps(row, allow_nan=False) + "\n").encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path) as descriptor:
        content = _read_all(descriptor)
        whole_lines = content.rfind(b"\n") + 1
        if any(good(other) and identity(other) == identity(row) for other in _parse(content[:whole_lines], path)):
            return False
        os.ftruncate(descriptor, whole_lines)  # a torn last line would swallow this one
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.seek(whole_lines)
            file.write(line)
        os.fsync(descriptor)
    return True


def good(row: Row) -> bool:
    return row["status"] == "ok"


def read(path: Path) -> list[Row]:
    """All rows of one file, the last one of each identity, in order of first appearance; [] if there is no file."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    rows: dict[tuple[Any, ...], Row] = {}
    for row in _parse(content, path):
        rows[identity(row)] = row
    return list(rows.values())


def load_results(results_dir: Path, experiments: Iterable[str] | None = None) -> pd.DataFrame:
    """Stored rows of the named experiments (default: all of them) as a table with an `experiment` column."""
    names = sorted(p.name for p in results_dir.glob("*") if p.is_dir()) if experiments is None else experiments
    rows = [
        {"experiment": name, **row}
        for name in names
        for path in sorted((results_dir / name).glob("*.jsonl"))
        for row in read(path)
    ]
    return pd.DataFrame(rows, columns=None if rows else ["experiment", *IDENTITY, "status"])


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)  # releases the lock


def _read_all(descriptor: int) -> bytes:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return file.read()


def _parse(content: bytes, path: Path) -> Iterator[Row]:
    *lines, torn = content.split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            yield json.loads(line)
        except ValueError:
            warnings.warn(f"{path}: line {number} is not a row and was dropped", stacklevel=3)
    if torn:
        warnings.warn(f"{path}: the last line is torn and was dropped", stacklevel=3)
