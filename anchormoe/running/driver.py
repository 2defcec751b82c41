"""The driver runs tasks on an engine and stores their rows; nothing else writes rows."""

from __future__ import annotations

import itertools
import queue
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from pathlib import Path

from anchormoe.errors import UserError
from anchormoe.rows import Row, good, identity
from anchormoe.running.engines.base import Engine
from anchormoe.running.evaluate import evaluate, failed_row
from anchormoe.running.ownership import Ownership
from anchormoe.running.store import RowFile
from anchormoe.running.tasks import Task


@dataclass(frozen=True)
class StoredTask:
    """A task and the file its row goes to."""

    task: Task
    path: Path


class Driver:
    """Runs tasks whose rows are not stored yet; it resumes by the identity of rows, whichever engine ran before."""

    def __init__(self, tasks: Iterable[StoredTask], compute: Callable[[Task], Row] = evaluate) -> None:
        self.tasks = list(tasks)
        self._compute = compute
        self._files = {path: RowFile(path) for path in {item.path for item in self.tasks}}
        self._rows: dict[tuple[Path, tuple[object, ...]], Row] = {}
        self._read()

    def _read(self) -> None:
        for path, file in self._files.items():
            self._rows |= {(path, identity(row)): row for row in file.rows() if good(row)}

    def pending(self) -> list[StoredTask]:
        """Return the tasks whose rows are not stored yet; failed ones count as not stored."""
        return [item for item in self.tasks if _key(item) not in self._rows]

    def rows(self) -> list[Row]:
        """Return the rows of all tasks that have one, in the order of the tasks."""
        return [self._rows[_key(item)] for item in self.tasks if _key(item) in self._rows]

    def run(
        self,
        engine: Engine,
        ownership: Ownership,
        on_row: Callable[[StoredTask, Row], None],
        seconds: Callable[[Task], float] = lambda task: 0.0,
    ) -> None:
        """Compute the pending tasks, those that take most seconds first; `on_row` is called after a row is stored."""
        self._read()  # another run may have stored rows before this one owned the files
        waiting = iter(sorted(self.pending(), key=lambda item: -seconds(item.task)))
        running: dict[Future[Row], StoredTask] = {}
        done: queue.SimpleQueue[Future[Row]] = queue.SimpleQueue()
        while True:
            try:
                for item in itertools.islice(waiting, max(0, engine.capacity - len(running))):
                    future = engine.submit(self._compute, item.task)
                    running[future] = item
                    future.add_done_callback(done.put)
            except Exception as error:  # its scheduler is gone
                raise _lost(engine, error) from None
            if not running:
                return
            finished = [(running.pop(future), future) for future in _all_waiting(done)]
            rows = [(item, row) for item, future in finished if (row := _row_of(item, future, engine)) is not None]
            self._store(rows, ownership)
            for item, row in rows:
                on_row(item, row)
            for _, future in finished:
                _require_engine(engine, future)

    def _store(self, rows: list[tuple[StoredTask, Row]], ownership: Ownership) -> None:
        by_path = defaultdict(list)
        for item, row in rows:
            by_path[item.path].append(row)
        for path, of_path in by_path.items():
            ownership.require(path)
            try:
                self._files[path].append_all(of_path)
            except OSError as error:
                raise UserError(
                    f"a row must be stored in {path}, but: {error.strerror}; free space, then run again"
                ) from None
        self._rows |= {_key(item): row for item, row in rows}


def _all_waiting(done: queue.SimpleQueue[Future[Row]]) -> Iterator[Future[Row]]:
    """Wait for a finished future, then yield all that have finished."""
    yield done.get()
    while not done.empty():
        yield done.get()


def _error_of(future: Future[Row]) -> BaseException | None:
    return CancelledError() if future.cancelled() else future.exception()


def _row_of(item: StoredTask, future: Future[Row], engine: Engine) -> Row | None:
    """Return the row of a finished future, a failed one if its worker died; None if there is something else amiss."""
    error = _error_of(future)
    if error is None:
        return future.result()
    if isinstance(error, engine.worker_died):
        return failed_row(item.task.labels, "a worker process died while this split was under way")
    return None


def _require_engine(engine: Engine, future: Future[Row]) -> None:
    """Raise what a future was ended by: a mistake of the user's, or the loss of the engine itself."""
    error = _error_of(future)
    if error is None or isinstance(error, engine.worker_died):
        return
    raise _lost(engine, error)


def _lost(engine: Engine, error: BaseException) -> UserError:
    if isinstance(error, UserError):
        return error
    reason = " ".join(f"{type(error).__name__} {error}".split())
    return UserError(
        f"engine={engine.name} must stay reachable, received {reason[:300]}; finished splits are stored, the same "
        "command goes on"
    )


def _key(item: StoredTask) -> tuple[Path, tuple[object, ...]]:
    return item.path, identity(item.task.labels)
