"""Fits that several rows of a run have in common are made once.

In protocol=clean all ablations but no_anchor have one anchor, and no_cal is the full model without its calibration. A
call outside a run shares with nobody.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from joblib import Memory

_memory = Memory(None, verbose=0)


@contextmanager
def shared_fits(folder: str) -> Iterator[None]:
    """Keep every anchor and network in a folder, for whoever in this or another process needs the same."""
    global _memory
    before, _memory = _memory, Memory(folder, verbose=0)
    try:
        yield
    finally:
        _memory = before


def shared(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, or what it once returned for the same arguments."""
    remembering = _memory.cache(function)

    def call(*arguments: Any, **named: Any) -> Any:
        with warnings.catch_warnings():
            # Of a disk that takes a second now and then; its advice, smaller arguments, is not for us.
            warnings.filterwarnings("ignore", message="Persisting input arguments took")
            return remembering(*arguments, **named)

    return call
