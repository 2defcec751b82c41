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
from anchormoe.running.store import Place, place

BEAT_SECONDS = 5.0
WATCH_SECONDS = 3 * BEAT_SECONDS  # without a heartbeat for this long an owner elsewhere counts as dead
SETTLE_SECONDS = 0.2  # time for another run that takes over the same lock to show itself
_TOKENS: set[str] = set()  # of the runs of this process that are under way


class Ownership:
    """The lock files of a run, held inside a `with` block; `say` is told in one line when one is taken over."""

    def __init__(
        self, files: Iterable[Path | Place], say: Callable[[str], None] = print, *, watch_seconds: float = WATCH_SECONDS
    ) -> None:
        self._locks = {path: _lock_of(path) for path in sorted(map(place, files))}
        self._say = say
        self._watch_seconds = watch_seconds
        self._token = uuid.uuid4().hex
        self._beat = 0
        self._held: dict[Place, object] = {}  # the version of each lock that this run has written
        self._stopped = threading.Event()
        self._heart = threading.Thread(target=self._keep_beating, daemon=True)

    def __enter__(self) -> Ownership:
        _TOKENS.add(self._token)
        try:
            taken_from = {path: self._acquire(path, lock) for path, lock in self._locks.items()}
            self._settle(taken_from)
        except BaseException:
            self._release()
            raise
        self._heart.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopped.set()
        self._heart.join()
        self._release()

    def require(self, path: Path | Place) -> None:
        """Raise a UserError if another run has taken the file over, for example while this one was suspended."""
        found = _read(self._locks[place(path)])
        if found.get("token") != self._token:
            raise UserError(f"{path} has been taken over by {_name(found)}; this run stops, its stored rows are safe")

    def _acquire(self, path: Place, lock: Place) -> dict[str, Any] | None:
        """Write the lock; return what a lock said that was taken over, None if there was none."""
        try:
            while True:
                version = lock.create(self._content())
                if version is not None:
                    self._held[lock] = version
                    return None
                found = lock.version()
                if found is None:
                    continue  # its owner has just ended
                content, version = found
                said = _parsed(content)
                if said.get("token") != self._token:  # else the answer to our own request was lost
                    self._refuse_if_alive(path, lock, content)
                version = lock.replace_version(self._content(), version)
                if version is not None:
                    self._held[lock] = version
                    return said
        except OSError as error:
            raise UserError(
                f"results_dir must be a folder that can be written to, received {path.parent.parent}: {error.strerror}"
            ) from None

    def _settle(self, taken_from: dict[Place, dict[str, Any] | None]) -> None:
        """Give another run that wrote the same locks time to show itself: the last writer has them."""
        unsure = [path for path, said in taken_from.items() if said is not None or not path.creates_exclusively]
        if unsure:
            time.sleep(SETTLE_SECONDS)
        for path in unsure:
            self.require(path)
            said = taken_from[path]
            if said is not None:
                self._say(f"taking over {path} from {_name(said)}, which ended without a word")

    def _refuse_if_alive(self, path: Place, lock: Place, content: bytes) -> None:
        found = _parsed(content)
        if _is_local(found):
            alive = _is_alive(found)
        else:
            seconds = f"{self._watch_seconds:g} s"
            self._say(f"{lock} belongs to {_name(found)}; watching for {seconds} whether that run is alive")
            deadline = time.monotonic() + self._watch_seconds
            while (now := _content_of(lock)) == content and time.monotonic() < deadline:
                time.sleep(min(0.5, self._watch_seconds / 10))
            alive = now not in (content, None)
        if alive:
            raise UserError(
                f"{path} must be written by one run at a time, and {_name(found)} is writing to it; "
                "wait for it to end, or name another folder with experiment_name= or results_dir="
            )

    def _content(self) -> bytes:
        return json.dumps(
            {
                "token": self._token,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "process": _process_of(os.getpid()),
                "beat": self._beat,
            }
        ).encode()

    def _keep_beating(self) -> None:
        while not self._stopped.wait(BEAT_SECONDS):
            self._beat += 1
            for lock in self._held:
                if self._stopped.is_set():
                    return
                with contextlib.suppress(OSError, UserError):  # a full disk or a lost connection must not end the run
                    self._show_life(lock)

    def _show_life(self, lock: Place) -> None:
        version = lock.replace_version(self._content(), self._held[lock])
        if version is None:  # it was taken over, or the answer to the last request was lost
            found = lock.version()
            if found is None or _parsed(found[0]).get("token") != self._token:
                return
            version = found[1]
        self._held[lock] = version

    def _release(self) -> None:
        with contextlib.suppress(UserError):  # a store that cannot be reached is not asked for every lock
            for lock, version in self._held.items():
                with contextlib.suppress(OSError):
                    lock.remove_version(version)
        self._held = {}
        _TOKENS.discard(self._token)


def remove_abandoned_locks(files: Iterable[Path | Place]) -> None:
    """Remove the locks of runs of this machine that were killed after their last row: no run takes those over."""
    for lock in map(_lock_of, map(place, files)):
        with contextlib.suppress(OSError):
            found = lock.version()
            if found is not None and _is_local(said := _parsed(found[0])) and not _is_alive(said):
                lock.remove_version(found[1])


def _lock_of(path: Place) -> Place:
    return path.with_name(f"{path.name}.lock")


def _is_local(found: dict[str, Any]) -> bool:
    return bool(_machine()) and str(found.get("process", "")).startswith(f"{_machine()}/")


def _is_alive(found: dict[str, Any]) -> bool:
    """Tell whether the run that wrote a lock of this machine is under way; a process may have several, one by one."""
    process = _process_of(found.get("pid"))
    is_mine = process == _process_of(os.getpid())
    return process == found.get("process") and (not is_mine or found.get("token") in _TOKENS)


def _content_of(lock: Place) -> bytes | None:
    """Return the content of a lock; None if there is none."""
    try:
        return lock.read_bytes()
    except OSError:
        return None


def _read(lock: Place) -> dict[str, Any]:
    """Return what a lock says; nothing if there is none or it is damaged."""
    return _parsed(_content_of(lock) or b"")


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except ValueError:
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
