"""The only wiring: one configuration and one split number to one stored row; many of them over worker processes."""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import math
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from anchormoe.config.schema import Config, DataSource, SeedRule
from anchormoe.data.dataset import Dataset, load, num_rows
from anchormoe.data.splits import Split, inner_split, outer_split, subsample
from anchormoe.errors import UserError
from anchormoe.model.anchors.boosted import require_usable
from anchormoe.run import store
from anchormoe.run.provenance import config_hash, environment, peak_memory_mb
from anchormoe.run.store import Row


@dataclass(frozen=True)
class Task:
    """One split of one configuration, and where its row goes.

    The identity is found once, when the task is set: the file of a regressor of the user's may change while it runs.
    """

    config: Config
    split: int
    path: Path
    identity: Row


def row_identity(config: Config, split: int) -> Row:
    return {
        "dataset": config.dataset.name,
        "method": config.method_label,
        "ablation": config.ablation,
        "protocol": config.protocol.name,
        "anchor": config.anchor.name if config.effective_method == "anchormoe" else "none",
        "seed": config.seed,
        "split": split,
        "config_hash": config_hash(config),
    }


def require_runnable(config: Config) -> None:
    """What only other modules know: a variant of the dataset, an anchor's import path and parameters, a download."""
    subsample_size, total = config.dataset.subsample, num_rows(config.dataset, config.effective_variant)
    if subsample_size is not None and not 30 <= subsample_size <= total:
        raise UserError(f"dataset.subsample must be null or from 30 to {total}, received {subsample_size}")
    if config.effective_method == "anchormoe":
        require_usable(config.anchor, cross_fitted=config.crossfit.folds > 0)
    else:
        from anchormoe.methods import make

        make(config)
    if config.data.source is DataSource.download or config.dataset.path is not None:
        load_dataset(config)  # into the cache once, before several workers want it


def load_dataset(config: Config) -> Dataset:
    """The dataset's variant that this protocol and ablation use, subsampled if so configured."""
    source, mirror = config.data.source.value, config.data.mirror
    dataset = load(config.dataset, variant=config.effective_variant, source=source, mirror=mirror)
    if config.dataset.subsample is None:
        return dataset
    rows = subsample(len(dataset.y), config.dataset.subsample, config.seed)
    return dataclasses.replace(dataset, X=dataset.X[rows], y=dataset.y[rows])


def make_split(config: Config, rows: int, number: int) -> Split:
    continued = config.dataset.name in config.rules.continued_stream
    from_rows = num_rows(config.dataset, config.effective_variant) if continued else None
    train, test = outer_split(rows, number, config.seed, subsampled_from=from_rows)
    return inner_split(
        number,
        train,
        test,
        inner_seed(config, number),
        calibration_fraction=config.rules.calibration_fraction,
        validation_fraction=config.rules.validation_fraction,
    )


def inner_seed(config: Config, number: int) -> int:
    return config.seed + number if config.rules.inner_seed is SeedRule.per_split else config.seed


def run_split(config: Config, number: int) -> Row:
    """Config -> Dataset -> Split -> Outcome -> metrics -> Row. A failure of the method becomes a failed row."""
    import torch

    from anchormoe.distributions.scores import pit_counts, scores
    from anchormoe.methods import fit_predict

    dataset = load_dataset(config)
    row: Row = {
        **row_identity(config, number),
        "model": config.model.name,
        "variant": dataset.variant,
        "num_rows": len(dataset.y),
        "num_features": dataset.X.shape[1],
        "data_sha256": dataset.sha256,
    }
    try:
        split = make_split(config, len(dataset.y), number)
        outcome = fit_predict(config, dataset, split, inner_seed=inner_seed(config, number))
        metrics = scores(outcome, dataset.y[split.test])
        if not all(math.isfinite(value) for value in metrics.values()):
            raise ArithmeticError(f"metrics must be finite, received {metrics}")
    except UserError:
        raise
    except Exception as error:  # one bad split must not stop a sweep; the row says what happened
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}:{frame.lineno}"
        return {**row, "status": "failed", "error": f"{type(error).__name__}: {error} ({where})", **environment()}
    return {
        **row,
        "status": "ok",
        **metrics,
        "pit_counts": pit_counts(outcome, dataset.y[split.test]),
        "anchor_stage": outcome.anchor_stage,
        "epoch": outcome.epoch,
        "longest_wait": outcome.longest_wait,
        "calibration_a": outcome.calibration_a,
        "calibration_b": outcome.calibration_b,
        "scale_y": outcome.scale,
        "fit_seconds": round(outcome.fit_seconds, 3),
        "predict_seconds": round(outcome.predict_seconds, 4),
        "peak_memory_mb": round(peak_memory_mb(), 1),
        "threads": torch.get_num_threads(),
        **environment(),
    }


