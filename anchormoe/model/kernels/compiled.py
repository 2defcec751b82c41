"""How the inner loops are compiled, and a clock that stands still while they are.

Compiled once per machine; with numpy's rules for division, because a test for zero, as Python's rules want it, would
keep a loop from being vectorised; and with a * b + c as one operation.
"""

import time

from numba import njit
from numba.core import event

compiled = njit(cache=True, error_model="numpy", fastmath={"contract"})

_compilation = event.TimingListener()
event.register("numba:compile", _compilation)


def clock() -> float:
    """Seconds since some moment, less those that went into compiling: a fit takes as long as it does the next time."""
    return time.perf_counter() - (_compilation.duration if _compilation.done else 0.0)
