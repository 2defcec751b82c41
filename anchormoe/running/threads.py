"""The use of the machine by a process: one thread, and memory that is kept for the next epoch."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit every library to one thread, and joblib to this process.

    Processes whose threads share cores run many times slower, and the order of float32 sums, hence the numbers, would
    depend on the machine.
    """
    import torch
    import xgboost  # noqa: F401  (loaded first, so that its OpenMP runtime is limited too)
    from joblib import parallel_config
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1), parallel_config(backend="sequential"):
            yield
    finally:
        torch.set_num_threads(before)


def num_threads() -> int:
    """Return the number of threads a fit uses."""
    import torch

    return torch.get_num_threads()


def keep_freed_memory() -> None:
    """Tell glibc to keep freed memory.

    Every epoch frees and allocates the same few megabytes. By default they are returned to the system in between, which
    costs about 800 page faults per epoch of 7,500 rows.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mmap_threshold, trim_threshold = -3, -1  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD of malloc.h
        mallopt(mmap_threshold, 2**30)
        mallopt(trim_threshold, 2**31 - 1)
