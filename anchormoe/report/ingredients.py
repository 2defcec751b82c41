"""What buys what: the steps from the published recipe to the cross-fitted one, each on the same splits."""

from __future__ import annotations

import pandas as pd

from anchormoe.report import cells, published
from anchormoe.report.comparison import METRICS, RANKED
from anchormoe.report.grid import MISSING, SE, Cell, Column, Row, Table
from anchormoe.report.tables import decimals_for, with_best_bold

# heading -> experiment and, where an experiment has several, the model preset; each step adds to the one before
STEPS: dict[str, tuple[str, str | None]] = {
    "published recipe": ("corrected", None),
    "+ out of fold, a network per fold": ("ingredients", "out_of_fold"),
    "+ small networks, dropout, mini-batches": ("ingredients", "crossfit_trees"),
    "+ deeper trees and products in the anchor": ("ingredients", "crossfit_libraries"),
    "+ a kernel machine in the anchor, weighted calibration": ("ingredients", "crossfit_without_network"),
    "+ a network in the anchor": ("crossfit", None),
}


def build(rows: pd.DataFrame, *, seed: int = 1) -> list[Table]:
    """A table per metric; `rows` of the experiments that STEPS names."""
    runs = {(step, dataset): _run(rows, step, dataset, seed) for step in STEPS for dataset in published.DATASETS}
    return [_table(metric, runs) for metric in RANKED]


def _run(rows: pd.DataFrame, step: str, dataset: str, seed: int) -> pd.DataFrame:
    experiment, model = STEPS[step]
    _, variant = cells.measured(dataset, "full", "clean")
    chosen = rows[
        (rows["experiment"] == experiment)
        & (rows["status"] == "ok")
        & (rows["dataset"] == dataset)
        & (rows["ablation"] == "full")
        & (rows["protocol"] == "clean")
        & (rows["seed"] == seed)
    ]
    if model is not None:
        chosen = chosen[chosen["model"] == model] if "model" in chosen else chosen.iloc[:0]
    if variant is not None:
        chosen = chosen[chosen["variant"] == variant]
    return chosen.drop_duplicates("split").set_index("split")


def _table(metric: str, runs: dict[tuple[str, str], pd.DataFrame]) -> Table:
    body = []
    for dataset in published.DATASETS:
        present = [runs[step, dataset].index for step in STEPS if len(runs[step, dataset])]
        common = set.intersection(*map(set, present)) if present else set()
        row = [_cell(metric, runs[step, dataset], sorted(common)) for step in STEPS]
        body.append(Row(dataset, published.paper_n("nll", dataset), "live", tuple(with_best_bold(row))))
    columns = tuple(Column(step, (metric,), SE) for step in STEPS)
    notes = (
        "protocol=clean, seed 1: mean ± SE over the splits that all steps have. Each step adds to the one before.",
    )
    return Table(
        f"ingredients_{metric}", "ingredients", METRICS[metric][0], notes, columns, tuple(body), (), lines_are="Step"
    )


def _cell(metric: str, run: pd.DataFrame, splits: list[int]) -> Cell:
    if not len(run) or not splits:
        return Cell(absent=MISSING)
    summary = cells.summarise(run.loc[splits, metric])
    decimals = decimals_for(summary.se, least=3)
    return Cell(metric, SE, summary.mean, summary.se, decimals, num_splits=summary.num_splits)
