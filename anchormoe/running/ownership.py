"""Ownership of files of rows: one run at a time writes to a file, also on network folders where flock does not work.

The owner keeps a lock file beside the rows and counts up a heartbeat in it. A lock left by a run that was killed is
taken over: immediately if its process ran on this machine, else after no heartbeat was seen for a while. No two
clocks are compared, so a clock that jumps does no harm.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from anchormoe.errors import UserError

BEAT_SECONDS = 5.0
WATCH_SECONDS = 3 * BEAT_SECONDS  # without a heartbeat for this long an owner elsewhere counts as dead
SETTLE_SECONDS = 0.2  # time for another run that takes over the same lock to show itself


class Ownership:
    """The lock files of a run, held inside a `with` block; `say` is told in one line when one is taken over."""

    def __init__(
        self, files: Iterable[Path], say: Callable[[str], None] = print, *, watch_seconds: float = WATCH_SECONDS
    ) -> None:
        self._locks = {path: _lock_of(path) for path in sorted(files)}
        self._say = say
        self._watch_seconds = watch_seconds
        self._token = uuid.uuid4().hex
        self._beat = 0
        self._held: list[Path] = []
        self._stopped = threading.Event()
        self._heart = threading.Thread(target=self._keep_beating, daemon=True)

    def __enter__(self) -> Ownership:
        try:
            for lock in self._locks.values():
                self._held.append(lock)
                self._acquire(lock)
        except BaseException:
            self._release()
            raise
        self._heart.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopped.set()
        self._heart.join()
        self._release()

    def require(self, path: Path) -> None:
        """Raise a UserError if another run has taken the file over, for example while this one was suspended."""
        found = _read(self._locks[path])
        if found.get("token") != self._token:
            raise UserError(f"{path} has been taken over by {_name(found)}; this run stops, its stored rows are safe")

    def _acquire(self, lock: Path) -> None:
        try:
            while not self._created(lock):
                found = _read(lock)
                self._refuse_if_alive(lock, found)
                if _read(lock) == found:
                    self._take_over(lock, found)
                    return
        except OSError as error:
            raise UserError(
                f"results_dir must be a folder that can be written to, received {lock.parent.parent}: {error.strerror}"
            ) from None

    def _created(self, lock: Path) -> bool:
        try:
            descriptor = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            return False
        with os.fdopen(descriptor, "w") as file:
            file.write(self._content())
        return True

    def _refuse_if_alive(self, lock: Path, found: dict[str, Any]) -> None:
        if _is_local(found):
            alive = _is_alive(found)
        else:
            seconds = f"{self._watch_seconds:g} s"
            self._say(f"{lock} belongs to {_name(found)}; watching for {seconds} whether that run is alive")
            deadline = time.monotonic() + self._watch_seconds
            while not (alive := _read(lock) != found) and time.monotonic() < deadline:
                time.sleep(min(0.5, self._watch_seconds / 10))
            alive = alive and lock.exists()
        if alive:
            raise UserError(
                f"{lock.with_suffix('')} must be written by one run at a time, and {_name(found)} is writing to it; "
                "wait for it to end, or name another folder with experiment_name= or results_dir="
            )

    def _take_over(self, lock: Path, found: dict[str, Any]) -> None:
        self._write(lock)
        time.sleep(SETTLE_SECONDS)
        self.require(lock.with_suffix(""))
        self._say(f"taking over {lock.with_suffix('')} from {_name(found)}, which ended without a word")

    def _content(self) -> str:
        return json.dumps(
            {
                "token": self._token,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "process": _process_of(os.getpid()),
                "beat": self._beat,
            }
        )

    def _write(self, lock: Path) -> None:
        temporary = lock.with_name(f".{lock.name}.{self._token}")
        try:
            temporary.write_text(self._content())
            os.replace(temporary, lock)
        finally:
            temporary.unlink(missing_ok=True)

    def _keep_beating(self) -> None:
        while not self._stopped.wait(BEAT_SECONDS):
            self._beat += 1
            for lock in self._held:
                with contextlib.suppress(OSError):  # a full disk must not end the run
                    if _read(lock).get("token") == self._token:
                        self._write(lock)

    def _release(self) -> None:
        for lock in self._held:
            with contextlib.suppress(OSError):
                if _read(lock).get("token") == self._token:
                    lock.unlink()
        self._held = []


def remove_abandoned_locks(files: Iterable[Path]) -> None:
    """Remove the locks of runs of this machine that were killed after their last row: no run takes those over."""
    for lock in map(_lock_of, files):
        found = _read(lock)
        if _is_local(found) and not _is_alive(found):
            with contextlib.suppress(OSError):
                lock.unlink()


def _lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def _is_local(found: dict[str, Any]) -> bool:
    return bool(_machine()) and str(found.get("process", "")).startswith(f"{_machine()}/")


def _is_alive(found: dict[str, Any]) -> bool:
    return _process_of(found.get("pid")) == found.get("process")


def _read(lock: Path) -> dict[str, Any]:
    """Return what a lock file says; an empty result if there is none or it is damaged."""
    try:
        found = json.loads(lock.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _name(found: dict[str, Any]) -> str:
    return f"process {found['pid']} on {found['host']}" if {"pid", "host"} <= set(found) else "an unknown run"


def _machine() -> str:
    """Identify this machine since its start and the namespace of its process numbers; empty if that is unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _process_of(pid: object) -> str:
    """Identify a running process: its number alone may be that of a later one. Empty if there is none."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return ""
    start_time = fields[18]  # the 22nd field of the file
    return "" if state in "ZX" else f"{_machine()}/{pid}/{start_time}"
