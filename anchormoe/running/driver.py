"""The driver runs tasks on an engine and stores their rows; nothing else writes rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from pathlib import Path

from anchormoe.errors import UserError
from anchormoe.rows import Row, good, identity
from anchormoe.running.engines import Engine
from anchormoe.running.evaluate import evaluate, failed_row
from anchormoe.running.store import RowFile
from anchormoe.running.tasks import Task


@dataclass(frozen=True)
class StoredTask:
    """A task and the file its row goes to."""

    task: Task
    path: Path


class Driver:
    """Runs tasks whose rows are not stored yet; it resumes by the identity of rows, whichever engine ran before."""

    def __init__(self, tasks: Iterable[StoredTask]) -> None:
        self.tasks = list(tasks)
        self._files = {path: RowFile(path) for path in {item.path for item in self.tasks}}
        self._rows = {
            (path, identity(row)): row for path, file in self._files.items() for row in file.rows() if good(row)
        }

    def pending(self) -> list[StoredTask]:
        """Return the tasks whose rows are not stored yet; failed ones count as not stored."""
        return [item for item in self.tasks if _key(item) not in self._rows]

    def rows(self) -> list[Row]:
        """Return the rows of all tasks that have one, in the order of the tasks."""
        return [self._rows[_key(item)] for item in self.tasks if _key(item) in self._rows]

    def run(self, engine: Engine, on_row: Callable[[StoredTask, Row], None]) -> None:
        """Compute the pending tasks; `on_row` is called after each row is stored."""
        waiting = iter(self.pending())
        running: dict[Future[Row], StoredTask] = {}
        while True:
            for item in itertools.islice(waiting, engine.capacity - len(running)):
                running[engine.submit(evaluate, item.task)] = item
            if not running:
                return
            wait(running, return_when=FIRST_COMPLETED)
            for future in [future for future in running if future.done()]:
                item = running.pop(future)
                row = self._row_of(future, item)
                self._store(item, row)
                on_row(item, row)

    def _row_of(self, future: Future[Row], item: StoredTask) -> Row:
        error = future.exception()
        if isinstance(error, UserError):
            raise error
        return failed_row(item.task.labels, str(error)) if error is not None else future.result()

    def _store(self, item: StoredTask, row: Row) -> None:
        try:
            self._files[item.path].append(row)
        except OSError as error:
            raise UserError(
                f"a row must be stored in {item.path}, but: {error.strerror}; free space, then run again"
            ) from None
        self._rows[_key(item)] = row


def _key(item: StoredTask) -> tuple[Path, tuple[object, ...]]:
    return item.path, identity(item.task.labels)
