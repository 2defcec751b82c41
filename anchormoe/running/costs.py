"""Seconds that tasks take, from stored rows: for the order of a sweep, and for the time that it still needs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from anchormoe.paths import shipped
from anchormoe.rows import Row, good
from anchormoe.running import store
from anchormoe.running.driver import AnyTask

_MEASURED = ("comparison", "crossfit", "corrected", "rivals")  # shipped experiments with the methods of the comparison


class Costs:
    """The mean seconds of each method on each dataset, which grow more exact as rows come in."""

    def __init__(self, datasets: Iterable[str]) -> None:
        self._sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
        for dataset in set(datasets):
            for experiment in _MEASURED:
                for row in store.read(store.path_for(shipped("results"), experiment, dataset)):
                    self.learn(row)
        self._from_stored = dict(self._sums)
        self._sums.clear()

    def learn(self, row: Row) -> None:
        """Take a finished row into account; rows of this run replace what rows of other machines say."""
        if good(row) and isinstance(row.get("fit_seconds"), int | float):
            total = self._sums[row["method"], row["dataset"]]
            total[0] += row["fit_seconds"] + row.get("predict_seconds", 0.0)
            total[1] += 1

    def seconds(self, task: AnyTask) -> float:
        """Estimate the seconds of a task."""
        key = task.labels["method"], task.labels["dataset"]
        total, count = self._sums.get(key) or self._from_stored.get(key) or (0.0, 0.0)
        return max(total / count, 0.01) if count else task.guess_seconds()
