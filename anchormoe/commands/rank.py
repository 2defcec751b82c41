"""The command `anchormoe-bench rank package.module.Class`: run a regressor on all datasets and rank it."""

from __future__ import annotations

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table

from anchormoe.commands.rows import comparison_rows, stored_rows
from anchormoe.commands.run import parse, report_failures, run_jobs
from anchormoe.config.schema import RANKING_EXPERIMENT
from anchormoe.distributions.scores import METRICS, ranked
from anchormoe.errors import UserError
from anchormoe.report import comparison, published

HELP = """anchormoe-bench rank package.module.Class [method.params.NAME=VALUE ...] [workers=auto] [engine=local]
                     [results_dir=results]

Runs a regressor of yours on the nine datasets, 20 splits each, and ranks it among all methods that were run. Stop it
and the same command goes on. The file it is in may lie in this folder. What the class must have: docs/your-method.md"""


def main(arguments: list[str]) -> int:
    if "--help" in arguments or "-h" in arguments:
        print(HELP)
        return 0
    path, *settings = arguments or [""]
    if "." not in path or "=" in path:
        raise UserError(
            "rank must be followed by the import path of a regressor, such as sklearn.linear_model.BayesianRidge, "
            f"received {path or 'nothing'}"
        )
    console = Console()
    jobs = parse([f"experiment={RANKING_EXPERIMENT}", f"method={path}", *settings])
    exit_code = report_failures(run_jobs(jobs, console), console)
    rows = comparison_rows(stored_rows(jobs[0].results_dir, beside_shipped=True))
    ranks = {metric.name: comparison.means(rows, metric.name).rank(axis=1) for metric in ranked()}
    if path not in ranks["nll_y"]:
        needed = published.NUM_SPLITS * len(published.DATASETS)
        console.print(
            f"{path} is not ranked yet: it must have {needed} splits with seed=1; run the same without splits="
        )
        return exit_code
    console.print(average_ranks(ranks, path))
    console.print(by_dataset(rows, ranks, path))
    console.print("Standard errors and paired tests: anchormoe-bench tables form=comparison", highlight=False)
    return exit_code


def average_ranks(ranks: dict[str, pd.DataFrame], path: str) -> Table:
    average = pd.DataFrame({metric: of_datasets.mean() for metric, of_datasets in ranks.items()})
    table = Table(
        title=f"Average rank over {len(published.DATASETS)} datasets, 1 is best",
        box=box.SIMPLE_HEAD,
        title_justify="left",
    )
    table.add_column("method")
    for metric in ranks:
        table.add_column(METRICS[metric].label, justify="right")
    for method, values in average.loc[average.mean(axis=1).sort_values(kind="stable").index].iterrows():
        style = "bold" if method == path else ""
        table.add_row(comparison.heading(str(method)), *(f"{value:.1f}" for value in values), style=style)
    return table


def by_dataset(rows: pd.DataFrame, ranks: dict[str, pd.DataFrame], path: str) -> Table:
    table = Table(title=f"{path}: mean in original units, rank", box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("dataset")
    means = {metric: comparison.means(rows, metric)[path] for metric in ranks}
    for metric in ranks:
        table.add_column(METRICS[metric].label, justify="right")
        table.add_column("rank", justify="right")
    for dataset in published.DATASETS:
        cells = [(f"{means[metric][dataset]:.4g}", f"{ranks[metric][path][dataset]:.0f}") for metric in ranks]
        table.add_row(dataset, *(text for pair in cells for text in pair))
    return table
