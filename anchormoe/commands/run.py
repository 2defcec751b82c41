"""The command `anchormoe-bench key=value ...`: run a configuration or a sweep, with a progress bar and a summary."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from anchormoe.commands.help import help_text
from anchormoe.commands.progress import Watch
from anchormoe.config.compose import composed, jobs
from anchormoe.config.schema import STOCK_EXPERIMENTS, JobConfig
from anchormoe.errors import UserError
from anchormoe.running import store

if TYPE_CHECKING:
    import pandas as pd

    from anchormoe.running.driver import StoredTask

_FLAGS = ("-m", "--multirun")  # Hydra's flags for a sweep; here a comma is enough


def main(arguments: list[str]) -> int:
    """Run the command."""
    if "--help" in arguments or "-h" in arguments:
        print(help_text())
        return 0
    if "--cfg" in arguments:
        _show_configuration([item for item in arguments if item not in ("--cfg", "job")])
        return 0
    console = Console()
    rows = run_jobs(parse(arguments), console)
    from anchormoe.report import summary

    console.print(summary.of_rows(rows))
    return report_failures(rows, console)


def report_failures(rows: pd.DataFrame, console: Console) -> int:
    """Print one line for each cause of failure and return the exit code."""
    failed = rows[rows.status != "ok"]
    for error, group in failed.groupby("error", sort=False) if len(failed) else ():
        first = group.iloc[0]
        where = f"{first.dataset} {first.ablation} split {first.split}"
        others = f" and {len(group) - 1} more" if len(group) > 1 else ""
        console.print(f"failed: {where}{others}: {error}", style="red", markup=False)
    if len(failed):
        console.print(f"{len(failed)} of {len(rows)} splits failed; the same command runs just those again")
    return 1 if len(failed) else 0


def parse(arguments: Sequence[str]) -> list[JobConfig]:
    """Turn a command line into configurations; the experiments behind the tables take no settings of their own."""
    settings = [argument for argument in arguments if argument not in _FLAGS]
    wanted = jobs(settings)
    if any(job.experiment_name in STOCK_EXPERIMENTS for job in wanted):
        for argument in settings:
            _require_stock(argument)
    return wanted


_SELECTS = ("experiment", "dataset", "method", "anchor", "ablation", "protocol", "seed")  # named in every row
_HARMLESS = ("experiment_name", "splits", "workers", "results_dir", "data.source", "data.mirror", "engine")


def _require_stock(argument: str) -> None:
    """Refuse settings for the experiments behind the tables: rows with other settings measure something else."""
    key, equals, _ = argument.partition("=")
    if equals and key not in (*_SELECTS, *_HARMLESS) and not key.startswith("engine."):
        names = ", ".join(STOCK_EXPERIMENTS)
        raise UserError(f"the experiments {names} take no settings, received {argument}; add experiment_name=<another>")


def _show_configuration(arguments: Sequence[str]) -> None:
    from omegaconf import OmegaConf

    for _, config in composed([argument for argument in arguments if argument not in _FLAGS]):
        print(OmegaConf.to_yaml(config))


def run_jobs(wanted: Sequence[JobConfig], console: Console) -> pd.DataFrame:
    """Run what is not stored yet and return all rows asked for, stored before or now."""
    import pandas as pd

    from anchormoe.data.dataset import pinned
    from anchormoe.running.costs import Costs
    from anchormoe.running.driver import Driver, StoredTask
    from anchormoe.running.engines import open_engine
    from anchormoe.running.ownership import Ownership, remove_abandoned_locks
    from anchormoe.running.tasks import make_task, require_runnable
    from anchormoe.running.temporary import remove_abandoned_folders

    if any(job.engine != wanted[0].engine for job in wanted):
        raise UserError("engine must be one for all jobs of a sweep, received several; run them one after the other")
    tasks: list[StoredTask] = []
    for job in wanted:
        # The content hash is stated, so that a file which changes during the run is refused.
        config = dataclasses.replace(job.config(), dataset=pinned(job.dataset))
        require_runnable(config)
        path = store.path_for(Path(job.results_dir), job.experiment_name, config.dataset.name)
        tasks += [StoredTask(make_task(config, split), path) for split in job.split_numbers()]
    for path in {item.path for item in tasks}:
        store.require_writable(path)
    driver = Driver(tasks)
    todo = driver.pending()
    if len(todo) < len(tasks):
        console.print(f"{len(tasks) - len(todo)} of {len(tasks)} splits are stored already")
    # What runs left behind that were killed after the last row of a file, or anywhere else on this machine.
    remove_abandoned_locks({item.path for item in tasks} - {item.path for item in todo})
    remove_abandoned_folders()
    if todo:
        costs = Costs(item.task.labels["dataset"] for item in todo)
        with (
            Ownership({item.path for item in todo}, lambda line: console.print(line, markup=False)) as own,
            Watch(todo, costs, console) as watch,
            open_engine(wanted[0].engine, min(wanted[0].num_workers(), len(todo))) as engine,
        ):
            driver.run(engine, own, watch.on_row, costs.seconds)
    return pd.DataFrame(driver.rows())
