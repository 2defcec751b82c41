"""The fault campaign: kill and break everything at random moments, count what is lost, write the table of the docs.

    make faults                                   1,000 kills at the store, 200 of whole runs
    make faults RUN="--store 100 --runs 20"       a short one
    make faults RUN="--only slurm"                a part: its lines of the table are replaced, the others stay

A seed (--seed) names the random moments, though not the exact instant at which a kill arrives.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import engines_path  # noqa: F401  (makes the modules of tests/engines importable)
import object_faults
from clusters import SLURM_SCRIPT, Unavailable, dask_cluster, ray_cluster, slurm_cluster
from outcome import Outcome
from run_kills import SWEEP, Campaign, kill_driver, kill_worker_of
from store_kills import kill_store
from surroundings import ALL
from sweep import numbers, run

HERE = Path(__file__).resolve()

PAGE = HERE.parents[2] / "docs" / "reliability.md"
# Shares of the kills of whole runs.
SHARES = {
    "driver": 0.5,
    "worker": 0.15,
    "Dask worker": 0.075,
    "Dask scheduler": 0.05,
    "driver on Dask": 0.05,
    "Ray worker": 0.04,
    "raylet": 0.03,
    "driver on Ray": 0.03,
    "slurmd": 0.025,
    "Slurm job": 0.025,
    "driver on Slurm": 0.025,
    "object store": 0.1,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=int, default=1000, help="kills of a process that stores rows")
    parser.add_argument("--runs", type=int, default=200, help="kills of parts of whole runs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="kinds of fault whose name contains this")
    options = parser.parse_args()
    stream = random.Random(options.seed)
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        for outcome in faults(options, Path(name), stream):
            print(outcome.line() if isinstance(outcome, Outcome) else outcome, flush=True)
            outcomes.append(outcome)
            write_page(outcome)
    return 0 if all(outcome.is_clean for outcome in outcomes if isinstance(outcome, Outcome)) else 1


def faults(options: argparse.Namespace, folder: Path, stream: random.Random) -> Iterator[Outcome | str]:
    """Yield the outcome of each kind of fault, or why it could not be tried here."""

    def wanted(name: str) -> bool:
        return options.only in name

    if wanted("store") and options.store:
        yield kill_store(options.store, folder / "store", stream)
    assert run(folder / "quiet", *SWEEP, "workers=2").returncode == 0
    reference = numbers(folder / "quiet")

    def campaign(name: str, *arguments: object, **named: object) -> Outcome:
        kills = max(1, round(SHARES[name] * options.runs))
        made = Campaign(f"kill -9 of the {name}", *arguments, **named)  # type: ignore[arg-type]
        return made.run(kills, folder / name.replace(" ", "_"), reference, stream)

    if wanted("driver"):
        yield campaign("driver", ["workers=2"], kill_driver)
    if wanted("worker"):
        yield campaign("worker", ["workers=2"], kill_worker_of(stream), goes_on=True)
    for engine in (on_dask, on_ray, on_slurm):
        if wanted(engine.__name__.removeprefix("on_")):
            try:
                yield from engine(campaign, stream)
            except Unavailable as reason:
                yield f"{engine.__name__.removeprefix('on_')}: not tried, {reason}"
    if wanted("object store"):
        kills = round(SHARES["object store"] * options.runs)
        yield from object_faults.faults(folder / "objects", options.store // 5, max(1, kills), reference, stream)
    for fault in ALL:
        if wanted(fault.__name__):
            try:
                yield fault(folder / fault.__name__, reference, stream)
            except PermissionError as reason:
                yield f"{fault.__name__}: not tried, {reason}"


def on_dask(campaign: Callable[..., Outcome], stream: random.Random) -> Iterator[Outcome]:
    with dask_cluster() as cluster:

        def kill_worker(process: subprocess.Popen[str]) -> None:
            nanny = cluster.processes[stream.choice(["worker 0", "worker 1"])].pid
            _kill_children(nanny)

        yield campaign("Dask worker", cluster.settings, kill_worker, goes_on=True)
        yield campaign("driver on Dask", cluster.settings, kill_driver)
    yield _with_new_clusters(campaign, "Dask scheduler", dask_cluster, lambda c: c.processes["scheduler"].pid)


def on_ray(campaign: Callable[..., Outcome], stream: random.Random) -> Iterator[Outcome]:
    with ray_cluster() as cluster:
        os.environ |= cluster.environment

        def kill_worker(process: subprocess.Popen[str]) -> None:
            workers = _descendants(cluster.processes["head"].pid, "ray::compute")
            with suppress(ProcessLookupError):
                if workers:
                    os.kill(stream.choice(workers), signal.SIGKILL)

        yield campaign("Ray worker", cluster.settings, kill_worker, goes_on=True)
        yield campaign("driver on Ray", cluster.settings, kill_driver)
    yield _with_new_clusters(
        campaign, "raylet", ray_cluster, lambda c: _descendants(c.processes["head"].pid, "raylet/raylet")[0]
    )


def on_slurm(campaign: Callable[..., Outcome], stream: random.Random) -> Iterator[Outcome]:
    with slurm_cluster() as cluster:
        os.environ |= cluster.environment
        folder = Path(cluster.environment["SLURM_CONF"]).parent

        def kill_slurmd(process: subprocess.Popen[str]) -> None:
            os.kill(int((folder / "slurmd.pid").read_text()), signal.SIGKILL)
            subprocess.run([SLURM_SCRIPT, "start-slurmd", folder], check=False, capture_output=True)

        def cancel_job(process: subprocess.Popen[str]) -> None:
            listed = ["squeue", "--noheader", "--states=RUNNING", "--format=%i"]
            jobs = subprocess.run(listed, capture_output=True, text=True, check=False).stdout.split()
            if jobs:
                subprocess.run(["scancel", "--signal=KILL", "--full", stream.choice(jobs)], check=False)

        def cancel_all() -> None:
            subprocess.run(["scancel", "--user=root"], check=False)

        yield campaign("Slurm job", cluster.settings, cancel_job, goes_on=True)
        yield campaign("slurmd", cluster.settings, kill_slurmd, goes_on=True)
        yield campaign("driver on Slurm", cluster.settings, kill_driver, repair=cancel_all)


def _with_new_clusters(campaign: Callable[..., Outcome], name: str, start, victim) -> Outcome:
    """Run a campaign whose kills end the whole cluster: each is followed by a new one at another address."""
    settings: list[str] = []
    opened = []

    def renew() -> None:
        if opened:
            opened.pop().__exit__(None, None, None)
        manager = start()
        cluster = manager.__enter__()
        opened.append(manager)
        settings[:] = cluster.settings
        os.environ |= cluster.environment
        renew.cluster = cluster  # type: ignore[attr-defined]

    def kill(process: subprocess.Popen[str]) -> None:
        with suppress(ProcessLookupError, IndexError):
            os.kill(victim(renew.cluster), signal.SIGKILL)  # type: ignore[attr-defined]

    renew()
    try:
        return campaign(name, settings, kill, repair=renew)
    finally:
        opened.pop().__exit__(None, None, None)


def _kill_children(parent: int) -> None:
    for path in Path(f"/proc/{parent}/task").glob("*/children"):
        for pid in path.read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def _descendants(process: int, name: str) -> list[int]:
    """Return the processes below one whose program has this in its name."""
    found, parents = [], [process]
    while parents:
        for path in Path(f"/proc/{parents.pop()}/task").glob("*/children"):
            with suppress(OSError):
                children = [int(pid) for pid in path.read_text().split()]
                parents += children
                found += [pid for pid in children if name.encode() in _program(pid)]
    return found


def _program(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
    except OSError:
        return b""


def write_page(outcome: Outcome | str) -> None:
    """Write an outcome into the table of the page, in the place of an earlier one of the same fault."""
    page = PAGE.read_text()
    marked = re.search(r"(<!-- measured: faults -->\n)(.*?)(<!-- end of measurement -->)", page, re.DOTALL)
    assert marked is not None
    lines = [line for line in marked[2].splitlines() if line.startswith("|")][2:]
    new = outcome.line() if isinstance(outcome, Outcome) else f"| {outcome} |"
    name = new.split("|")[1]
    if not any(line.split("|")[1] == name for line in lines):
        lines.append(new)
    lines = [new if line.split("|")[1] == name else line for line in lines]
    head = [Outcome.HEAD, "|---" + "|---:" * (Outcome.HEAD.count("|") - 2) + "|"]
    table = "\n".join([*head, *lines])
    PAGE.write_text(page.replace(marked[0], f"{marked[1]}{table}\n{marked[3]}"))


if __name__ == "__main__":
    sys.exit(main())
