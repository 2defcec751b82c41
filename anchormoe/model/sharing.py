"""Sharing of fits that several rows of a run have in common.

In protocol=clean all ablations except no_anchor have the same anchor, and no_cal is the full model without its
calibration; all calibrations of the cross-fitted recipe have the same networks. A call outside a run shares nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from joblib import Memory

_memory = Memory(None, verbose=0)


@contextmanager
def shared_fits(folder: str) -> Iterator[None]:
    """Keep every anchor and network in a folder, for this and other processes that need the same one."""
    global _memory
    before, _memory = _memory, Memory(folder, verbose=0)
    try:
        yield
    finally:
        _memory = before


def shared(function: Callable[..., Any], ignore: Sequence[str] = ()) -> Callable[..., Any]:
    """Return the function with its results remembered for the same arguments, but for those to `ignore`."""
    remembering = _memory.cache(function, ignore=list(ignore))

    def call(*arguments: Any, **named: Any) -> Any:
        with warnings.catch_warnings():
            # A disk sometimes takes a second; the warning's advice to use smaller arguments does not apply here.
            warnings.filterwarnings("ignore", message="Persisting input arguments took")
            return remembering(*arguments, **named)

    return call
