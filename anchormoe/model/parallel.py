"""The independent pieces of a fit, one after the other or in threads, with a report of each that is finished.

Compiled kernels, BLAS and XGBoost release Python's lock, so threads use several cores without copies of the data. The
result does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Workers:
    """A number of threads, and a function that is called with a title after each finished piece."""

    num_threads: int = 1
    on_finished: Callable[[str], None] | None = None

    def map(self, title: str, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """Return the function's result for each item, in their order."""

        def piece(item: Item) -> Result:
            result = function(item)
            if self.on_finished is not None:
                self.on_finished(title)
            return result

        if self.num_threads == 1:
            return [piece(item) for item in items]
        with ThreadPoolExecutor(self.num_threads) as pool:
            return list(pool.map(piece, items))


ONE_WORKER = Workers()
