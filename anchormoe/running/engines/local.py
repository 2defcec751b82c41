"""The engine of this machine: this process for one worker, else processes of one thread each."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from typing import Any

from anchormoe.config.schema import LimitConfig
from anchormoe.running.engines.base import Engine
from anchormoe.running.engines.process import Call, Worker
from anchormoe.running.temporary import temporary_folder

_PATIENCE = 10.0  # seconds that a worker has to exit


class InProcess(Engine):
    """An engine that computes every task immediately, in this process, with one thread."""

    name = "local"
    capacity = 1

    def __init__(self) -> None:
        from anchormoe.model.sharing import shared_fits
        from anchormoe.running.threads import one_thread

        self._lifetime = ExitStack()
        folder = self._lifetime.enter_context(temporary_folder())
        self._lifetime.enter_context(one_thread())
        self._lifetime.enter_context(shared_fits(folder))

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function(*arguments, **named))
        except Exception as error:
            future.set_exception(error)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._lifetime.close()


class LocalProcesses(Engine):
    """An engine of worker processes, of which one that dies loses only its own task.

    A future whose worker died has the exception WorkerDied; a new process takes the next task. A pool of the standard
    library would fail every task that waits.
    """

    name = "local"

    def __init__(self, workers: int, limit: LimitConfig | None = None) -> None:
        self.capacity = workers + 1
        self._lifetime = ExitStack()
        folder = self._lifetime.enter_context(temporary_folder())
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._workers = [Worker(folder, limit or LimitConfig(), self._calls) for _ in range(workers)]
        self._closed = False

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        if self._closed:
            raise RuntimeError("the engine has been shut down")
        call = Call(function, arguments, named)
        self._calls.put(call)
        return call.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the tasks under way and drop those that wait."""
        self._closed = True
        with suppress(queue.Empty):
            while True:
                self._calls.get_nowait()
        for worker in self._workers:
            worker.end()
        deadline = time.monotonic() + _PATIENCE
        for worker in self._workers:
            worker.join(deadline)  # else it might still write into the folder of shared fits while that is removed
        self._lifetime.close()
