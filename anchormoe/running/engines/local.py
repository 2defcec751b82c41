"""The engine of this machine: this process for one worker, else processes of one thread each."""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import sys
import threading
import time
import types
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from typing import Any

from anchormoe.arithmetic import portable_children
from anchormoe.running.engines.base import Engine, WorkerDied
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
    """An engine of worker processes, each a pool of its own, so that one that dies loses only its own task.

    A future whose worker died has the exception WorkerDied; a new worker takes the next task.
    """

    name = "local"

    def __init__(self, workers: int) -> None:
        self.capacity = workers + 1
        self._lifetime = ExitStack()
        self._folder = self._lifetime.enter_context(temporary_folder())
        self._lock = threading.RLock()
        self._waiting: deque[tuple[Future[Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = deque()
        self._idle = [self._new_worker() for _ in range(workers)]
        self._busy: list[ProcessPoolExecutor] = []
        self._closed = False

    def _new_worker(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")  # forking a process that has run torch can deadlock
        return ProcessPoolExecutor(
            1, mp_context=context, initializer=_start_worker, initargs=(os.getpid(), self._folder)
        )

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the engine has been shut down")
            self._waiting.append((future, function, arguments, named))
        self._start_waiting()
        return future

    def _start_waiting(self) -> None:
        with self._lock:
            while self._waiting and self._idle and not self._closed:
                future, function, arguments, named = self._waiting.popleft()
                worker = self._idle.pop()
                try:
                    with _main_left_out(), _interrupts_held_back(), portable_children():
                        inner = worker.submit(function, *arguments, **named)
                except BrokenProcessPool:  # the worker died while it was idle
                    worker.shutdown(wait=False)
                    self._idle.append(self._new_worker())
                    self._waiting.appendleft((future, function, arguments, named))
                    continue
                except OSError as error:  # no process could be started
                    self._idle.append(worker)
                    future.set_exception(WorkerDied(f"a worker process could not be started: {error.strerror}"))
                    continue
                _leave_results_to(worker)
                self._busy.append(worker)
                inner.add_done_callback(functools.partial(self._finish, future, worker))

    def _finish(self, future: Future[Any], worker: ProcessPoolExecutor, done: Future[Any]) -> None:
        error: BaseException | None = None if done.cancelled() else done.exception()
        with self._lock:
            self._busy.remove(worker)
            if isinstance(error, BrokenProcessPool):
                worker.shutdown(wait=False)
                worker, error = self._new_worker(), WorkerDied("a worker process died while this split was under way")
            self._idle.append(worker)
        if done.cancelled():
            future.cancel()
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(done.result())
        self._start_waiting()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all workers; tasks under way are lost unless they were waited for before."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
            workers = [*self._idle, *self._busy]
        processes = [process for worker in workers for process in (worker._processes or {}).values()]
        for worker in workers:
            worker.shutdown(wait=False, cancel_futures=True)
        if self._busy:
            for process in processes:
                process.terminate()
        deadline = time.monotonic() + _PATIENCE
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():  # else it might still write into the folder of shared fits while that is removed
                process.kill()
                process.join()
        self._lifetime.close()


def _leave_results_to(worker: ProcessPoolExecutor) -> None:
    """Close this process's own end of the pipe on which a worker, now started, sends its results.

    A worker that is killed in the middle of a result leaves a part of it in the pipe. As long as anybody could still
    write to it, the pool would wait for the rest for ever.
    """
    queue: Any = worker._result_queue  # type: ignore[attr-defined]
    if not queue._writer.closed:
        queue._writer.close()


@contextmanager
def _main_left_out() -> Iterator[None]:
    """Hide the program's main module from the worker being started.

    Spawned workers import it again, and a script that calls run() at its top level would start again in each of them.
    These workers need nothing from it.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Block Ctrl-C, also in workers that are started meanwhile, which inherit the mask.

    A terminal sends the signal to all its processes, but only the parent should act on it: it ends its workers.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_worker_lifetime = ExitStack()  # keeps a reference to the contexts, which would otherwise be left immediately


def _start_worker(parent: int, folder: str) -> None:
    from anchormoe.model.sharing import shared_fits
    from anchormoe.running.provenance import environment
    from anchormoe.running.threads import keep_freed_memory, one_thread

    threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()
    environment()
    _worker_lifetime.enter_context(one_thread())
    _worker_lifetime.enter_context(shared_fits(folder))
    keep_freed_memory()


def _exit_with(parent: int) -> None:
    """End a worker whose parent was killed."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
