"""How the kernels are compiled.

numba compiles a function once per machine and keeps it on disk. Division follows NumPy's rules, because the test for
zero that Python's rules need would keep a loop from being vectorised, and a * b + c is one operation.

Compile time: a function that another compiled function calls is optimised again as a part of its caller, at every
level of a chain of calls. So only the entry points are `compiled`. What they call is either `inner`, a loop without
the code that lets Python call it, or `inlined`, a sequence of calls that is copied into its caller before anything is
compiled. Types matter as much: each combination of argument types is compiled anew, so sizes, such as the number of
experts, must be lengths of arrays and not of tuples, and whole numbers must not come as literals.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from numba import njit
from numba.core import event

from anchormoe.model.kernels.cache import KernelCache
from anchormoe.model.kernels.clock import exclude

__all__ = ["compiled", "inlined", "inner"]

_njit = partial(njit, error_model="numpy", fastmath={"contract"}, no_cfunc_wrapper=True, nogil=True)
inner = _njit(no_cpython_wrapper=True)
inlined = _njit(inline="always")


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile an entry point and keep it on disk until its own file or any file of the kernels changes."""
    dispatcher = _njit(function)
    dispatcher._cache = KernelCache(function)
    return dispatcher


class _Compilation(event.TimingListener):
    """Takes each compilation off the clock."""

    def on_end(self, event: event.Event) -> None:
        before = self.duration if self.done else 0.0
        super().on_end(event)
        if self.done:
            exclude(self.duration - before)


event.register("numba:compile", _Compilation())
