"""Are our rows of protocol=published what the authors' notebooks saved? One verdict per dataset, ablation and metric.

Splits are the same, so the comparison is paired: ours minus the notebook's value of the same split. The mean difference
must be within a number of published standard errors; datasets that come out split by split have a sharper rule on top.
Tolerances and named exceptions are data: `benchmarks/tolerances.json` and `benchmarks/exceptions.json`.
"""

from __future__ import annotations

import functools
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from rich import box
from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from anchormoe.paths import shipped
from anchormoe.report import cells, published
from anchormoe.report.grid import NOT_AVAILABLE
from anchormoe.report.published import ABLATIONS, DATASETS, METRICS, NUM_SPLITS, PublishedRun

PASS, OFF, MISSING, EXCEPTION = "pass", "off", "missing", "exception"
VERDICTS = (PASS, OFF, MISSING, EXCEPTION)
_ROW_COLUMN = {"rmse": "rmse_y", "nll_z": "nll_z"}
_STYLES = {PASS: "green", OFF: "bold red", MISSING: "yellow", EXCEPTION: "cyan"}


@dataclass(frozen=True)
class PerSplit:
    """At least so many of 20 splits within a distance; optionally with the selected stages and epochs equal."""

    anchor: str  # the rule holds for rows of this anchor only
    within: float
    at_least: int
    stages_at_least: int | None = None
    epochs_at_least: int | None = None


@dataclass(frozen=True)
class Tolerance:
    standard_errors: float
    rounding_of_mean: float
    rounding_of_split: float
    reason: str
    per_split: PerSplit | None = None


@dataclass(frozen=True)
class CellResult:
    """Differences are ours minus the notebook's, in the metric's unit; None where nothing could be compared."""

    dataset: str
    ablation: str
    metric: str
    num_splits: int
    difference: float | None
    published_se: float  # over the notebook's 20 splits
    tolerance: float
    verdict: str
    note: str
    same_stage: int | None = None  # on how many splits ours is the notebook's; None where it printed none
    same_epoch: int | None = None
    unneeded_exception: bool = False

    @property
    def difference_in_ses(self) -> float | None:
        return None if self.difference is None else self.difference / self.published_se


@dataclass(frozen=True)
class CheckReport:
    cells: tuple[CellResult, ...]

    def count(self, verdict: str) -> int:
        return Counter(cell.verdict for cell in self.cells)[verdict]

    @property
    def problems(self) -> tuple[CellResult, ...]:
        return tuple(cell for cell in self.cells if cell.verdict in (OFF, MISSING))

    @property
    def exit_code(self) -> int:
        """0 if something was compared and nothing is off or missing."""
        return 1 if self.problems or not self.cells else 0

    @property
    def summary(self) -> str:
        if not self.cells:
            return "check: no row of protocol=published to compare"
        counts = ", ".join(f"{self.count(verdict)} {verdict}" for verdict in VERDICTS)
        unneeded = sum(cell.unneeded_exception for cell in self.cells)
        hint = f"; {unneeded} unneeded in benchmarks/exceptions.json" if unneeded else ""
        return f"check: {len(self.cells)} cells: {counts}{hint}"


def check(rows: pd.DataFrame, *, require_all: bool = True, seed: int = 1) -> CheckReport:
    """Compare with the notebooks: all 72 cells with all 20 splits, or (require_all=False) whatever splits are there."""
    results: list[CellResult] = []
    for dataset in DATASETS:
        for ablation in ABLATIONS:
            run = cells.choose(rows, dataset=dataset, ablation=ablation, protocol="published", seed=seed)
            if run is not None or require_all:
                results += [_judge(run, dataset, ablation, metric, require_all) for metric in METRICS]
    return CheckReport(tuple(results))


