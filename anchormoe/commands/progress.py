"""The progress bar of a run: rows done, rows per minute, and the time left by what such tasks have cost."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from anchormoe.rows import SPLIT, Row, good, kind
from anchormoe.running.provenance import cpu_model

if TYPE_CHECKING:
    from anchormoe.running.costs import Costs
    from anchormoe.running.driver import AnyTask, StoredTask


class Watch:
    """A progress bar over all splits of all jobs.

    It counts seconds of work instead of splits, so that the time left is right whichever splits come first.
    """

    def __init__(
        self, tasks: Sequence[StoredTask], costs: Costs, console: Console, estimate_for_workers: int | None = None
    ) -> None:
        self._running: dict[str, list[Row]] = defaultdict(list)  # by configuration
        self._costs = costs
        self._cpus = {cpu_model()}
        self._examples = {_kind(item): item for item in tasks}  # tasks of a kind cost the same
        self._left = Counter(_kind(item) for item in tasks)
        self._done = 0
        self._work = 0.0
        self._workers = estimate_for_workers
        self._first = {_kind(item): min(_split(one) for one in tasks if _kind(one) == _kind(item)) for item in tasks}
        self._waiting_for = set(self._first)  # kinds whose first row is not there yet
        self._start = time.monotonic()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=10),
            TextColumn("{task.fields[done]}/{task.fields[count]}{task.fields[rate]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            speed_estimate_period=24 * 3600,  # the average of the whole run: splits take seconds to minutes
        )
        self._bar = self._progress.add_task("starting", total=self._work_left(), done=0, count=len(tasks), rate="")

    def __enter__(self) -> Watch:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def on_row(self, item: StoredTask, row: Row) -> None:
        """Move the bar by a row; a processor of another kind is mentioned once."""
        if row["cpu"] not in self._cpus:
            self._cpus.add(row["cpu"])
            text = f"rows are also computed on {row['cpu']}: last digits may differ from those of this processor"
            self._progress.console.print(text, markup=False)
        self._done += 1
        self._left[_kind(item)] -= 1
        self._costs.learn(row)
        if self._workers is not None and _kind(item) in self._waiting_for:
            self._waiting_for.discard(_kind(item))
            if not self._waiting_for:
                self._show_estimates(self._workers)
        self._work += self._costs.seconds(item.task)
        so_far = self._running[row["config_hash"]]
        so_far.append(row)
        finished = [item for item in so_far if good(item)]
        text = f"{row['dataset']} {row['ablation']} split {row['split']}"
        if finished and kind(row) == SPLIT:
            rmse, nll = (sum(item[name] for item in finished) / len(finished) for name in ("rmse_y", "nll_z"))
            text += f", RMSE {rmse:.3g} NLL(z) {nll:.3f}"
        per_minute = 60 * self._done / (time.monotonic() - self._start)
        self._progress.update(
            self._bar,
            completed=self._work,
            total=self._work + self._work_left(),
            description=text,
            done=self._done,
            rate=f", {per_minute:.3g}/min",
        )

    def urgency(self, task: AnyTask) -> float:
        """Return the order in which tasks are to be started: long ones first.

        If estimates are shown, the first split of each method goes before all others.
        """
        seconds = self._costs.seconds(task)
        kind = task.labels["method"], task.labels["dataset"]
        return seconds + (1e9 if self._workers is not None and task.labels["split"] == self._first[kind] else 0.0)

    def _show_estimates(self, workers: int) -> None:
        """Print what the first splits took, and what the others will take."""
        left = {kind: self._left[kind] * self._costs.seconds(self._examples[kind].task) for kind in self._first}
        if sum(left.values()) == 0:
            return
        parts = [
            f"{kind[0]} {self._costs.seconds(self._examples[kind].task):.2g} s"
            for kind in sorted(left, key=lambda kind: -left[kind])
        ]
        seconds = sum(left.values()) / workers
        rest = f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"
        text = f"a split takes: {', '.join(parts)}; the other {self._left.total()} splits about {rest}"
        self._progress.console.print(text, markup=False, highlight=False)

    def _work_left(self) -> float:
        return sum(count * self._costs.seconds(self._examples[kind].task) for kind, count in self._left.items())


def _split(item: StoredTask) -> int:
    return int(item.task.labels["split"])


def _kind(item: StoredTask) -> tuple[str, str]:
    return item.task.labels["method"], item.task.labels["dataset"]
