"""`anchormoe-bench key=value ...`: run what a configuration or a sweep asks for, with a progress bar and a summary."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from anchormoe.config.compose import jobs
from anchormoe.config.schema import STOCK_EXPERIMENTS, Config, JobConfig
from anchormoe.data.dataset import num_rows, pinned
from anchormoe.errors import UserError
from anchormoe.report import summary
from anchormoe.run import store
from anchormoe.run.runner import Task, pending, require_runnable, row_identity, run_tasks
from anchormoe.run.store import Row


def main(arguments: list[str]) -> int:
    console = Console()
    wanted = parse(arguments)
    if not wanted:  # Hydra has answered by itself: --help, --cfg job, ...
        return 0
    rows = run_jobs(wanted, console)
    console.print(summary.of_rows(rows))
    return report_failures(rows, console)


def report_failures(rows: pd.DataFrame, console: Console) -> int:
    """What failed, a line each; the exit code."""
    failed = rows[rows.status != "ok"]
    for row in failed.itertuples():
        console.print(f"failed: {row.dataset} {row.ablation} split {row.split}: {row.error}", style="red", markup=False)
    if len(failed):
        console.print(f"{len(failed)} of {len(rows)} splits failed; the same command runs just those again")
    return 1 if len(failed) else 0


def parse(arguments: Sequence[str]) -> list[JobConfig]:
    wanted = jobs([part for argument in arguments for part in _spell_out(argument)])
    if any(job.experiment_name in STOCK_EXPERIMENTS for job in wanted):
        for argument in arguments:
            _require_stock(argument)
    return wanted


def _spell_out(argument: str) -> list[str]:
    """anchor=package.Class means anchor=sklearn anchor.target=package.Class, method=package.Class likewise, and target=
    is method.target=; splits=1,3 is a list, not a sweep."""
    key, _, value = argument.partition("=")
    if key in ("anchor", "method") and "." in value:
        return [f"{key}=sklearn", f"{key}.target={value}"]
    if key == "target":
        return [f"method.target={value}"]
    if key == "splits" and "," in value and value[0] not in "'\"":
        return [f"splits='{value}'"]
    return [argument]


_SELECTS = ("experiment", "dataset", "method", "anchor", "ablation", "protocol", "seed")  # named in every row
_HARMLESS = ("experiment_name", "splits", "workers", "results_dir", "data.source", "data.mirror")


def _require_stock(argument: str) -> None:
    """Rows behind the paper's tables have no settings of their own: one more epoch and they measure something else."""
    key, equals, _ = argument.partition("=")
    if equals and key not in (*_SELECTS, *_HARMLESS):
        names = ", ".join(STOCK_EXPERIMENTS)
        raise UserError(f"the experiments {names} take no settings, received {argument}; add experiment_name=<another>")


def run_jobs(wanted: Sequence[JobConfig], console: Console) -> pd.DataFrame:
    """Run what is not stored yet and return all rows asked for, stored before or now."""
    if not wanted:
        return pd.DataFrame()
    for job in wanted:
        require_runnable(job.config())
    tasks = [task for job in wanted for task in _tasks(job)]
    for path in {task.path for task in tasks}:
        store.require_writable(path)
    todo = pending(tasks)
    if len(todo) < len(tasks):
        console.print(f"{len(tasks) - len(todo)} of {len(tasks)} splits are stored already")
    workers = min(wanted[0].num_workers(), len(todo))
    if todo:
        with _Watch(todo, console) as watch:
            run_tasks(todo, workers=workers, on_row=watch.on_row)
    stored = {path: {store.identity(row): row for row in store.read(path)} for path in {task.path for task in tasks}}
    return pd.DataFrame([stored[task.path][store.identity(task.identity)] for task in tasks])


def _tasks(job: JobConfig) -> list[Task]:
    config = dataclasses.replace(job.config(), dataset=pinned(job.dataset))
    path = store.path_for(Path(job.results_dir), job.experiment_name, config.dataset.name)
    return [Task(config, split, path, row_identity(config, split)) for split in job.split_numbers()]


class _Watch:
    """A progress bar over all splits of all jobs. It counts work, not splits, so that the remaining time is honest
    in a sweep whose small datasets come first."""

    def __init__(self, tasks: Sequence[Task], console: Console) -> None:
        self.running: dict[str, list[Row]] = defaultdict(list)  # by configuration
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=10),
            TextColumn("{task.fields[done]}/{task.fields[count]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            speed_estimate_period=24 * 3600,  # the average of the whole run: splits take seconds to minutes
        )
        total = sum(_work(task.config) for task in tasks)
        self.bar = self.progress.add_task("starting", total=total, done=0, count=len(tasks))
        self.done = 0

    def __enter__(self) -> _Watch:
        self.progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.progress.stop()

    def on_row(self, task: Task, row: Row) -> None:
        self.done += 1
        so_far = self.running[row["config_hash"]]
        so_far.append(row)
        good = [item for item in so_far if store.good(item)]
        text = f"{row['dataset']} {row['ablation']} split {row['split']}"
        if good:
            rmse, nll = (sum(item[name] for item in good) / len(good) for name in ("rmse_y", "nll_z"))
            text += f", RMSE {rmse:.3g} NLL(z) {nll:.3f}"
        self.progress.update(self.bar, advance=_work(task.config), description=text, done=self.done)


def _work(config: Config) -> float:
    """Relative cost of a split: its rows, plus what even the smallest dataset costs; ridge regressions on 4096 features
    take about four times as long as a network."""
    rows = config.dataset.subsample or num_rows(config.dataset, config.effective_variant)
    return (700 + rows) * (4 if config.effective_method == "rff_krr" else 1)
