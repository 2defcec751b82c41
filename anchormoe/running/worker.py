"""The worker's side of an engine that other programs started: the process is checked and prepared, then computes."""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from anchormoe.errors import UserError
from anchormoe.running.provenance import environment
from anchormoe.running.threads import keep_freed_memory, one_thread

_prepared = threading.local()  # OpenMP's limits belong to a thread


@dataclass(frozen=True)
class Terms:
    """The terms on which a process may compute for a driver."""

    folder: str  # the driver's current folder, which relative paths and the user's own files refer to
    versions: dict[str, str]
    code_version: str
    portable_arithmetic: bool

    @classmethod
    def of_driver(cls) -> Terms:
        here = environment()
        # Processes of the driver's own engine compute portably, whichever libraries the driver itself has loaded.
        return cls(os.getcwd(), here["versions"], here["code_version"], portable_arithmetic=True)

    def require(self, found: dict[str, Any]) -> None:
        """Raise a UserError where numbers could differ: other code, another Python, another release of a library."""
        versions = found["versions"]
        pairs = {name: (wanted, versions.get(name, "none")) for name, wanted in self.versions.items()}
        pairs["anchormoe"] = (self.code_version, found["code_version"])
        different = [f"{name} {theirs} instead of {ours}" for name, (ours, theirs) in pairs.items() if ours != theirs]
        if different:
            raise UserError(
                f"a worker on {socket.gethostname()} must have the driver's versions, received {', '.join(different)}; "
                "start the workers in the driver's environment"
            )
        if self.portable_arithmetic and not found["portable_arithmetic"]:
            raise UserError(
                f"a worker on {socket.gethostname()} must compute with AVX2 like all others, received a process that "
                'may use AVX-512; before starting it run: eval "$(python -m anchormoe.arithmetic)"'
            )


def compute(terms: Terms, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
    """Call a function as the driver would: same versions, same folder, one thread."""
    if not hasattr(_prepared, "lifetime"):
        lifetime = ExitStack()
        lifetime.enter_context(one_thread())
        keep_freed_memory()
        atexit.register(lifetime.close)  # while the libraries still work
        _prepared.lifetime = lifetime
    terms.require(environment())
    with _in_folder(terms.folder):
        return function(*arguments, **named)


@contextmanager
def _in_folder(folder: str) -> Iterator[None]:
    """Work in a folder if this machine has it: a machine that shares no files still computes the shipped datasets."""
    with contextlib.chdir(folder) if os.path.isdir(folder) else contextlib.nullcontext():
        yield
