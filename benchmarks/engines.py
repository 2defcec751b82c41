"""The overhead of a task on every engine, beside the cost of the smallest real task, and the speed of the store.

    make bench-engines      writes benchmarks/engines.md

A task here does everything but the fit: it travels to a worker, a row comes back and is stored. The clusters are real
ones of this machine, of two workers each, started by their own commands (tests/engines/clusters.py).
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

from anchormoe.commands.run import parse
from anchormoe.rows import Row
from anchormoe.running.driver import Driver, StoredTask
from anchormoe.running.engines import open_engine
from anchormoe.running.evaluate import evaluate
from anchormoe.running.ownership import Ownership
from anchormoe.running.store import RowFile, read
from anchormoe.running.tasks import make_task
from anchormoe.running.threads import one_thread

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "tests" / "engines"))

from clusters import Unavailable, dask_cluster, ray_cluster, slurm_cluster  # noqa: E402

NUM_TASKS = 2000
NUM_ROWS = 100_000
CLUSTERS = {"dask": dask_cluster, "ray": ray_cluster, "slurm": slurm_cluster}
SMALLEST = ["dataset=yacht", "method=sklearn.linear_model.Ridge", "protocol=clean"]


# A row of the usual size, which a task without a fit carries in its labels and brings back.
ROW: Row = {"status": "ok", "rmse_y": 0.5, "nll_y": 1.5, "nll_z": 1.5, "cpu": "", "padding": "x" * 1500}
without_fit = attrgetter("labels")


def main() -> None:
    """Measure everything, print the page and write it."""
    load = os.getloadavg()[0]
    lines = ["| engine | tasks per second | overhead per task, ms |", "|---|---:|---:|"]
    for name, per_second in engines():
        cells = per_second if isinstance(per_second, str) else f"{per_second:,.0f} | {1000 / per_second:.2f}"
        lines.append(f"| {name} | {cells} |")
        print(lines[-1], flush=True)
    appended, together, loaded, size = store_speed()
    compose_ms, task_ms = preparation()
    text = f"""{chr(10).join(lines)}

{NUM_TASKS:,} tasks without a fit, two workers each, rows stored and synced by the driver; `make bench-engines` on
{os.cpu_count()} cores, which driver, scheduler and workers share. The load of other programs was {load:.1f} before.

| step | cost |
|---|---:|
| smallest real task: Ridge on yacht, fit and scores | {1000 * smallest():.0f} ms |
| composing a configuration | {compose_ms:.1f} ms |
| making a task of it, with its identity | {task_ms:.2f} ms |
| storing a row by itself, synced | {1000 * appended:.2f} ms |
| storing {NUM_ROWS:,} rows, 100 at a time | {together:.1f} s |
| reading {NUM_ROWS:,} rows | {loaded:.1f} s |
| size of a row | {size:.0f} bytes |
"""
    print(text)
    (HERE / "engines.md").write_text(text)


def engines() -> Iterator[tuple[str, float | str]]:
    """Yield each engine's tasks per second, or why it could not be measured."""
    yield "local, in this process", throughput(["workers=1"])
    yield "local, 2 workers", throughput(["workers=2"])
    for name, start in CLUSTERS.items():
        with ExitStack() as stack:
            try:
                cluster = stack.enter_context(start())
                os.environ |= cluster.environment
                yield name, throughput(cluster.settings)
            except Unavailable as reason:
                yield name, f"not measured: {reason} |"


def throughput(settings: list[str]) -> float:
    """Return the tasks per second of an engine, after its workers have started."""
    (job,) = parse([*SMALLEST, *settings])
    task = make_task(job.config(), 1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs" / "yacht.jsonl"
        path.parent.mkdir()
        tasks = [
            StoredTask(replace(task, labels={**task.labels, **ROW, "split": number}), path)
            for number in range(NUM_TASKS)
        ]
        with Ownership([path]) as own, open_engine(job.engine, job.num_workers()) as engine:
            Driver(tasks[:20], without_fit).run(engine, own, lambda item, row: None)  # workers import and are checked
            start = time.perf_counter()
            Driver(tasks, without_fit).run(engine, own, lambda item, row: None)
            return (NUM_TASKS - 20) / (time.perf_counter() - start)


def smallest() -> float:
    """Return the seconds of the smallest real task."""
    (job,) = parse(SMALLEST)
    with one_thread():
        evaluate(make_task(job.config(), 1))
        start = time.perf_counter()
        for split in range(1, 21):
            assert evaluate(make_task(job.config(), split))["status"] == "ok"
    return (time.perf_counter() - start) / 20


def preparation() -> tuple[float, float]:
    """Return the milliseconds that a configuration and a task take to make."""
    datasets = "dataset=yacht,boston,energy,concrete,wine,power,kin8nm,protein,naval"
    start = time.perf_counter()
    jobs = parse([datasets, "method=mdn,gamlss", "protocol=clean"])
    composed = time.perf_counter()
    for job in jobs:
        for split in range(1, 21):
            make_task(job.config(), split)
    made = time.perf_counter()
    return 1000 * (composed - start) / len(jobs), 1000 * (made - composed) / (20 * len(jobs))


def store_speed() -> tuple[float, float, float, float]:
    """Return the seconds of one synced append, of storing and of reading many rows, and the bytes of a row."""
    (job,) = parse(SMALLEST)
    row = {**make_task(job.config(), 1).labels, **ROW}
    with tempfile.TemporaryDirectory(dir=HERE) as folder:  # a real disk: temporary files may lie in memory
        single = RowFile(Path(folder) / "single" / "yacht.jsonl")
        start = time.perf_counter()
        for split in range(200):
            single.append({**row, "split": split})
        appended = (time.perf_counter() - start) / 200
        file = RowFile(Path(folder) / "many" / "yacht.jsonl")
        start = time.perf_counter()
        for first in range(0, NUM_ROWS, 100):
            file.append_all({**row, "split": split} for split in range(first, first + 100))
        together = time.perf_counter() - start
        start = time.perf_counter()
        assert len(read(file.path)) == NUM_ROWS
        return appended, together, time.perf_counter() - start, file.path.stat().st_size / NUM_ROWS


if __name__ == "__main__":
    main()
