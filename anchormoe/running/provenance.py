"""The provenance of a row: code, libraries and machine."""

from __future__ import annotations

import contextlib
import functools
import platform
import resource
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from anchormoe import __version__
from anchormoe.arithmetic import is_portable

_LIBRARIES = (
    *("numpy", "scipy", "numba", "scikit-learn", "torch", "xgboost"),
    *("catboost", "gpytorch", "lightgbm", "ngboost", "quantile-forest"),  # extras
    *("mapie", "pytabkit", "stochtree", "zuko"),
)


@functools.cache
def environment() -> dict[str, Any]:
    """Return code, libraries and machine; asked for when a process starts, it names the code that was loaded."""
    commit, dirty = _code_version()
    return {
        "code_version": commit,
        "code_dirty": dirty,
        "versions": {"python": platform.python_version(), **_library_versions()},
        "cpu": cpu_model(),
        "portable_arithmetic": is_portable(),
    }


def peak_memory_mb() -> float:
    """Return the peak memory of this process so far; in a worker, earlier and larger datasets count too."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def resident_bytes(pid: int) -> int:
    """Return the memory that a process has at present, 0 if it has ended or the system does not say."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0


def _library_versions() -> dict[str, str]:
    versions = {}
    for name in _LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):  # an extra that is not installed
            versions[name] = version(name)
    return versions


def _code_version() -> tuple[str, bool]:
    """Return the commit and whether tracked code differs from it, or the package version without a checkout."""
    folder = Path(__file__).resolve().parent.parent

    def git(*arguments: str) -> str:
        # The checkout may belong to another user: its code is running already, so git may read it too.
        allowed = ("-c", "safe.directory=*", "-c", "core.fsmonitor=false")
        command = ["git", *allowed, *arguments]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # fails if the package is installed inside another checkout
        return git("rev-parse", "--short=12", "HEAD"), bool(git("status", "--porcelain", "--", ".", "../conf"))
    except (OSError, subprocess.CalledProcessError):
        return __version__, False


def cpu_model() -> str:
    """Return the name of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )
