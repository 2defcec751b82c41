"""A clock that does not count the seconds in which numba compiles."""

import time

_excluded = 0.0


def clock() -> float:
    """Return seconds since some moment, without those of compiling: a fit takes this long the next time, too."""
    return time.perf_counter() - _excluded


def exclude(seconds: float) -> None:
    """Take this many seconds off the clock."""
    global _excluded
    _excluded += seconds
