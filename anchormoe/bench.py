"""`anchormoe-bench key=value ...`: run what a configuration or a sweep asks for, and show it."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from anchormoe import store
from anchormoe.compose import jobs
from anchormoe.config import JobConfig
from anchormoe.runner import Task, pending, run_tasks
from anchormoe.store import Row


def main(arguments: list[str]) -> int:
    console = Console()
    wanted = jobs(arguments)
    if not wanted:  # Hydra has answered by itself: --help, --cfg job, ...
        return 0
    tasks = [task for job in wanted for task in job_tasks(job)]
    todo = pending(tasks)
    failed: list[Row] = []

    def on_row(task: Task, row: Row) -> None:
        if not store.good(row):
            failed.append(row)
        console.print(
            {
                k: row.get(k)
                for k in (
                    "dataset",
                    "ablation",
                    "protocol",
                    "anchor",
                    "split",
                    "rmse_y",
                    "nll_z",
                    "anchor_stage",
                    "epoch",
                    "fit_seconds",
                    "error",
                )
            }
        )

    run_tasks(todo, workers=wanted[0].num_workers(), on_row=on_row)
    return 1 if failed else 0


def job_tasks(job: JobConfig) -> list[Task]:
    config = job.config()
    path = store.path_for(Path(job.results_dir), job.experiment_name, config.dataset.name)
    return [Task(config, split, path) for split in job.split_numbers()]
