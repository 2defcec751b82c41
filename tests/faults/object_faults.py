"""Faults of runs whose rows go to an object store: kills of the driver, a second driver, a store that is lost."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import engines_path  # noqa: F401  (makes the modules of tests/objectstore importable)
from outcome import Outcome
from run_kills import SWEEP, Campaign, doubled, kill_driver, lines
from server import Server
from store_kills import kill_store
from surroundings import expect_one_line, finish
from sweep import command

from anchormoe.running import store


@contextmanager
def object_store(folder: Path, set_variable: Callable[[str, str], object]) -> Iterator[Server]:
    """Start an S3 server of this machine, which this process and those it starts use."""
    server = Server(folder / "s3")
    for name, value in server.environment.items():
        set_variable(name, value)
    try:
        yield server
    finally:
        server.kill()


def faults(
    folder: Path, kills_of_store: int, kills_of_runs: int, reference: dict[Any, Any], stream: random.Random
) -> Iterator[Outcome]:
    """Yield the outcome of each fault."""
    with object_store(folder, os.environ.__setitem__) as server:
        if kills_of_store:
            name = "kill -9 of a process that stores rows in an object store"
            yield kill_store(kills_of_store, server.new_bucket(), stream, name)
        driver = Campaign(
            "kill -9 of the driver, rows in an object store",
            ["workers=2"],
            kill_driver,
            results_dir=server.new_bucket(),
        )
        yield driver.run(kills_of_runs, folder / "driver", reference, stream)
        yield two_drivers(server, reference)
        yield lost_store(server, reference, stream)


def two_drivers(server: Server, reference: dict[Any, Any]) -> Outcome:
    outcome = Outcome("two drivers at once, rows in an object store")
    for _ in range(3):
        results = store.place(server.new_bucket())
        pair = [_start(results) for _ in range(2)]
        refused = [done for done in map(_finished, pair) if done.returncode == 2]
        if refused:  # else the second began after the first had ended
            expect_one_line(refused[0], "one run at a time", outcome)
        outcome.tracebacks += len(refused) > 1
        outcome.doubled += doubled(results)
        finish(results, reference, outcome)
    return outcome


def lost_store(server: Server, reference: dict[Any, Any], stream: random.Random) -> Outcome:
    """End the store in the middle of a sweep, for good or for a few seconds."""
    outcome = Outcome("object store unreachable")
    for seconds in (None, 5.0, 5.0):
        results = store.place(server.new_bucket())
        process = _start(results)
        goal = stream.randint(1, 15)
        while process.poll() is None and len(lines(results)) < goal:
            time.sleep(0.05)
        before = lines(results)
        server.kill()
        if seconds is None:
            expect_one_line(_finished(process), "no connection to the store", outcome)
            server.start()
        else:
            time.sleep(seconds)
            server.start()
            outcome.tracebacks += _finished(process).returncode != 0
            outcome.kills += 1
        outcome.lost += len(before - lines(results))
        finish(results, reference, outcome)
    return outcome


def _start(results: store.Place) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command(results, *SWEEP, "workers=1"), **pipes)  # type: ignore[call-overload]


def _finished(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    output = process.communicate()
    return subprocess.CompletedProcess((), process.returncode, *output)
