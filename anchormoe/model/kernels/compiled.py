"""How the kernels are compiled.

numba compiles a function once per machine and keeps it on disk. Division follows NumPy's rules, because the test for
zero that Python's rules need would keep a loop from being vectorised, and a * b + c is one operation.

Compile time: a function that another compiled function calls is optimised again as a part of its caller, at every
level of a chain of calls. So only a few entry points are `compiled`; what they call is either `inner`, a loop that is
compiled once without the code that lets Python call it, or `inlined`, a sequence of calls that is copied into its
caller before anything is compiled.
"""

from functools import partial

from numba import njit
from numba.core import event

from anchormoe.model.kernels.clock import clock, exclude

__all__ = ["clock", "compiled", "inlined", "inner"]

_njit = partial(njit, error_model="numpy", fastmath={"contract"})
compiled = _njit(cache=True, no_cfunc_wrapper=True)
inner = _njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)
inlined = _njit(inline="always")


class _Compilation(event.TimingListener):
    """Tells the clock how long each compilation took."""

    def on_end(self, event: event.Event) -> None:
        before = self.duration if self.done else 0.0
        super().on_end(event)
        if self.done:
            exclude(self.duration - before)


event.register("numba:compile", _Compilation())
