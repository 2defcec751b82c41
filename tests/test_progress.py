"""The progress bar of a run: rows done, rows per minute, and the time left by what such tasks have cost."""

import io
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from anchormoe.commands import progress
from anchormoe.commands.progress import Watch
from anchormoe.commands.run import parse
from anchormoe.rows import Row
from anchormoe.running.costs import Costs
from anchormoe.running.driver import StoredTask
from anchormoe.running.provenance import cpu_model
from anchormoe.running.tasks import make_task

SCORES: Row = {"status": "ok", "rmse_y": 2.0, "nll_y": 2.0, "nll_z": 0.5, "predict_seconds": 0.0}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock.now)
    return clock


def items() -> list[StoredTask]:
    """Make two splits of a method that takes 10 s in the stored rows, and two of one that takes 40 s."""
    jobs = (parse(["dataset=yacht", f"method={name}", "protocol=clean"])[0] for name in ("mdn", "gamlss"))
    return [StoredTask(make_task(job.config(), split), Path("unused")) for job in jobs for split in (1, 2)]


def row(item: StoredTask, seconds: float, cpu: str | None = None) -> Row:
    return {**item.task.labels, **SCORES, "fit_seconds": seconds, "cpu": cpu or cpu_model()}


def test_the_bar_shows_rows_per_minute_and_the_time_that_such_tasks_have_cost(clock: SimpleNamespace) -> None:
    tasks, costs = items(), Costs([])
    for item in tasks:
        costs.learn(row(item, 10.0 if item.task.labels["method"] == "mdn" else 40.0))
    console = Console(file=io.StringIO(), width=200, force_terminal=False, get_time=lambda: clock.now)
    with Watch(tasks, costs, console) as watch:
        (bar,) = watch._progress.tasks
        assert bar.total == 2 * 10 + 2 * 40
        for item, seconds in zip(tasks[::2], (10.0, 40.0), strict=True):  # a cheap one, then a dear one
            clock.now += seconds
            watch.on_row(item, row(item, seconds))
        assert bar.completed == 50
        assert bar.total == 100
        assert (bar.fields["done"], bar.fields["count"]) == (2, 4)
        assert bar.fields["rate"] == ", 2.4/min", "two rows in 50 s"
        assert bar.description == "yacht full split 1, RMSE 2 NLL(z) 0.500"
        assert [watch.urgency(item.task) for item in tasks] == [10, 10, 40, 40], "long tasks first"
    assert "2/4, 2.4/min" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_processor_of_another_kind_is_mentioned_once(clock: SimpleNamespace) -> None:
    console = Console(file=io.StringIO(), width=200)
    with Watch(items(), Costs([]), console) as watch:
        for item in items():
            clock.now += 1
            watch.on_row(item, row(item, 1.0, "another"))
    assert console.file.getvalue().count("rows are also computed on another") == 1  # type: ignore[attr-defined]
