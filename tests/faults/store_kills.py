"""Kill -9 of a process that stores rows, at random moments: every row that it reported is there once, bit for bit."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import warnings
from pathlib import Path

from outcome import Outcome

from anchormoe.rows import Row
from anchormoe.running import store
from anchormoe.running.object_store import ObjectPlace
from anchormoe.running.ownership import Ownership
from anchormoe.running.store import Place

ROWS_PER_FILE = 400


def make_row(number: int) -> Row:
    stream = random.Random(number)
    labels = {"dataset": "d", "method": "m", "ablation": "full", "protocol": "clean", "anchor": "none", "seed": 1}
    padding = "x" * stream.randrange(4000)
    scores = {"rmse_y": stream.random(), "nll_y": stream.gauss(0, 1)}
    return {**labels, "split": number, "config_hash": "c", "status": "ok", **scores, "padding": padding}


def write_rows(path: Place) -> None:
    """Store rows one to five at a time, report the number of each after it is stored, and tidy up now and then."""
    file = path.stored_rows()
    with Ownership([path], lambda line: None) as own:
        next_number = len(file.rows())
        while True:
            numbers = range(next_number, next_number + random.randint(1, 5))
            own.require(path)
            file.append_all(make_row(number) for number in numbers)
            os.write(1, "".join(f"{number}\n" for number in numbers).encode())
            next_number = numbers.stop
            if random.random() < 0.2:
                file.tidy()


def kill_store(
    kills: int, results: str | Path, stream: random.Random, fault: str = "kill -9 of a process that stores rows"
) -> Outcome:
    """Kill the process again and again while it works, and check its rows after each kill."""
    outcome = Outcome(fault)
    path = store.path_for(results, "runs", "d")
    path.require_writable()
    reported: set[int] = set()
    for _ in range(kills):
        command = [sys.executable, __file__, str(results)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            first = process.stdout.readline()  # it works now
            time.sleep(stream.uniform(0, 0.03))
            process.kill()
            reported |= {int(line) for line in (first + process.stdout.read()).split()}
        outcome.kills += 1
        check(path, reported, outcome)
        if len(reported) > ROWS_PER_FILE:
            outcome.rows += len(reported)
            remove(path)
            reported.clear()
    outcome.rows += len(reported)
    return outcome


def check(path: Place, reported: set[int], outcome: Outcome) -> None:
    """Count the reported rows that are missing, stored twice or different."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a torn last line, which was never reported
        rows = store.read(path)
    found = {row["split"]: row for row in rows}
    stored = whole_lines(path)
    outcome.lost += len(reported - set(found))
    outcome.doubled += len(stored) - len({json.loads(line)["split"] for line in stored})
    outcome.different += sum(row != make_row(number) for number, row in found.items())


def whole_lines(path: Place) -> list[bytes]:
    """Return the lines of a file, or of its objects: those may hold a line twice after a merge that was killed."""
    if isinstance(path, ObjectPlace):
        return list({line for part in path.glob("*") for line in part.read_bytes().split(b"\n") if line})
    return [line for line in path.read_bytes().split(b"\n")[:-1] if line]


def remove(path: Place) -> None:
    """Remove all rows."""
    if isinstance(path, ObjectPlace):
        path.remove(list(path.sizes()))
    else:
        Path(str(path)).unlink()


if __name__ == "__main__":
    write_rows(store.path_for(sys.argv[1], "runs", "d"))
