"""Rows in an object store: `<experiment>/<dataset>.jsonl/` holds one object for every batch of rows stored together.

Objects are numbered, written once under a name that nobody else uses, and never changed. At the end of a run its owner
merges the small ones: it writes the merged object first, then removes those it was made from. At any moment every row
is in some object; a row that is in two of them is read once.
"""

from __future__ import annotations

import re
import uuid
import warnings
from collections import defaultdict
from collections.abc import Iterable

from anchormoe.errors import UserError
from anchormoe.rows import Row, good, identity
from anchormoe.running.object_store import ObjectPlace
from anchormoe.running.stored_rows import StoredRows, text_of

SMALL_BYTES = 8_000_000  # larger objects are not merged again: many short runs do not rewrite all rows each time
_NAME = re.compile(r"(\d{9})-\w+\.jsonl")
_ATTEMPTS = 10


class RowObjects(StoredRows):
    """The rows of one dataset of an experiment. It fetches only objects that it has not seen, never all of them again.

    An object of the folder's own name is read too, so that a results folder can be copied to the store as it is.
    """

    def __init__(self, path: ObjectPlace, fetched: dict[str, bytes] | None = None) -> None:
        super().__init__()
        self.path = path
        self._fetched = fetched  # contents for the first reading
        self._seen: set[str] | None = None  # keys of the objects whose rows are known; None before the first reading
        self._last_number = 0

    def rows(self) -> list[Row]:
        """Return the last row of each identity, a good one before failed ones, in order of first appearance."""
        if self._fetched is not None:
            contents, self._fetched = self._fetched, None
        else:
            contents = self._fetch()
        for key, content in contents.items():
            for number, line in enumerate(content.split(b"\n"), 1):
                self._take(line, self.path.at(key), f"line {number} is not a row")
        return list(self._rows.values())

    def append_all(self, rows: Iterable[Row]) -> list[Row]:
        """Store rows as one object; return those written, without any whose good row is already there.

        What others have stored since the last reading is not looked for: the owner is the only one that writes.
        """
        if self._seen is None:
            self.rows()
        new = self._not_stored(rows)
        if new:
            self._write(self._last_number + 1, text_of(new.values()))
            self._rows |= new
        return list(new.values())

    def tidy(self) -> None:
        """Merge the small objects into one. Whatever ends this half-way, every row is in some object."""
        small = [key for key, size in self.path.sizes().items() if size < SMALL_BYTES and _number(key)]
        if len(small) < 2:
            return
        contents = self.path.read_all(small)
        lines = dict.fromkeys(line for content in contents.values() for line in content.split(b"\n") if line.strip())
        self._write(_number(small[-1]), b"\n".join(lines) + b"\n")
        self.path.remove(list(contents))
        if self._seen is not None:
            self._seen -= set(contents)

    def _write(self, number: int, text: bytes) -> None:
        """Write an object under a new name, behind all objects of lower numbers."""
        target = self.path / f"{number:09d}-{uuid.uuid4().hex[:12]}.jsonl"
        target.put(text)
        self._last_number = max(self._last_number, number)
        if self._seen is not None:
            self._seen.add(target.key)

    def _fetch(self) -> dict[str, bytes]:
        """Return the contents of the objects that have not been seen; start anew if any of the others is gone."""
        for _ in range(_ATTEMPTS):
            keys = _objects_of_rows(self.path, self.path.sizes())
            if not (self._seen or set()) <= set(keys):
                self._rows.clear()
                self._seen = None
            new = [key for key in keys if key not in (self._seen or ())]
            contents = self.path.read_all([self.path.key, *new])
            if set(new) <= set(contents):  # else their owner has just merged them
                self._seen = set(keys)
                self._last_number = max([self._last_number, *map(_number, keys)])
                return contents
        raise UserError(f"{self.path} must hold still while it is read, but its objects vanish; try again later")

    def _keep(self, row: Row) -> None:
        known = self._rows.get(identity(row))
        if known is None or good(row) or not good(known):
            super()._keep(row)


def experiments(results: ObjectPlace, names: Iterable[str] | None) -> list[tuple[str, RowObjects]]:
    """Return the rows of the named experiments (default: all): one listing, then all objects side by side."""
    keys: dict[tuple[str, str], list[str]] = defaultdict(list)
    for key in results.sizes():
        experiment, _, rest = key.partition("/")
        dataset = rest.partition("/")[0]
        if dataset.endswith(".jsonl") and not _number(dataset):  # else results_dir is a folder too deep
            keys[experiment, dataset].append(key)
    wanted = sorted({experiment for experiment, _ in keys}) if names is None else names
    files = [(name, results / name / dataset) for name in wanted for (of, dataset) in sorted(keys) if of == name]
    listed = {path: _objects_of_rows(path, keys[name, path.name]) for name, path in files}
    contents = results.read_all(key for of_path in listed.values() for key in of_path)
    found = []
    for name, path in files:
        fetched = {key: contents[key] for key in listed[path] if key in contents}
        is_whole = len(fetched) == len(listed[path])  # else their owner has just merged them
        found.append((name, RowObjects(path, fetched if is_whole else None)))
    return found


def _objects_of_rows(path: ObjectPlace, keys: Iterable[str]) -> list[str]:
    """Return the keys of objects that hold rows; any other is mentioned."""
    chosen = []
    for key in keys:
        if key.endswith(".jsonl"):
            chosen.append(key)
        else:
            warnings.warn(f"{path.at(key)} is no object of rows and was skipped", stacklevel=2)
    return chosen


def _number(key: str) -> int:
    """Return the number of an object; 0 if somebody else gave it its name."""
    found = _NAME.fullmatch(key.rpartition("/")[2])
    return int(found[1]) if found else 0
