"""The contract of an engine."""

from __future__ import annotations

import importlib
from concurrent.futures import Executor
from types import ModuleType

from anchormoe.errors import UserError


class WorkerDied(Exception):
    """Raised when the process that computed a task has died, for example for lack of memory."""


class OverLimit(WorkerDied):
    """Raised when a task was ended because it broke a limit; `limit` names the one it broke, with its value."""

    def __init__(self, reason: str, limit: dict[str, float]) -> None:
        super().__init__(reason)
        self.limit = limit


class Engine(Executor):
    """An executor with a `capacity`: the number of tasks that it should hold at a time.

    This is little more than it computes at a time, so that an interruption leaves no queue to wait for. A future whose
    worker died has an exception of one of the classes `worker_died`; any other exception that is not the task's own
    means that the engine itself is lost. Leaving the `with` block ends the tasks under way.
    """

    name: str
    capacity: int
    worker_died: tuple[type[BaseException], ...] = (WorkerDied,)


def import_library(engine: str, module: str) -> ModuleType:
    """Import a library that an engine needs; the extra that installs it has the engine's name."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UserError(f"engine={engine} needs the {error.name} package: pip install 'anchormoe[{engine}]'") from None
