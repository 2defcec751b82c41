"""The command `anchormoe-bench key=value ...`: run a configuration or a sweep, with a progress bar and a summary."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console

from anchormoe.commands.help import help_text
from anchormoe.commands.progress import Watch
from anchormoe.config.compose import composed, jobs
from anchormoe.config.schema import EXTENDED_EXPERIMENT, STOCK_EXPERIMENTS, EngineConfig, JobConfig, LimitConfig
from anchormoe.errors import UserError
from anchormoe.rows import Row
from anchormoe.running import store

if TYPE_CHECKING:
    import pandas as pd

    from anchormoe.config.schema import EngineConfig
    from anchormoe.rows import Row
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
    wanted = parse(arguments)
    rows = run_jobs(wanted, console)
    from anchormoe.report import summary

    console.print(summary.of_rows(rows))
    return report_failures(rows, console, debug=wanted[0].debug)


def report_failures(rows: pd.DataFrame, console: Console, *, debug: bool = False) -> int:
    """Print one line for each cause of failure, with `debug` also its traceback, and return the exit code.

    Messages that differ only in their numbers have one cause: the number of rows differs from split to split.
    """
    failed = rows[rows.status != "ok"]
    causes = failed["error"].astype(str).str.replace(r"\d+", "#", regex=True) if len(failed) else failed.index
    for _, group in failed.groupby([causes, failed["method"]], sort=False) if len(failed) else ():
        first = group.iloc[0]
        where = f"{first.dataset} {first.method} {first.ablation} split {first.split}"
        others = f" and {len(group) - 1} more" if len(group) > 1 else ""
        console.print(f"failed: {where}{others}: {first.error}", style="red", markup=False)
        if debug and isinstance(first.get("traceback"), str):
            console.print(first["traceback"], markup=False, highlight=False)
    if len(failed):
        console.print(f"{len(failed)} of {len(rows)} splits failed; the same command runs just those again")
    return 1 if len(failed) else 0


def parse(arguments: Sequence[str]) -> list[JobConfig]:
    """Turn a command line into configurations; the experiments behind the tables take no settings of their own."""
    settings = [argument for argument in arguments if argument not in _FLAGS]
    wanted = jobs(settings)
    if any(job.experiment_name in (*STOCK_EXPERIMENTS, EXTENDED_EXPERIMENT) for job in wanted):
        for argument in settings:
            _require_stock(argument)
    return wanted


_SELECTS = ("experiment", "suite", "dataset", "method", "anchor", "ablation", "protocol", "seed")  # named in every row
_HARMLESS = (
    *("experiment_name", "splits", "workers", "predictions", "results_dir"),
    *("data.source", "data.mirror", "engine", "debug"),
)


def _require_stock(argument: str) -> None:
    """Refuse settings for the experiments behind the tables: rows with other settings measure something else."""
    key, equals, _ = argument.partition("=")
    if equals and key not in (*_SELECTS, *_HARMLESS) and not key.startswith(("engine.", "limit.")):
        names = ", ".join((*STOCK_EXPERIMENTS, EXTENDED_EXPERIMENT))
        raise UserError(f"the experiments {names} take no settings, received {argument}; add experiment_name=<another>")


def _show_configuration(arguments: Sequence[str]) -> None:
    from omegaconf import OmegaConf

    for _, config in composed([argument for argument in arguments if argument not in _FLAGS]):
        print(OmegaConf.to_yaml(config))


def run_jobs(
    wanted: Sequence[JobConfig], console: Console, *, known: Iterable[Row] = (), show_estimates: bool = False
) -> pd.DataFrame:
    """Run what is not stored yet and return all rows asked for, stored before or now.

    known: rows stored elsewhere, which need not be computed again.
    show_estimates: whether the first split of every method goes first, and the time of the others is said then.
    """
    import pandas as pd

    from anchormoe.data.catalogue import is_shipped
    from anchormoe.data.dataset import pinned
    from anchormoe.running.driver import StoredTask
    from anchormoe.running.evaluate import evaluate
    from anchormoe.running.tasks import make_task, require_runnable

    for name in ("engine", "limit"):
        if any(getattr(job, name) != getattr(wanted[0], name) for job in wanted):
            raise UserError(
                f"{name} must be one for all jobs of a sweep, received several; run them one after the other"
            )
    places = {name: store.place(name) for name in {job.results_dir for job in wanted}}
    tasks: list[StoredTask] = []
    for job in wanted:
        # The content hash is stated, so that a file which changes during the run is refused.
        config = dataclasses.replace(job.config(), dataset=pinned(job.dataset))
        require_runnable(config)
        path = store.path_for(places[job.results_dir], job.experiment_name, config.dataset.name)
        keep = not is_shipped(config.dataset) if job.predictions is None else job.predictions
        tasks += [
            StoredTask(make_task(config, split, keep_predictions=keep), path, job.predictions is True)
            for split in job.split_numbers()
        ]
    circumstances = Circumstances(wanted[0].engine, wanted[0].num_workers(), wanted[0].limit)
    return pd.DataFrame(run_tasks(tasks, evaluate, circumstances, console, known=known, show_estimates=show_estimates))


@dataclasses.dataclass(frozen=True)
class Circumstances:
    """The engine that computes tasks, and what a single one may take; rows do not depend on these."""

    engine: EngineConfig
    workers: int
    limit: LimitConfig = dataclasses.field(default_factory=LimitConfig)


def run_tasks(
    tasks: Sequence[StoredTask],
    compute: Callable[[Any], Row],
    circumstances: Circumstances,
    console: Console,
    *,
    known: Iterable[Row] = (),
    show_estimates: bool = False,
) -> list[Row]:
    """Compute the tasks whose rows are not stored yet and return the rows of all, in the order of the tasks."""
    from anchormoe.running.costs import Costs
    from anchormoe.running.driver import Driver
    from anchormoe.running.engines import open_engine
    from anchormoe.running.ownership import Ownership, remove_abandoned_locks
    from anchormoe.running.temporary import remove_abandoned_folders

    for place in {item.path for item in tasks}:
        store.place(place).require_writable()
    driver = Driver(tasks, compute, known=known, limit=circumstances.limit)
    todo = driver.pending()
    if len(todo) < len(tasks):
        console.print(f"{len(tasks) - len(todo)} of {len(tasks)} splits are stored already")
    # What runs left behind that were killed after the last row of a file, or anywhere else on this machine.
    remove_abandoned_locks({item.path for item in tasks} - {item.path for item in todo})
    remove_abandoned_folders()
    if todo:
        num_workers = min(circumstances.workers, len(todo))
        costs = Costs(item.task.labels["dataset"] for item in todo)
        with (
            Ownership({item.path for item in todo}, lambda line: console.print(line, markup=False)) as own,
            Watch(todo, costs, console, num_workers if show_estimates else None) as watch,
            open_engine(circumstances.engine, num_workers, circumstances.limit) as engine,
        ):
            driver.run(engine, own, watch.on_row, watch.urgency)
    return driver.rows()
