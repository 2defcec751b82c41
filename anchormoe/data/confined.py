"""Parsing in a child process with limits, for files of unknown origin in formats whose readers can be made to abort.

This protects the run from a reader that dies or takes all memory or time; it is not a sandbox against malice.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import subprocess
import sys
from typing import TYPE_CHECKING

from anchormoe.data.containers import ContainerError

if TYPE_CHECKING:
    import pandas as pd

MAX_MEMORY_BYTES = 4 * 2**30  # address space of the child
MAX_SECONDS = 60


def confined_sheets(data: bytes) -> dict[str, pd.DataFrame]:
    """Return what `formats.foreign_sheets` makes of the bytes, computed in a child process."""
    # Without -P the child would import modules that lie in the current folder.
    command = [sys.executable, "-P", "-m", "anchormoe.data.confined"]
    # Each thread reserves address space, and so does the allocator of pyarrow.
    sparing = {"OPENBLAS_NUM_THREADS": "1", "ARROW_IO_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
    environment = {**os.environ, **sparing}
    try:
        done = subprocess.run(command, input=data, capture_output=True, timeout=2 * MAX_SECONDS, env=environment)
    except subprocess.TimeoutExpired:
        raise ContainerError(f"not readable as a table within {2 * MAX_SECONDS} s") from None
    if done.returncode != 0:
        limits = f"{MAX_MEMORY_BYTES // 2**30} GiB and {MAX_SECONDS} s"
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2][:100]
        ended = f"the reader ended with code {done.returncode}, within {limits}"
        raise ContainerError(f"not readable as a table ({ended}{': ' if last else ''}{last})")
    sheets = pickle.loads(done.stdout)
    if isinstance(sheets, str):
        raise ContainerError(sheets)
    return sheets


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    with contextlib.suppress(ValueError, OSError):  # a system without this limit
        resource.setrlimit(kind, (value, hard))


def main() -> None:
    """Read bytes from standard input and write the sheets, or the reason against them, to standard output."""
    _limit(resource.RLIMIT_AS, MAX_MEMORY_BYTES)
    _limit(resource.RLIMIT_CPU, MAX_SECONDS)
    _limit(resource.RLIMIT_CORE, 0)
    from anchormoe.data.formats import foreign_sheets

    try:
        result: dict[str, pd.DataFrame] | str = foreign_sheets(sys.stdin.buffer.read())
    except ContainerError as error:
        result = str(error)
    except MemoryError:
        result = f"not readable as a table within {MAX_MEMORY_BYTES // 2**30} GiB"
    sys.stdout.buffer.write(pickle.dumps(result))
    sys.stdout.buffer.flush()
    os._exit(0)  # all is said; threads of a library that end late cannot spoil it


if __name__ == "__main__":
    main()
