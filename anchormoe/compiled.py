"""How the inner loops are compiled: once per machine; with numpy's rules for division, because a test for zero, as
Python's rules want it, would keep a loop from being vectorised; and with a * b + c as one operation."""

from numba import njit

compiled = njit(cache=True, error_model="numpy", fastmath={"contract"})
