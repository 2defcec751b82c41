"""The clock that fits are timed by."""

import time

from numba import njit
from numba.core import event

from anchormoe.model.kernels.clock import clock


@njit
def doubled(number: float) -> float:
    return 2 * number


@njit
def doubled_and_one_more(number: float) -> float:
    return doubled(number) + 1


def test_the_clock_stands_still_while_numba_compiles() -> None:
    compiling = event.TimingListener()
    with event.install_listener("numba:compile", compiling):
        wall, ours = time.perf_counter(), clock()
        assert doubled_and_one_more(1.0) == 3.0
        wall, ours = time.perf_counter() - wall, clock() - ours
    assert compiling.duration > 0, "nothing was compiled"
    assert wall - ours > 0.5 * compiling.duration


def test_the_clock_goes_on_otherwise() -> None:
    doubled_and_one_more(1.0)
    before = clock()
    time.sleep(0.01)
    assert clock() - before >= 0.01
