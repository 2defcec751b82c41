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

from clusters import wait_for

from anchormoe.rows import Row, identity
from anchormoe.running import store

SWEEP = ["dataset=yacht,boston", "method=gbdt_homoscedastic,anchormoe"]
# What a row says of the moment and the place of its computation, and not of its result.
_CIRCUMSTANCES = ("fit_seconds", "predict_seconds", "peak_memory_mb", "code_dirty")


def command(results: Path, *settings: str) -> list[str]:
    return [sys.executable, "-m", "anchormoe.cli", *settings, f"results_dir={results}"]


def run(results: Path, *settings: str, **environment: str) -> subprocess.CompletedProcess[str]:
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


def stopped_while_asleep(folder: Path, cluster_settings: Sequence[str], environment: dict[str, str]) -> list[int]:
    """Start a run of tasks that sleep, tell it to stop once two have begun; return the processes that began them."""
    begun = folder / "begun"
    (folder / "sleeper.py").write_text(SLEEPER.format(path=str(begun)))
    settings = ("dataset=yacht", "method=sleeper.Sleeper", "splits=1-4", *cluster_settings)
    with started(folder / "rows", *settings, cwd=folder, env={**os.environ, **environment}) as process:
        wait_for(lambda: begun.exists() and len(begun.read_text().split()) == 2, "two tasks", 120)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "the same command goes on" in errors
    pids = [int(pid) for pid in begun.read_text().split()]
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "end of the tasks")
    assert len(begun.read_text().split()) == 2, "no further task has begun"
    assert stored(folder / "rows") == []
    return pids


def stored(results: Path) -> list[Row]:
    return [row for path in sorted((results / "runs").glob("*.jsonl")) for row in store.read(path)]


def without_circumstances(rows: list[Row]) -> dict[tuple[Any, ...], Row]:
    """Return rows by identity, each without what depends on the moment and the place of its computation."""
    return {identity(row): {name: value for name, value in row.items() if name not in _CIRCUMSTANCES} for row in rows}


def numbers(results: Path) -> dict[tuple[Any, ...], Row]:
    """Return every row without its circumstances, by identity; each must be stored once."""
    rows = stored(results)
    lines = sum(len(path.read_bytes().splitlines()) for path in (results / "runs").glob("*.jsonl"))
    assert len(rows) == lines
    return without_circumstances(rows)
