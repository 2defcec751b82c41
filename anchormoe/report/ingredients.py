"""Tables of what each step from the published recipe to the cross-fitted one gains, all on the same splits."""

from __future__ import annotations

import pandas as pd

from anchormoe.distributions.scores import Metric, ranked
from anchormoe.report import cells, published
from anchormoe.report.cells import SPLITS
from anchormoe.report.grid import MISSING, SE, Cell, Column, Row, Table, with_best_bold

# heading -> experiment and, where an experiment has several, the model preset. Each step adds to the one before.
STEPS: dict[str, tuple[str, str | None]] = {
    "published recipe": ("corrected", None),
    "+ out of fold, a network per fold": ("ingredients", "out_of_fold"),
    "+ small networks, dropout, mini-batches": ("ingredients", "crossfit_trees"),
    "+ deeper trees and products in the anchor": ("ingredients", "crossfit_libraries"),
    "+ a kernel machine in the anchor, weighted calibration": ("ingredients", "crossfit_without_network"),
    "+ a network in the anchor": ("crossfit", None),
}

Values = dict[int, dict[str, float]]  # split number -> metric -> value


def build(rows: pd.DataFrame, *, seed: int = 1) -> list[Table]:
    """Make a table per metric from rows of the experiments that STEPS names; none if no row has it."""
    metrics = [metric for metric in ranked() if metric.name in rows and rows[metric.name].notna().any()]
    runs = _runs(rows, [metric.name for metric in metrics], seed)
    return [_table(metric, runs, seed) for metric in metrics]


def _runs(rows: pd.DataFrame, metrics: list[str], seed: int) -> dict[tuple[str, str], Values]:
    """Return the values of every step on every dataset."""
    good = cells.finished(rows)
    good = good[(good["ablation"] == "full") & (good["protocol"] == "clean") & (good["seed"] == seed)]
    step_of = {place: step for step, place in STEPS.items()}
    variant_of = {dataset: cells.measured(dataset, "full", "clean")[1] for dataset in published.DATASETS}
    runs: dict[tuple[str, str], Values] = {(step, dataset): {} for step in STEPS for dataset in published.DATASETS}
    columns = (good[name].tolist() for name in ("experiment", "model", "dataset", "variant", "split", *metrics))
    for experiment, model, dataset, variant, split, *scores in zip(*columns, strict=True):
        step = step_of.get((experiment, model), step_of.get((experiment, None)))
        if step is not None and split in SPLITS and dataset in variant_of and variant == variant_of[dataset]:
            runs[step, dataset].setdefault(split, dict(zip(metrics, scores, strict=True)))
    return runs


def _table(metric: Metric, runs: dict[tuple[str, str], Values], seed: int) -> Table:
    common = {dataset: _common_splits([runs[step, dataset] for step in STEPS]) for dataset in published.DATASETS}
    most = max(map(len, common.values()))
    body = []
    for dataset, splits in common.items():
        row = []
        for step in STEPS:
            values = runs[step, dataset]
            summary = cells.summarise(values[split][metric.name] for split in splits if values)
            row.append(_cell(metric, summary, most))
        body.append(Row(dataset, published.paper_n("nll", dataset), "live", with_best_bold(row)))
    columns = tuple(Column(step, (metric.name,), SE) for step in STEPS)
    notes = (
        f"protocol=clean, seed {seed}: mean ± SE over the {most} splits that all steps have.",
        "Each step adds to the one before.",
    )
    return Table(
        f"ingredients_{metric.name}", "ingredients", metric.title, notes, columns, tuple(body), (), lines_are="Step"
    )


def _common_splits(steps: list[Values]) -> list[int]:
    """Return the splits that all steps have which have any."""
    present = [set(values) for values in steps if values]
    return sorted(set.intersection(*present)) if present else []


def _cell(metric: Metric, summary: cells.Summary | None, planned_splits: int) -> Cell:
    if summary is None:
        return Cell(absent=MISSING)
    return Cell(
        metric.name,
        SE,
        summary.mean,
        summary.se,
        metric.decimals,
        num_splits=summary.num_splits,
        planned_splits=planned_splits,
    )
