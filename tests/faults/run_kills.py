"""Kill -9 of parts of whole runs at random moments until a sweep is complete: its rows are those of a quiet run."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import engines_path  # noqa: F401  (makes the modules of tests/engines importable)
from outcome import Outcome
from sweep import command, stored, without_circumstances

from anchormoe.rows import identity
from anchormoe.running import store
from anchormoe.running.object_store import ObjectPlace
from anchormoe.running.store import Place

SWEEP = ("dataset=yacht,boston", "anchor=ridge", "train.epochs=3")
_PATIENCE = 300.0


@dataclass
class Campaign:
    """One kind of kill on one engine."""

    fault: str
    settings: Sequence[str]
    kill: Callable[[subprocess.Popen[str]], None]
    environment: dict[str, str] = field(default_factory=dict)
    repair: Callable[[], None] = lambda: None  # called after each kill
    sweep: Sequence[str] = SWEEP
    results_dir: str | None = None  # a bucket; else a temporary folder
    goes_on: bool = False  # whether a run survives a kill, so that it can be hit several times

    def run(self, kills: int, folder: Path, reference: dict[Any, Any], stream: random.Random) -> Outcome:
        """Kill as often as asked, complete the sweep, and start it anew each time it is complete."""
        outcome = Outcome(self.fault)
        folder.mkdir(parents=True)
        results, temporary = store.place(self.results_dir or folder / "results"), folder / "tmp"
        temporary.mkdir()
        attempts = 0
        while outcome.kills < kills:
            attempts += 1
            if attempts > 10 + 5 * kills:
                raise RuntimeError(f"{self.fault}: runs end by themselves before anything can be killed")
            outcome.kills += self._disturb(results, temporary, outcome, stream)
            if len(lines(results)) >= len(reference):
                self._complete(results, temporary, reference, outcome)
        if results.is_dir():
            self._complete(results, temporary, reference, outcome)
        return outcome

    def _start(self, results: Place, temporary: Path) -> tuple[subprocess.Popen[str], str]:
        mark = uuid.uuid4().hex
        variables = {"OMP_NUM_THREADS": "1", "TMPDIR": str(temporary), "ANCHORMOE_CAMPAIGN": mark}
        process = subprocess.Popen(
            command(results, *self.sweep, *self.settings),
            env={**os.environ, **variables, **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        return process, mark

    def _disturb(self, results: Place, temporary: Path, outcome: Outcome, stream: random.Random) -> int:
        """Start the sweep and kill at random moments; return how often, 0 if it ended before."""
        before = lines(results)
        process, mark = self._start(results, temporary)
        seen, kills = set(before), 0
        while (kills == 0 or self.goes_on) and self._is_hit(process, results, stream, early=kills == 0):
            seen |= lines(results)
            self.kill(process)
            kills += 1
        if kills == 0:
            outcome.tracebacks += "Traceback" in process.communicate()[0]
            return 0
        try:
            output = process.communicate(timeout=_PATIENCE)[0]
        except subprocess.TimeoutExpired:
            outcome.processes += 1  # it hangs
            os.killpg(process.pid, signal.SIGKILL)
            output = process.communicate()[0]
        outcome.tracebacks += "Traceback" in output
        outcome.lost += len(seen - lines(results))
        outcome.processes += _orphans(mark)
        self.repair()
        return kills

    def _is_hit(self, process: subprocess.Popen[str], results: Place, stream: random.Random, *, early: bool) -> bool:
        """Wait for a random moment; return whether the run is still alive then."""
        if early and stream.random() < 0.2:
            moment = time.monotonic() + stream.uniform(0, 6)  # also before the first row
            _wait(lambda: process.poll() is not None or time.monotonic() > moment)
        else:
            goal = len(lines(results)) + stream.randint(1, 8)
            _wait(lambda: process.poll() is not None or len(lines(results)) >= goal)
            time.sleep(stream.uniform(0, 0.2))
        return process.poll() is None

    def _complete(self, results: Place, temporary: Path, reference: dict[Any, Any], outcome: Outcome) -> None:
        for _ in range(4):  # a failed split, whose worker was killed, is computed by the next run
            process, mark = self._start(results, temporary)
            output = process.communicate(timeout=_PATIENCE)[0]
            outcome.tracebacks += "Traceback" in output
            outcome.processes += _orphans(mark)
            if process.returncode == 0:
                break
        found = without_circumstances(stored(results))
        outcome.doubled += doubled(results)
        outcome.rows += len(found)
        outcome.lost += len(set(reference) - set(found))
        outcome.different += sum(found[key] != reference[key] for key in set(reference) & set(found))
        outcome.folders += len([path for path in temporary.iterdir() if path.name.startswith("anchormoe")])
        outcome.folders += len(list(results.glob("*/*.lock")))
        _remove(results)
        shutil.rmtree(temporary)
        temporary.mkdir()


def doubled(results: Path | Place) -> int:
    """Count the finished rows that are stored more than once; a row in two objects of a bucket is read once."""
    rows = [json.loads(line) for line in lines(results)]
    finished = [identity(row) for row in rows if row["status"] == "ok"]
    return len(finished) - len(set(finished))


def lines(results: Path | Place) -> set[bytes]:
    """Return the whole lines that are stored, in files or in the objects of a bucket."""
    folder = store.place(results) / "runs"
    while True:
        try:
            contents = [
                path.read_bytes() for pattern in ("*.jsonl", "*.jsonl/*.jsonl") for path in folder.glob(pattern)
            ]
            return {line for content in contents for line in content.split(b"\n")[:-1]}
        except FileNotFoundError:
            continue  # objects that were merged meanwhile


def _remove(results: Place) -> None:
    if isinstance(results, ObjectPlace):
        results.remove(list(results.sizes()))
    else:
        shutil.rmtree(str(results))


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)


def _orphans(mark: str) -> int:
    """Count the processes of a run that live a few seconds after its end, and end them."""
    alive: list[int] = []
    for _ in range(50):
        alive = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _has(entry, mark)]
        if not alive:
            return 0
        time.sleep(0.1)
    for pid in alive:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(alive)


def _has(entry: Path, mark: str) -> bool:
    try:
        return mark.encode() in (entry / "environ").read_bytes()
    except OSError:
        return False


# --- what is killed


def kill_driver(process: subprocess.Popen[str]) -> None:
    process.kill()


def kill_worker_of(stream: random.Random) -> Callable[[subprocess.Popen[str]], None]:
    """Return a function that kills one of the processes that a driver has started."""

    def kill(process: subprocess.Popen[str]) -> None:
        tasks = Path(f"/proc/{process.pid}/task").glob("*/children")
        children = [pid for path in tasks for pid in path.read_text().split()]
        with suppress(ProcessLookupError):
            if children:
                os.kill(int(stream.choice(children)), signal.SIGKILL)

    return kill
