"""The driver on engines that fail in every way: what is finished is stored, and the rest is said in one line."""

from collections.abc import Callable
from concurrent.futures import Future
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from anchormoe.commands.run import parse
from anchormoe.errors import UserError
from anchormoe.rows import Row
from anchormoe.running import store
from anchormoe.running.costs import Costs
from anchormoe.running.driver import Driver, StoredTask
from anchormoe.running.engines.base import Engine, WorkerDied
from anchormoe.running.ownership import Ownership
from anchormoe.running.tasks import make_task

SCORES = {"status": "ok", "rmse_y": 1.0, "nll_y": 2.0, "nll_z": 0.5, "cpu": "x", "fit_seconds": 3.0}


class Immediate(Engine):
    """An engine that computes at once; the tasks of some splits end with an error instead."""

    name = "immediate"
    capacity = 3

    def __init__(self, errors: dict[int, BaseException] | None = None) -> None:
        self.errors = errors or {}
        self.splits: list[int] = []

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        row = function(*arguments)
        self.splits.append(row["split"])
        if row["split"] in self.errors:
            future.set_exception(self.errors[row["split"]])
        else:
            future.set_result(row)
        return future


def tasks(path: Path, count: int = 6) -> list[StoredTask]:
    """Make tasks whose rows are their labels, so that nothing is computed."""
    (job,) = parse(["dataset=yacht", "method=mdn", "protocol=clean"])
    made = [make_task(job.config(), split) for split in range(1, count + 1)]
    for task in made:
        task.labels.update(SCORES)
    return [StoredTask(task, path) for task in made]


def run(path: Path, engine: Engine, seconds: Callable[..., float] = lambda task: 0.0) -> list[Row]:
    path.parent.mkdir(exist_ok=True)
    driver = Driver(tasks(path), attrgetter("labels"))
    with Ownership([path]) as own:
        driver.run(engine, own, lambda item, row: None, seconds)
    return driver.rows()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "yacht.jsonl"


def test_long_tasks_go_first(path: Path) -> None:
    engine = Immediate()
    rows = run(path, engine, seconds=lambda task: -abs(task.labels["split"] - 4))
    assert engine.splits == [4, 3, 5, 2, 6, 1]
    assert [row["split"] for row in rows] == [1, 2, 3, 4, 5, 6], "rows come in the order of the tasks"


def test_a_dead_worker_is_a_failed_row(path: Path) -> None:
    rows = run(path, Immediate({2: WorkerDied()}))
    assert {row["split"]: row["status"] for row in rows} == {
        split: "failed" if split == 2 else "ok" for split in range(1, 7)
    }
    engine = Immediate()
    run(path, engine)
    assert engine.splits == [2], "only that one is computed again"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            RuntimeError("the scheduler\nis gone"),
            "engine=immediate must stay reachable, received RuntimeError the scheduler is gone",
        ),
        (UserError("a worker must have the driver's versions"), "a worker must have the driver's versions"),
    ],
)
def test_a_lost_engine_is_one_line_and_finished_rows_are_stored(path: Path, error: Exception, words: str) -> None:
    with pytest.raises(UserError, match=words) as raised:
        run(path, Immediate({3: error}))
    assert "\n" not in str(raised.value)
    assert [row["split"] for row in store.read(path)] == [1, 2]


def test_a_file_that_is_removed_during_a_run_costs_its_rows_and_not_the_run(path: Path) -> None:
    class Removing(Immediate):
        def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
            if len(self.splits) == 3:
                path.unlink()
            return super().submit(function, *arguments)

    assert [row["split"] for row in run(path, Removing())] == [1, 2, 3, 4, 5, 6]
    assert [row["split"] for row in store.read(path)] == [4, 5, 6]
    engine = Immediate()
    run(path, engine)
    assert engine.splits == [1, 2, 3]


def test_a_cancelled_future_is_a_lost_engine(path: Path) -> None:
    class Cancelling(Immediate):
        def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
            future: Future[Any] = Future()
            future.cancel()
            future.set_running_or_notify_cancel()
            return future

    with pytest.raises(UserError, match="must stay reachable, received CancelledError"):
        run(path, Cancelling())


def test_an_engine_that_takes_no_more_tasks_is_a_lost_engine(path: Path) -> None:
    class Closed(Immediate):
        def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
            if len(self.splits) == 3:
                raise OSError("no connection to the scheduler")
            return super().submit(function, *arguments)

    with pytest.raises(UserError, match="must stay reachable, received OSError no connection"):
        run(path, Closed())
    assert [row["split"] for row in store.read(path)] == [1, 2, 3]


def test_a_run_whose_file_was_taken_over_stops_before_it_writes(path: Path) -> None:
    path.parent.mkdir()
    driver = Driver(tasks(path), attrgetter("labels"))
    with Ownership([path]) as own:
        path.with_name("yacht.jsonl.lock").write_text('{"token": "other", "pid": 1, "host": "elsewhere"}')
        with pytest.raises(UserError, match="taken over by process 1 on elsewhere"):
            driver.run(Immediate(), own, lambda item, row: None)
    assert not path.exists()


def test_costs_are_those_of_stored_rows_until_this_run_has_its_own() -> None:
    (cheap,) = parse(["dataset=yacht", "method=gbdt_homoscedastic", "protocol=clean"])
    (dear,) = parse(["dataset=protein", "method=anchormoe_crossfit", "protocol=clean"])
    first, second = (make_task(job.config(), 1) for job in (cheap, dear))
    costs = Costs(["yacht", "protein"])
    assert costs.seconds(first) < costs.seconds(second)
    costs.learn({**first.labels, **SCORES, "fit_seconds": 1000.0})
    assert costs.seconds(first) == pytest.approx(1000.0)
    (unknown,) = parse(["dataset=yacht", "method=sklearn.linear_model.Ridge", "protocol=clean"])
    assert costs.seconds(make_task(unknown.config(), 1)) == pytest.approx(1 + 308 / 700)
