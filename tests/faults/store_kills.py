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
from anchormoe.running.ownership import Ownership

ROWS_PER_FILE = 400


def make_row(number: int) -> Row:
    stream = random.Random(number)
    labels = {"dataset": "d", "method": "m", "ablation": "full", "protocol": "clean", "anchor": "none", "seed": 1}
    padding = "x" * stream.randrange(4000)
    scores = {"rmse_y": stream.random(), "nll_y": stream.gauss(0, 1)}
    return {**labels, "split": number, "config_hash": "c", "status": "ok", **scores, "padding": padding}


def write_rows(path: Path) -> None:
    """Store rows one to five at a time, and report the number of each after it is stored."""
    file = store.RowFile(path)
    with Ownership([path], lambda line: None) as own:
        next_number = len(file.rows())
        while True:
            numbers = range(next_number, next_number + random.randint(1, 5))
            own.require(path)
            file.append_all(make_row(number) for number in numbers)
            os.write(1, "".join(f"{number}\n" for number in numbers).encode())
            next_number = numbers.stop


def kill_store(kills: int, folder: Path, stream: random.Random) -> Outcome:
    """Kill the process again and again while it works, and check the file after each kill."""
    outcome = Outcome("kill -9 of a process that stores rows")
    path = folder / "runs" / "d.jsonl"
    path.parent.mkdir(parents=True)
    reported: set[int] = set()
    for _ in range(kills):
        command = [sys.executable, __file__, str(path)]
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
            path.unlink()
            reported.clear()
    outcome.rows += len(reported)
    return outcome


def check(path: Path, reported: set[int], outcome: Outcome) -> None:
    """Count the reported rows that are missing, stored twice or different."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a torn last line, which was never reported
        rows = store.read(path)
    found = {row["split"]: row for row in rows}
    whole_lines = [line for line in path.read_bytes().split(b"\n")[:-1] if line]
    outcome.lost += len(reported - set(found))
    outcome.doubled += len(whole_lines) - len({json.loads(line)["split"] for line in whole_lines})
    outcome.different += sum(row != make_row(number) for number, row in found.items())


if __name__ == "__main__":
    write_rows(Path(sys.argv[1]))
