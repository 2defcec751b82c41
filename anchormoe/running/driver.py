"""The driver runs tasks on an engine and stores their rows and predictions; nothing else writes any."""

from __future__ import annotations

import contextlib
import dataclasses
import queue
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from anchormoe.config.schema import LimitConfig
from anchormoe.errors import UserError
from anchormoe.rows import Row, good, identity
from anchormoe.running import predictions
from anchormoe.running.engines.base import Engine, OverLimit
from anchormoe.running.evaluate import evaluate, failed_row
from anchormoe.running.ownership import Ownership
from anchormoe.running.store import Place, place


class AnyTask(Protocol):
    """The part of a task that the driver needs to know, whatever is to be computed."""

    @property
    def labels(self) -> Row:
        """Return the labels of the task's row, among them its identity."""

    def guess_seconds(self) -> float:
        """Guess the seconds of the task before any like it has been measured."""


@dataclass(frozen=True)
class StoredTask:
    """A task and the place its row goes to.

    Where predictions are required, a task is computed even if its row is stored but its predictions are not.
    """

    task: AnyTask
    path: Path | Place
    requires_predictions: bool = False

    @property
    def predictions_path(self) -> Place:
        """Return the place its predictions go to."""
        return predictions.path_for(place(self.path), self.task.labels)


class Driver:
    """Runs tasks whose rows are not stored yet; it resumes by the identity of rows, whichever engine ran before."""

    def __init__(
        self,
        tasks: Iterable[StoredTask],
        compute: Callable[[Any], Row] = evaluate,
        *,
        known: Iterable[Row] = (),
        limit: LimitConfig | None = None,
    ) -> None:
        self.tasks = list(tasks)
        self._compute = compute
        self._limit = limit or LimitConfig()
        self._over_limit: dict[tuple[Path | Place, str], Row] = {}  # a failed row of each configuration over a limit
        self._known = {identity(row): row for row in known if good(row)}  # stored elsewhere
        self._files = {path: place(path).stored_rows() for path in {item.path for item in self.tasks}}
        self._rows: dict[tuple[Path | Place, tuple[object, ...]], Row] = {}
        self._read()

    def _read(self) -> None:
        for path, file in self._files.items():
            self._rows |= {(path, identity(row)): row for row in file.rows() if good(row) or self._is_settled(row)}
        for item in self.tasks:
            row = self._known.get(identity(item.task.labels))
            if row is not None and _key(item) not in self._rows:
                self._rows[_key(item)] = row

    def _is_settled(self, row: Row) -> bool:
        """Tell whether a row failed under limits that were no tighter than today's: it would fail again."""
        before = row.get("limit")
        if not isinstance(before, dict):
            return False
        today = dataclasses.asdict(self._limit)
        return all(value is not None and value <= before[name] for name, value in today.items() if name in before)

    def pending(self) -> list[StoredTask]:
        """Return the tasks whose rows are not stored yet; failed ones count as not stored, unless over the limits."""
        files = {item.predictions_path for item in self.tasks if item.requires_predictions}
        splits = {path: predictions.stored_splits(path) for path in files}

        def lacks_predictions(item: StoredTask) -> bool:
            is_wanted = item.requires_predictions and good(self._rows[_key(item)])
            return is_wanted and item.task.labels["split"] not in splits[item.predictions_path]

        return [item for item in self.tasks if _key(item) not in self._rows or lacks_predictions(item)]

    def rows(self) -> list[Row]:
        """Return the rows of all tasks that have one, in the order of the tasks."""
        return [self._rows[_key(item)] for item in self.tasks if _key(item) in self._rows]

    def run(
        self,
        engine: Engine,
        ownership: Ownership,
        on_row: Callable[[StoredTask, Row], None],
        seconds: Callable[[AnyTask], float] = lambda task: 0.0,
    ) -> None:
        """Compute the pending tasks, those that take most seconds first; `on_row` is called after a row is stored."""
        self._read()  # another run may have stored rows before this one owned the files
        waiting = deque(sorted(self.pending(), key=lambda item: -seconds(item.task)))
        running: dict[Future[Row], StoredTask] = {}
        stored: set[Path | Place] = set()
        done: queue.SimpleQueue[Future[Row]] = queue.SimpleQueue()
        while True:
            not_tried = self._take_hopeless(waiting)
            try:
                while waiting and len(running) < engine.capacity:
                    item = waiting.popleft()
                    future = engine.submit(self._compute, item.task)
                    running[future] = item
                    future.add_done_callback(done.put)
            except Exception as error:  # its scheduler is gone
                raise _lost(engine, error) from None
            if not running and not not_tried:
                break
            finished = [(running.pop(future), future) for future in _all_waiting(done)] if running else []
            rows = [(item, row) for item, future in finished if (row := _row_of(item, future, engine)) is not None]
            rows += not_tried
            self._over_limit |= {_configuration(item): row for item, row in rows if "limit" in row}
            self._store(rows, ownership)
            stored |= {item.path for item, _ in rows}
            for item, row in rows:
                on_row(item, row)
            for _, future in finished:
                _require_engine(engine, future)
        for path in stored:
            self._files[path].tidy()

    def _take_hopeless(self, waiting: deque[StoredTask]) -> list[tuple[StoredTask, Row]]:
        """Take out the tasks of configurations that have broken a limit, with failed rows for them."""
        rows = []
        for item in [item for item in waiting if _configuration(item) in self._over_limit]:
            waiting.remove(item)
            before = self._over_limit[_configuration(item)]
            row = failed_row(item.task.labels, before["error"])
            rows.append((item, {**row, "limit": before["limit"], "tried": False}))
        return rows

    def _store(self, rows: list[tuple[StoredTask, Row]], ownership: Ownership) -> None:
        """Store predictions, then rows: a stored row has its predictions, whatever ends the process in between."""
        by_path, kept = defaultdict(list), defaultdict(list)
        for item, row in rows:
            columns = row.pop("predictions", None)
            by_path[item.path].append(row)
            if columns is not None:
                kept[item.predictions_path].append((row, columns))
        for path in by_path:
            ownership.require(path)
        for predictions_path, behind_rows in kept.items():
            with _storing("predictions", predictions_path):
                predictions.store(predictions_path, behind_rows)
        for path, of_path in by_path.items():
            with _storing("a row", path):
                self._files[path].append_all(of_path)
        self._rows = {_key(item): row for item, row in rows} | self._rows  # a row that was stored before stays


@contextlib.contextmanager
def _storing(what: str, path: Path | Place) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"{what} must be stored in {path}, but: {reason}; free space, then run again") from None


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
    if isinstance(error, OverLimit):
        reason = f"{error}; the method's other splits are not tried"
        return {**failed_row(item.task.labels, reason), "limit": error.limit}
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


def _configuration(item: StoredTask) -> tuple[Path | Place, str]:
    return item.path, item.task.labels["config_hash"]


def _key(item: StoredTask) -> tuple[Path | Place, tuple[object, ...]]:
    return item.path, identity(item.task.labels)
