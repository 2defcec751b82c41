"""A sweep of real tasks and its numbers, which must be the same bits wherever they were computed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from clusters import wait_for

from anchormoe import AnchorMoERegressor
from anchormoe.rows import Row, identity
from anchormoe.running import store
from anchormoe.running.engines.base import Engine

SWEEP = ["dataset=yacht,boston", "method=gbdt_homoscedastic,anchormoe"]
# What a row says of the moment and the place of its computation, and not of its result.
_CIRCUMSTANCES = ("fit_seconds", "predict_seconds", "peak_memory_mb", "code_dirty")


def command(results: Path | store.Place, *settings: str) -> list[str]:
    return [sys.executable, "-m", "anchormoe.cli", *settings, f"results_dir={results}"]


def run(results: Path | store.Place, *settings: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(command(results, *settings), env=variables, capture_output=True, text=True, check=False)


@contextmanager
def started(results: Path, *settings: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Start a run, and kill it if it is still alive at the end."""
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command(results, *settings), **pipes, **options) as process:
        try:
            yield process
        finally:
            process.kill()


SLEEPER = """
import os, time
from sklearn.linear_model import Ridge

class Sleeper(Ridge):
    def fit(self, X, y):
        with open({path!r}, "a") as file:
            file.write(f"{{os.getpid()}}\\n")
        time.sleep(1000)
"""


def stopped_while_asleep(folder: Path, cluster_settings: Sequence[str], environment: dict[str, str]) -> None:
    """Start a run of tasks that sleep, tell it to stop once two have begun: no task is left, and no row."""
    errors = _ended_while_asleep(folder, cluster_settings, environment, signal.SIGTERM, 130, 60)
    assert "the same command goes on" in errors
    assert stored(folder / "rows") == []


def killed_while_asleep(folder: Path, cluster_settings: Sequence[str], environment: dict[str, str]) -> None:
    """Start a run of tasks that sleep, kill it once two have begun: the tasks end soon after it."""
    _ended_while_asleep(folder, cluster_settings, environment, signal.SIGKILL, -signal.SIGKILL, 20)


def _ended_while_asleep(
    folder: Path,
    cluster_settings: Sequence[str],
    environment: dict[str, str],
    number: signal.Signals,
    code: int,
    patience: float,
) -> str:
    """Send a signal to a run of tasks that sleep, wait until their processes have ended; return what it printed."""
    begun = folder / "begun"
    (folder / "sleeper.py").write_text(SLEEPER.format(path=str(begun)))
    settings = ("dataset=yacht", "method=sleeper.Sleeper", "splits=1-4", *cluster_settings)
    with started(folder / "rows", *settings, cwd=folder, env={**os.environ, **environment}) as process:
        wait_for(lambda: begun.exists() and len(begun.read_text().split()) == 2, "two tasks", 120)
        process.send_signal(number)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == code, errors
    pids = [int(pid) for pid in begun.read_text().split()]
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "end of the tasks", patience)
    assert len(begun.read_text().split()) == 2, "no further task has begun"
    return errors


def threads_inside_a_task(engine: Engine) -> None:
    """Fit a regressor that uses threads of its own as a task of an engine; its predictions are those of a fit here."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    y = X[:, 0] + 0.1 * rng.normal(size=120)
    training = {"epochs": 5, "min_steps": 0}
    here, there = (
        AnchorMoERegressor(anchor="ridge", folds=3, training=training, random_state=0, n_jobs=n_jobs)
        for n_jobs in (1, 2)
    )
    fitted = engine.submit(there.fit, X, y).result(120)
    assert fitted.n_jobs == 2
    expected = here.fit(X, y).predict_quantiles(X, [0.1, 0.5, 0.9])
    np.testing.assert_array_equal(fitted.predict_quantiles(X, [0.1, 0.5, 0.9]), expected)


def stored(results: Path | store.Place) -> list[Row]:
    return [row for _, file in store.place(results).experiments(["runs"]) for row in file.rows()]


def without_circumstances(rows: list[Row]) -> dict[tuple[Any, ...], Row]:
    """Return rows by identity, each without what depends on the moment and the place of its computation."""
    return {identity(row): {name: value for name, value in row.items() if name not in _CIRCUMSTANCES} for row in rows}


def numbers(results: Path) -> dict[tuple[Any, ...], Row]:
    """Return every row without its circumstances, by identity; each must be stored once."""
    rows = stored(results)
    lines = sum(len(path.read_bytes().splitlines()) for path in (results / "runs").glob("*.jsonl"))
    assert len(rows) == lines
    return without_circumstances(rows)