def run_task(task: Task) -> Row:
    return _stored(task, {**run_split(task.config, task.split), **task.identity})


def _stored(task: Task, row: Row) -> Row:
    try:
        store.append(task.path, row)
    except OSError as error:
        raise UserError(
            f"a row must be stored in {task.path}, but: {error.strerror}; free space, then run again"
        ) from None
    return row


def pending(tasks: Iterable[Task]) -> list[Task]:
    """The tasks whose rows are not stored yet; failed ones count as not stored."""
    done: dict[Path, set[tuple]] = {}
    todo = []
    for task in tasks:
        if task.path not in done:
            done[task.path] = {store.identity(row) for row in store.read(task.path) if store.good(row)}
        if store.identity(task.identity) not in done[task.path]:
            todo.append(task)
    return todo


def run_tasks(tasks: list[Task], *, workers: int, on_row: Callable[[Task, Row], None]) -> None:
    """Run tasks over worker processes of one thread each; on_row is called as each row is stored."""
    for task, row in _completed(tasks, workers):
        on_row(task, row)


def _completed(tasks: list[Task], workers: int) -> Iterator[tuple[Task, Row]]:
    with tempfile.TemporaryDirectory(prefix="anchormoe-") as shared:
        if workers == 1:
            environment()
            from anchormoe.model.sharing import shared_fits

            with one_thread(), shared_fits(shared):
                for task in tasks:
                    yield task, run_task(task)
        else:
            yield from _despite_dead_workers(tasks, workers, shared)


def _despite_dead_workers(tasks: list[Task], workers: int, shared: str) -> Iterator[tuple[Task, Row]]:
    waiting = iter(tasks)
    running: dict[Future[Row], Task] = {}
    while True:
        try:
            yield from _over_workers(waiting, running, workers, shared)
            return
        except BrokenProcessPool:
            # A worker was killed, for want of memory perhaps. What was under way has failed, the rest goes on.
            for task in running.values():
                error = "a worker process died while this split was under way"
                yield task, _stored(task, {**task.identity, "status": "failed", "error": error, **environment()})
            running.clear()


def _over_workers(
    waiting: Iterator[Task], running: dict[Future[Row], Task], workers: int, shared: str
) -> Iterator[tuple[Task, Row]]:
    """Rows as they are done; `running` always holds the tasks under way."""
    context = multiprocessing.get_context("spawn")  # forking a process that has run torch can deadlock
    started = (os.getpid(), shared)
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker, initargs=started) as pool:
        try:
            while True:
                # Hand out little more than is being run, so that an interruption leaves no queue to wait for.
                for task in itertools.islice(waiting, workers + 1 - len(running)):
                    with _main_left_out(), _interrupts_held_back():
                        running[pool.submit(run_task, task)] = task
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    row = future.result()
                    yield running.pop(future), row
        except BaseException:
            processes = list((pool._processes or {}).values())  # None after the shutdown
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.terminate()
            for process in processes:
                process.join()  # else it might still write into the folder of shared fits while that is removed
            raise


@contextmanager
def _main_left_out() -> Iterator[None]:
    """Spawned workers import the program's main module again, and a script that calls run() at its top level would
    start all over in each of them. Ours need nothing from it."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread per process: workers that share cores with each other's threads run many times slower, and the
    order of float32 sums, hence the numbers, would depend on the machine."""
    import torch
    import xgboost  # noqa: F401  (loaded first, so that its OpenMP runtime is limited too)
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def keep_freed_memory() -> None:
    """Every epoch frees and allocates the same few megabytes. By default glibc gives them back to the system in
    between, and page faults bring them back: about 800 per epoch of 7,500 rows."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mmap_threshold, trim_threshold = -3, -1  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD of malloc.h
        mallopt(mmap_threshold, 2**30)
        mallopt(trim_threshold, 2**31 - 1)


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Workers started meanwhile inherit it: Ctrl-C, which a terminal sends to all its processes, is for the parent, and
    the parent ends its workers."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_worker_lifetime = ExitStack()  # a context that nothing refers to would be left at once


def _start_worker(parent: int, shared: str) -> None:
    from anchormoe.model.sharing import shared_fits

    environment()
    _worker_lifetime.enter_context(one_thread())
    _worker_lifetime.enter_context(shared_fits(shared))
    keep_freed_memory()
    threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()


def _exit_with(parent: int) -> None:
    """A worker whose parent was killed must not go on by itself."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
