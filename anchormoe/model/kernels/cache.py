"""The cache of compiled kernels on disk: one per machine, written by one process at a time, whatever state it is in."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numba.core import config
from numba.core.caching import FunctionCache

_NETWORK = ("nfs", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb", "afs", "9p", "glusterfs", "fuse.")
_PATIENCE = 180.0  # seconds to wait for another process that compiles the same function

_files = [file.stat() for file in sorted(Path(__file__).parent.glob("*.py"))]
_KERNELS_STAMP = tuple((file.st_mtime, file.st_size) for file in _files)


class KernelCache(FunctionCache):
    """numba's cache of one function, until its own file or any file of the kernels changes.

    A damaged file, as a power failure leaves it, is dropped. A function that is not there yet is compiled by one
    process of the machine while the others wait: numba's index mixes up functions that two processes store at once.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        with _local_folder(Path(function.__code__.co_filename)):
            super().__init__(function)
        index = self._cache_file  # numba itself would look at the function's own file only
        index._source_stamp = (index._source_stamp, _KERNELS_STAMP)
        self._lock: int | None = None

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = self._load_or_drop(sig, target_context)
        if found is None and self._lock is None:
            self._wait_for_turn()
            found = self._load_or_drop(sig, target_context)
            if found is not None:
                self._end_turn()
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            with contextlib.suppress(OSError):  # a full disk: the function works, the next process compiles it again
                super().save_overload(sig, data)
        finally:
            self._end_turn()

    def _load_or_drop(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:
            with contextlib.suppress(OSError):
                self.flush()
            return None

    def _wait_for_turn(self) -> None:
        with contextlib.suppress(OSError):  # a folder that cannot be written to: every process compiles for itself
            Path(self.cache_path).mkdir(parents=True, exist_ok=True)
            path = Path(self.cache_path) / f"{self._py_func.__name__}.lock"
            self._lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            deadline = time.monotonic() + _PATIENCE
            while time.monotonic() < deadline:
                try:
                    return fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    time.sleep(0.05)

    def _end_turn(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


@contextmanager
def _local_folder(source: Path) -> Iterator[None]:
    """Let numba use a folder of this machine where its usual place, beside the source, is read-only or on a network."""
    usual = source.parent / "__pycache__"
    place = usual if usual.exists() else source.parent
    usable = place.is_dir() and os.access(place, os.W_OK) and not _on_network(source)
    before = config.CACHE_DIR
    if not before and not usable:
        config.CACHE_DIR = _private_folder()
    try:
        yield
    finally:
        config.CACHE_DIR = before


def _private_folder() -> str:
    """Return a folder of this user's alone on this machine: below the home folder, else among the temporary files."""
    candidates = [Path(tempfile.gettempdir()) / f"anchormoe-kernels-{os.getuid()}"]
    with contextlib.suppress(RuntimeError):  # no home folder is known
        candidates.insert(0, Path.home() / ".cache" / "anchormoe-kernels")
    for folder in candidates:
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            state = folder.lstat()
            is_ours = stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid() and not state.st_mode & 0o022
            if is_ours and os.access(folder, os.W_OK) and not _on_network(folder):
                return str(folder)
    return tempfile.mkdtemp(prefix="anchormoe-kernels-")


def _on_network(path: Path) -> bool:
    """Tell whether a file lies on a network file system, where processes of several machines would share the cache."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return False
    of_path = [(folder, kind) for folder, kind in mounts if path.is_relative_to(folder)]
    return max(of_path, key=lambda mount: len(mount[0]), default=("", ""))[1].startswith(_NETWORK)
