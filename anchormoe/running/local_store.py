"""Results in a folder: a file of rows has one JSON object per line, appended as each split ends.

One run at a time appends to a file (running/ownership.py). Lines are written in one write and synced. A line that a
power failure left incomplete is dropped with a warning when it is read, and removed by the next append. Reading and
appending take time in proportion to the rows.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path, PosixPath

from anchormoe.errors import UserError
from anchormoe.rows import Row, identity
from anchormoe.running.stored_rows import StoredRows, parsed, text_of


class LocalPlace(PosixPath):
    """A path of this machine's file systems, network folders included; no lock of the file system is used."""

    creates_exclusively = True

    def put(self, content: bytes) -> None:
        """Write a file durably, as a whole or not at all."""
        self.parent.mkdir(parents=True, exist_ok=True)
        self._replace(content, durably=True)
        _sync_folder(self.parent)

    def stored_rows(self) -> RowFile:
        """Return the rows of the file at this place."""
        return RowFile(self)

    def experiments(self, names: Iterable[str] | None) -> Iterator[tuple[str, RowFile]]:
        """Yield the files of rows of the named experiments (default: all) below this folder."""
        for name in sorted(path.name for path in self.glob("*") if path.is_dir()) if names is None else names:
            for path in sorted((self / name).glob("*.jsonl")):
                yield name, RowFile(path)

    def require_writable(self) -> None:
        """Raise a UserError before a run if rows could not be appended to the file at this place."""
        try:
            self.parent.mkdir(parents=True, exist_ok=True)
            with self.open("ab"):
                pass
        except OSError as error:
            raise UserError(
                f"results_dir must be a folder that can be written to, received {self.parent.parent}: {error.strerror}"
            ) from None

    # A version is the content itself: files are read and compared.

    def create(self, content: bytes) -> bytes | None:
        """Create a small file and return its version; None if there is one already."""
        try:
            descriptor = os.open(self, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            return None
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        return content

    def version(self) -> tuple[bytes, bytes] | None:
        """Return the content of a small file and its version; None if there is no file."""
        try:
            content = self.read_bytes()
        except FileNotFoundError:
            return None
        return content, content

    def replace_version(self, content: bytes, version: object) -> bytes | None:
        """Replace a file if it still has a version, and return the new one; None if it has changed or is gone."""
        found = self.version()
        if found is None or found[1] != version:
            return None
        self._replace(content)
        return content

    def remove_version(self, version: object) -> None:
        """Remove a file if it still has a version."""
        found = self.version()
        if found is not None and found[1] == version:
            self.unlink(missing_ok=True)

    def _replace(self, content: bytes, *, durably: bool = False) -> None:
        temporary = self.with_name(f".{self.name}.{uuid.uuid4().hex}")
        try:
            with temporary.open("wb") as file:
                file.write(content)
                if durably:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(temporary, self)
        finally:
            temporary.unlink(missing_ok=True)


class RowFile(StoredRows):
    """One file of rows. It reads only what was appended since it last read, never the whole file again."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self._position = 0  # position of the first byte not yet read
        self._line_number = 0

    def rows(self) -> list[Row]:
        """Return the last row of each identity, in order of first appearance; none if there is no file."""
        try:
            with self.path.open("rb") as file:
                tail = self._read_on(file.fileno())
            self._take(tail, self.path, "the last line is torn")
        except FileNotFoundError:
            self._rows.clear()
            self._position = self._line_number = 0
        return list(self._rows.values())

    def append_all(self, rows: Iterable[Row]) -> list[Row]:
        """Append rows in one write and sync them; return those written, without any whose good row is already there."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            tail = self._read_on(descriptor)
            whole_tail = parsed(tail)  # a whole row without its newline, as an editor may leave it
            if whole_tail is not None:
                self._rows[identity(whole_tail)] = whole_tail
            new = self._not_stored(rows)
            if not new:
                return []
            text = text_of(new.values())
            self._write(descriptor, tail + b"\n" + text if whole_tail is not None else text)
            self._read_on(descriptor)
        finally:
            os.close(descriptor)
        return list(new.values())

    def tidy(self) -> None:
        """Do nothing: a file is quick to read as it is."""

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
            self._take(line, self.path, f"line {self._line_number} is not a row")
        return tail


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # some network file systems cannot
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
