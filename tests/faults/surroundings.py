"""Runs in bad surroundings: a full disk, a read-only folder, another driver, foreign lines, a clock that jumps."""

from __future__ import annotations

import os
import random
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import engines_path  # noqa: F401  (makes the modules of tests/engines importable)
from outcome import Outcome
from run_kills import SWEEP, doubled
from sweep import command, run, stored, without_circumstances

from anchormoe.running.store import Place

FOREIGN = [b"123", b"null", b"[1, 2]", b"{}", b'{"split": [1]}', b"\x00\xff\xfe binary", b"[" * 50_000, b"<html>", b""]
JUMPING_CLOCK = """
import random, time
_time = time.time
time.time = lambda: _time() + random.choice([-86400.0 * 400, -3600.0, 0.0, 3600.0, 86400.0 * 400])
time.time_ns = lambda: int(time.time() * 1e9)
"""


def finish(results: Path | Place, reference: dict[Any, Any], outcome: Outcome, **environment: str) -> None:
    """Complete the sweep under good conditions and compare it with a quiet run."""
    done = run(results, *SWEEP, "workers=2", **environment)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # foreign lines
        found = without_circumstances(stored(results))
    outcome.tracebacks += "Traceback" in done.stdout + done.stderr or done.returncode != 0
    outcome.rows += len(found)
    outcome.lost += len(set(reference) - set(found))
    outcome.different += sum(found[key] != reference[key] for key in set(reference) & set(found))
    outcome.folders += len(list(results.glob("*/*.lock")))


def expect_one_line(done: subprocess.CompletedProcess[str], words: str, outcome: Outcome) -> None:
    """Count a run as wrong unless it ended with the user's exit code and one line with these words."""
    line = done.stderr.strip()
    outcome.kills += 1
    outcome.tracebacks += not (done.returncode == 2 and words in line and len(line.splitlines()) == 1)


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    """Mount a file system in memory, which only root may do."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        raise PermissionError("only root can mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def full_disk(folder: Path, reference: dict[Any, Any], stream: random.Random) -> Outcome:
    outcome = Outcome("full disk")
    with small_disk(folder, 64) as disk:
        for kilobytes in (8, 12, 16, 24):
            subprocess.run(["mount", "-o", f"remount,size={kilobytes}k", str(disk)], check=True)
            expect_one_line(run(disk, *SWEEP, "workers=2"), "free space", outcome)
        subprocess.run(["mount", "-o", "remount,size=10m", str(disk)], check=True)
        finish(disk, reference, outcome)
    return outcome


def read_only_folder(folder: Path, reference: dict[Any, Any], stream: random.Random) -> Outcome:
    outcome = Outcome("read-only folder")
    with small_disk(folder, 10_000) as disk:
        assert run(disk, *SWEEP, "splits=1-3", "workers=2").returncode == 0
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        expect_one_line(run(disk, *SWEEP, "workers=2"), "can be written to", outcome)
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        finish(disk, reference, outcome)
    return outcome


def two_drivers(folder: Path, reference: dict[Any, Any], stream: random.Random) -> Outcome:
    outcome = Outcome("two drivers at once")
    for number in range(3):
        results = folder / str(number)
        pair = [
            subprocess.Popen(
                command(results, *SWEEP, "workers=1"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            for _ in range(2)
        ]
        done = [subprocess.CompletedProcess((), process.returncode, *out) for process, out in _finished(pair)]
        refused = [process for process in done if process.returncode == 2]
        if refused:  # else the second began after the first had ended
            expect_one_line(refused[0], "one run at a time", outcome)
        outcome.tracebacks += len(refused) > 1
        outcome.doubled += doubled(results)
        finish(results, reference, outcome)
    return outcome


def _finished(pair: list[subprocess.Popen[str]]) -> Iterator[tuple[subprocess.Popen[str], tuple[str, str]]]:
    for process in pair:
        output = process.communicate()
        yield process, output


def foreign_lines(folder: Path, reference: dict[Any, Any], stream: random.Random) -> Outcome:
    """Put torn, binary and foreign lines between the stored rows, then go on."""
    outcome = Outcome("torn, binary and foreign lines")
    assert run(folder, *SWEEP, "splits=1-10", "workers=2").returncode == 0
    for path in (folder / "runs").glob("*.jsonl"):
        content = path.read_bytes().split(b"\n")[:-1]
        for line in [*FOREIGN, content[0][:100]]:
            content.insert(stream.randrange(len(content) + 1), line)
            outcome.kills += 1
        path.write_bytes(b"\n".join(content) + b"\n" + content[-1][:50])
        outcome.kills += 1
    finish(folder, reference, outcome, PYTHONWARNINGS="ignore")
    return outcome


def jumping_clock(folder: Path, reference: dict[Any, Any], stream: random.Random) -> Outcome:
    """Let the wall clock of every process jump by an hour or a year at each look at it."""
    outcome = Outcome("clock jumps")
    (folder / "patch").mkdir(parents=True)
    (folder / "patch" / "sitecustomize.py").write_text(JUMPING_CLOCK)
    for number in range(2):
        finish(folder / str(number), reference, outcome, PYTHONPATH=str(folder / "patch"))
        outcome.kills += 1
    return outcome


ALL = (full_disk, read_only_folder, two_drivers, foreign_lines, jumping_clock)
