"""A worker process of this machine, and the thread that gives it calls and waits for what they return.

They are connected by a pipe that nobody else holds, so whichever of them dies, the other sees the end of the pipe.
Pools of the standard library share named semaphores instead, and fail all calls that wait when one process dies.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import queue
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

from anchormoe.arithmetic import portable_children
from anchormoe.config.schema import LimitConfig
from anchormoe.running.engines.base import OverLimit, WorkerDied
from anchormoe.running.provenance import resident_bytes

_WATCH_EVERY = 0.2  # seconds between two looks at a worker: it may have died, or broken a limit
_starting = threading.Lock()  # the start of a process changes the state of this one for a moment


@dataclass
class Call:
    """A function to call in a worker, and the future of its result."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    named: dict[str, Any]
    future: Future[Any] = field(default_factory=Future)


class Worker:
    """A thread that takes calls from a queue, and the process that computes them.

    The process is started for the first call. When it dies, the call under way fails with WorkerDied, and another
    process computes the next one.
    """

    def __init__(self, folder: str, limit: LimitConfig, calls: queue.SimpleQueue[Call | None]) -> None:
        self._folder = folder
        self._limit = limit
        self._calls = calls
        self._process: SpawnProcess | None = None
        self._pipe: Connection | None = None
        self._is_busy = False
        self._is_ending = False
        self._lock = threading.Lock()  # no process is started once this is ending
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Begin to end the process, also in the middle of a call."""
        with self._lock:
            self._is_ending = True
            if self._process is not None and self._is_busy:
                self._process.terminate()
        self._calls.put(None)

    def join(self, deadline: float) -> None:
        """Wait until the process has ended, and kill it when the monotonic clock has reached the deadline."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._process is not None:
            self._process.join(max(0.0, deadline - time.monotonic()))
            self._process.kill()
            self._process.join()

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                result = self._compute(call)
            except BaseException as error:
                self._is_busy = False
                call.future.set_exception(error)
            else:
                self._is_busy = False
                call.future.set_result(result)
        if self._pipe is not None:
            self._pipe.close()  # the process takes it for its end

    def _compute(self, call: Call) -> Any:
        message = pickle.dumps((call.function, call.arguments, call.named))
        while True:
            pipe, process = self._ready_process()
            try:
                pipe.send_bytes(message)
                pipe.recv_bytes()
            except (EOFError, OSError):  # it died while it was idle
                self._discard(process)
                continue
            try:
                self._wait(pipe, process)
                answer = pipe.recv_bytes()
            except (EOFError, OSError):
                self._discard(process)
                raise WorkerDied("a worker process died while this split was under way") from None
            except OverLimit:
                self._discard(process)
                raise
            succeeded, result = pickle.loads(answer)
            if succeeded:
                return result
            raise result

    def _ready_process(self) -> tuple[Connection, SpawnProcess]:
        """Return the process and the pipe to it; start one if there is none."""
        with self._lock:
            if self._is_ending:
                raise WorkerDied("the engine has been shut down")
            self._is_busy = True
            if self._process is not None and self._pipe is not None:
                return self._pipe, self._process
            try:
                self._pipe, self._process = pipe, process = _start(self._folder, self._limit.memory_gb is None)
            except OSError as error:
                raise WorkerDied(f"a worker process could not be started: {error.strerror}") from None
        try:
            pipe.recv_bytes()
        except (EOFError, OSError):
            self._discard(process)
            raise WorkerDied("a worker process died while it was started") from None
        return pipe, process

    def _discard(self, process: SpawnProcess) -> None:
        process.kill()
        process.join()
        with self._lock:
            if self._pipe is not None:
                self._pipe.close()
            self._pipe = self._process = None

    def _wait(self, pipe: Connection, process: SpawnProcess) -> None:
        """Wait for the result of a call that has just begun; raise OverLimit when it breaks a limit."""
        limit, begun = self._limit, time.monotonic()
        while not pipe.poll(_WATCH_EVERY):
            if not process.is_alive() and not pipe.poll():
                raise EOFError("a process that it has started holds the pipe open")
            if limit.seconds is not None and time.monotonic() - begun > limit.seconds:
                raise OverLimit(f"stopped after limit.seconds={limit.seconds:g}", {"seconds": limit.seconds})
            if limit.memory_gb is not None and resident_bytes(process.pid or 0) > limit.memory_gb * 1e9:
                raise OverLimit(f"stopped above limit.memory_gb={limit.memory_gb:g}", {"memory_gb": limit.memory_gb})


def _start(folder: str, keeps_memory: bool) -> tuple[Connection, SpawnProcess]:
    context = multiprocessing.get_context("spawn")  # forking a process that has run torch can deadlock
    with _starting:
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, os.getpid(), folder, keeps_memory))
        try:
            resource_tracker.ensure_running()  # unblocks Ctrl-C in this thread if it has to start one
            with _main_left_out(), _interrupts_held_back(), portable_children():
                process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()  # else the death of the process would not end the pipe
    return ours, process


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


# --- the worker's side


def _work(pipe: Connection, parent: int, folder: str, keeps_memory: bool) -> None:
    """Compute calls until the pipe ends."""
    threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()
    with ExitStack() as lifetime:
        _prepare(lifetime, folder, keeps_memory)
        with suppress(EOFError, OSError):
            pipe.send_bytes(b"ready")
            while True:
                message = pipe.recv_bytes()
                pipe.send_bytes(b"begun")
                pipe.send_bytes(_answer(message))


def _prepare(lifetime: ExitStack, folder: str, keeps_memory: bool) -> None:
    """Prepare a worker; one whose memory is limited returns what is freed, or an earlier call would count as well."""
    from anchormoe.model.sharing import shared_fits
    from anchormoe.running.provenance import environment
    from anchormoe.running.threads import keep_freed_memory, one_thread

    environment()
    lifetime.enter_context(one_thread())
    lifetime.enter_context(shared_fits(folder))
    if keeps_memory:
        keep_freed_memory()


def _answer(message: bytes) -> bytes:
    """Return whether a call succeeded, with its result or what it raised."""
    try:
        function, arguments, named = pickle.loads(message)
        return pickle.dumps((True, function(*arguments, **named)))
    except BaseException as error:
        try:
            return pickle.dumps((False, error))
        except Exception:  # it holds what cannot be sent
            return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))


def _exit_with(parent: int) -> None:
    """End a worker whose parent was killed."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