def to_rich(report: CheckReport, *, problems_only: bool = False) -> Group:
    """All cells, or those that need a look: off, missing, excepted or with an exception that is not needed."""
    shown = [cell for cell in report.cells if not problems_only or cell.verdict != PASS or cell.unneeded_exception]
    notes = list(dict.fromkeys(cell.note for cell in shown if cell.note))
    grid = RichTable(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for title in ("dataset", "ablation", "metric"):
        grid.add_column(title)
    for title in ("splits", "stage", "epoch", "ours - published", "in SEs", "allowed"):
        grid.add_column(title, justify="right")
    for title in ("verdict", "note"):
        grid.add_column(title)
    for cell in shown:
        in_ses = cell.difference_in_ses
        grid.add_row(
            cell.dataset,
            cell.ablation,
            cell.metric,
            f"{cell.num_splits}/{NUM_SPLITS}",
            NOT_AVAILABLE if cell.same_stage is None else str(cell.same_stage),
            NOT_AVAILABLE if cell.same_epoch is None else str(cell.same_epoch),
            NOT_AVAILABLE if cell.difference is None else f"{cell.difference:+.5f}",
            NOT_AVAILABLE if in_ses is None else f"{in_ses:+.2f}",
            f"{cell.tolerance:.5f}",
            Text(cell.verdict, style=_STYLES[cell.verdict]),
            Text(f"[{notes.index(cell.note) + 1}]" if cell.note else ""),
        )
    legend = "stage, epoch: on how many splits the selected number is the notebook's"
    parts: list[RichTable | Text] = [grid, Text(""), Text(legend, style="dim")] if shown else []
    parts += [Text(f"[{number}] {note}", style="dim") for number, note in enumerate(notes, start=1)]
    parts.append(Text(report.summary, style="bold red" if report.exit_code else "bold green"))
    return Group(*parts)


def _judge(run: cells.Run | None, dataset: str, ablation: str, metric: str, require_all: bool) -> CellResult:
    notebook = published.notebook(ablation, dataset)
    rule = tolerances()[dataset]
    notes = _provenance_notes(run, dataset, ablation, metric)
    differences = pd.Series(dtype=float) if run is None else _differences(run, notebook, metric)
    num_splits = len(differences)
    # A mean over fewer splits scatters more: SD / sqrt(n). With all 20 splits this is the published SE.
    widening = math.sqrt(NUM_SPLITS / max(num_splits, 1))
    allowed = rule.standard_errors * notebook.se(metric) * widening + rule.rounding_of_mean
    difference = float(differences.mean()) if num_splits else None
    problems = _problems(run, notebook, rule, differences, allowed)
    evidence = exceptions().get((dataset, ablation, metric))
    unneeded = False
    if num_splits < NUM_SPLITS and require_all:
        verdict = MISSING
        absent = [split for split in range(1, NUM_SPLITS + 1) if split not in differences.index]
        notes.insert(0, f"no finished row for split {_ranges(absent)}")
    elif problems and evidence:
        verdict = EXCEPTION
        notes.insert(0, f"{'; '.join(problems)}; excepted: {evidence}")
    elif problems:
        verdict = OFF
        notes[:0] = problems
    else:
        verdict = PASS
        unneeded = evidence is not None
        if unneeded:
            notes.insert(0, "unneeded exception: the cell passes, remove it from benchmarks/exceptions.json")
    return CellResult(
        dataset=dataset,
        ablation=ablation,
        metric=metric,
        num_splits=num_splits,
        difference=difference,
        published_se=notebook.se(metric),
        tolerance=allowed,
        verdict=verdict,
        note="; ".join(notes),
        same_stage=_same(run, "anchor_stage", notebook.stages),
        same_epoch=_same(run, "epoch", notebook.epochs),
        unneeded_exception=unneeded,
    )


def _differences(run: cells.Run, notebook: PublishedRun, metric: str) -> pd.Series:
    theirs = pd.Series(notebook.values(metric), index=range(1, NUM_SPLITS + 1))
    return run.rows[_ROW_COLUMN[metric]].astype(float) - theirs[run.rows.index]


def _problems(
    run: cells.Run | None, notebook: PublishedRun, rule: Tolerance, differences: pd.Series, allowed: float
) -> list[str]:
    if run is None:
        return []
    problems = []
    mean = float(differences.mean())
    if not abs(mean) <= allowed:  # written so that NaN is a problem
        # Where training amplifies float32 rounding, a second run on another machine moves by about this much.
        scatter = float(differences.std() / math.sqrt(len(differences)))
        problems.append(f"mean difference {mean:+.5f} (± {scatter:.5f} over the splits) must be within {allowed:.5f}")
    sharper = rule.per_split
    if sharper is None or run.anchor != sharper.anchor:
        return problems
    close = int((differences.abs() <= sharper.within + rule.rounding_of_split).sum())
    wanted: list[tuple[str, int, int | None]] = [(f"within {sharper.within} of the notebook", close, sharper.at_least)]
    for name, equal, at_least in (
        ("with the notebook's stages", _same(run, "anchor_stage", notebook.stages), sharper.stages_at_least),
        ("with the notebook's epoch", _same(run, "epoch", notebook.epochs), sharper.epochs_at_least),
    ):
        if equal is not None:
            wanted.append((name, equal, at_least))
    for name, found, at_least in wanted:
        if at_least is not None and found < _scaled(at_least, len(differences)):
            needed = _scaled(at_least, len(differences))
            problems.append(f"{found} of {len(differences)} splits {name}, {needed} required")
    return problems


def _same(run: cells.Run | None, column: str, theirs: Sequence[int] | None) -> int | None:
    """On how many splits a selected number equals the notebook's."""
    if run is None or theirs is None:
        return None
    ours = zip(run.rows.index.tolist(), run.rows[column].tolist(), strict=True)
    return sum(value == theirs[split - 1] for split, value in ours)


def _scaled(at_least: int, num_splits: int) -> int:
    """Of a part of the splits, the same share may fail, rounded in favour of the stricter reading."""
    return num_splits - (NUM_SPLITS - at_least) * num_splits // NUM_SPLITS


def _provenance_notes(run: cells.Run | None, dataset: str, ablation: str, metric: str) -> list[str]:
    """Which rows, and against what."""
    notes = []
    if run is not None and run.anchor not in ("gbdt", "none"):
        notes.append(f"anchor={run.anchor}")
    if run is not None and run.num_candidates > 1:
        notes.append(f"{run.num_candidates} configurations stored, used {run.config_hash}")
    for entry in published.discrepancies():
        same_metric = any(table.endswith("rmse") == (metric == "rmse") for table in entry.tables)
        if entry.dataset == dataset and ablation in entry.columns and same_metric and entry.paper_contradicts_notebook:
            notes.append(f"the paper differs from the notebook, which is what counts here: {entry.text}")
    return notes


def _ranges(splits: Sequence[int]) -> str:
    """[1, 2, 3, 7] as "1-3, 7"."""
    parts: list[list[int]] = []
    for split in splits:
        if parts and split == parts[-1][-1] + 1:
            parts[-1].append(split)
        else:
            parts.append([split])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


@functools.cache
def tolerances() -> dict[str, Tolerance]:
    """What is allowed, per dataset."""
    facts = _load("tolerances.json")
    result = {}
    for dataset, entry in facts["datasets"].items():
        sharper = entry.pop("per_split", None)
        per_split = None if sharper is None else PerSplit(**sharper)
        rounding = facts["rounding"]
        result[dataset] = Tolerance(
            rounding_of_mean=rounding["mean"], rounding_of_split=rounding["split"], per_split=per_split, **entry
        )
    return result


@functools.cache
def exceptions() -> dict[tuple[str, str, str], str]:
    """(dataset, ablation, metric) -> evidence why the cell cannot be reproduced."""
    result = {}
    for entry in _load("exceptions.json"):
        cell = (entry["dataset"], entry["ablation"], entry["metric"])
        if cell[0] not in DATASETS or cell[1] not in ABLATIONS or cell[2] not in METRICS or not entry["evidence"]:
            raise ValueError(f"benchmarks/exceptions.json must name a dataset, ablation, metric and evidence: {entry}")
        result[cell] = entry["evidence"]
    return result


def _load(name: str) -> Any:
    return json.loads(shipped(f"benchmarks/{name}").read_text(encoding="utf-8"))
