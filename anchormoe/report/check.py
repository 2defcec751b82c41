"""The check: do our rows of protocol=published agree with what the authors' notebooks saved?

There is one verdict per dataset, ablation and metric. `anchormoe.report.check_rule` states the rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from rich import box
from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from anchormoe.config.schema import ABLATIONS, NUM_SPLITS, write_splits
from anchormoe.distributions.scores import METRICS, Metric
from anchormoe.report import check_rule, published
from anchormoe.report.cells import Run, StoredRuns
from anchormoe.report.grid import NOT_AVAILABLE
from anchormoe.report.published import DATASETS, PublishedRun

PASS, OFF, MISSING, EXCEPTION = "pass", "off", "missing", "exception"
VERDICTS = (PASS, OFF, MISSING, EXCEPTION)
_STYLES = {PASS: "green", OFF: "bold red", MISSING: "yellow", EXCEPTION: "cyan"}


@dataclass(frozen=True)
class CellResult:
    """One cell's verdict. Differences are ours minus the notebook's, in the metric's unit."""

    dataset: str
    ablation: str
    metric: str
    num_splits: int
    judgement: check_rule.Judgement | None  # None where nothing could be compared
    verdict: str
    note: str
    same_stage: int | None = None  # on how many splits ours is the notebook's; None where it printed none
    same_epoch: int | None = None

    @property
    def needs_a_look(self) -> bool:
        """Say whether the cell is anything but close to the published one."""
        return self.verdict != PASS or (self.judgement is not None and self.judgement.within_scatter)


@dataclass(frozen=True)
class CheckReport:
    """All cells that were compared."""

    cells: tuple[CellResult, ...]

    def count(self, verdict: str) -> int:
        """Return the number of cells with a verdict."""
        return Counter(cell.verdict for cell in self.cells)[verdict]

    @property
    def problems(self) -> tuple[CellResult, ...]:
        """Return the cells that are off or missing."""
        return tuple(cell for cell in self.cells if cell.verdict in (OFF, MISSING))

    @property
    def nothing_stored(self) -> bool:
        """Say whether there is no row at all to compare."""
        return not any(cell.num_splits for cell in self.cells)

    @property
    def exit_code(self) -> int:
        """Return 0 if something was compared and nothing is off or missing."""
        return 1 if self.problems or self.nothing_stored else 0

    @property
    def summary(self) -> str:
        """Return the result in one line."""
        if self.nothing_stored:
            return "check: no finished row of protocol=published is stored, so there is nothing to compare"
        counts = ", ".join(f"{self.count(verdict)} {verdict}" for verdict in VERDICTS)
        return f"check: {len(self.cells)} cells: {counts}"


def check(rows: pd.DataFrame, *, require_all: bool = True, seed: int = 1) -> CheckReport:
    """Compare with the notebooks: all 72 cells with all 20 splits, or (require_all=False) whatever splits are there."""
    runs = StoredRuns(rows)
    metrics = [metric for metric in METRICS.values() if metric.published_name]
    results: list[CellResult] = []
    for dataset in DATASETS:
        for ablation in ABLATIONS:
            run = runs.choose(dataset=dataset, ablation=ablation, protocol="published", seed=seed)
            if run is not None or require_all:
                results += [_judge(run, dataset, ablation, metric, require_all) for metric in metrics]
    return CheckReport(tuple(results))


def to_rich(report: CheckReport, *, problems_only: bool = False) -> Group:
    """Show all cells, or those that deserve a look: off, missing, excepted, or large but within their own scatter."""
    shown = [cell for cell in report.cells if cell.needs_a_look or not problems_only]
    if report.nothing_stored:
        shown = []
    notes = list(dict.fromkeys(cell.note for cell in shown if cell.note))
    grid = RichTable(box=box.SIMPLE_HEAD, show_edge=False, padding=0)
    for title in ("dataset", "ablation", "metric"):
        grid.add_column(title)
    for title in ("splits", "stage", "epoch", "in SEs", "p"):
        grid.add_column(title, justify="right")
    for title in ("verdict", "note"):
        grid.add_column(title)
    for cell in shown:
        grid.add_row(
            *(cell.dataset, cell.ablation, cell.metric, f"{cell.num_splits}/{NUM_SPLITS}"),
            *(NOT_AVAILABLE if count is None else str(count) for count in (cell.same_stage, cell.same_epoch)),
            *judgement_texts(cell.judgement),
            Text(cell.verdict, style=_STYLES[cell.verdict]),
            Text(f"[{notes.index(cell.note) + 1}]" if cell.note else ""),
        )
    legend = (
        "stage, epoch: on how many splits the selected number is the notebook's; in SEs: ours minus the notebook's, "
        "mean over the splits ± the standard error of that mean, in published standard errors; p: paired t-test"
    )
    parts: list[RichTable | Text] = [grid, Text(""), Text(legend, style="dim")] if shown else []
    parts += [Text(f"[{number}] {note}", style="dim") for number, note in enumerate(notes, start=1)]
    parts.append(Text(report.summary, style="bold red" if report.exit_code else "bold green"))
    return Group(*parts)


def judgement_texts(judgement: check_rule.Judgement | None) -> tuple[str, str]:
    """Return the mean difference ± its scatter, in published standard errors, and the p-value."""
    if judgement is None:
        return NOT_AVAILABLE, NOT_AVAILABLE
    return _in_ses(judgement), NOT_AVAILABLE if judgement.p_value is None else f"{judgement.p_value:.3f}"


def _in_ses(judgement: check_rule.Judgement) -> str:
    text = f"{judgement.in_ses:+.2f}"
    return text if judgement.scatter is None else f"{text} ± {judgement.scatter / judgement.published_se:.2f}"


def _judge(run: Run | None, dataset: str, ablation: str, metric: Metric, require_all: bool) -> CellResult:
    assert metric.published_name is not None
    notebook = published.notebook(ablation, dataset)
    notes = _provenance_notes(run, dataset, ablation, metric.published_name)
    judgement, num_splits, problems = None, 0, []
    if run is not None and metric.name in run:
        ours = run.values(metric.name)
        differences = ours - np.array(notebook.values(metric.published_name))[np.array(run.splits) - 1]
        num_splits = len(differences)
        judgement = check_rule.judge(differences, notebook.se(metric.published_name))
        problems = [*_bias(judgement), *_too_few_splits_agree(run, notebook, dataset, differences)]
        if judgement.within_scatter:
            notes.insert(0, _within_scatter(judgement, run, differences))
    evidence = check_rule.exceptions().get((dataset, ablation))
    if num_splits < NUM_SPLITS and (require_all or not num_splits):
        verdict = MISSING
        present = run.splits if run is not None and num_splits else ()
        absent = [split for split in range(1, NUM_SPLITS + 1) if split not in present]
        notes.insert(0, f"no finished row for split {write_splits(absent).replace(',', ', ')}")
    elif evidence:
        verdict = EXCEPTION
        notes = [f"not judged: {evidence}"]
    else:
        verdict = OFF if problems else PASS
        notes[:0] = problems
    return CellResult(
        dataset=dataset,
        ablation=ablation,
        metric=metric.published_name,
        num_splits=num_splits,
        judgement=judgement,
        verdict=verdict,
        note="; ".join(notes),
        same_stage=_same(run, "anchor_stage", notebook.stages),
        same_epoch=_same(run, "epoch", notebook.epochs),
    )


def _bias(judgement: check_rule.Judgement) -> list[str]:
    limit = judgement.exceeded
    if limit is None:
        return []
    shown = f" with p = {judgement.p_value:.2g}" if judgement.p_value is not None else ""
    allowed = f"more than {limit.standard_errors:g}" + (f" with p <= {limit.p_value:g}" if limit.p_value < 1 else "")
    return [f"the mean difference is {_in_ses(judgement)} published standard errors{shown}; {allowed} is off"]


def _within_scatter(judgement: check_rule.Judgement, run: Run, differences: np.ndarray) -> str:
    """Say why a large difference passes, and which splits it comes from."""
    furthest = sorted(zip(run.splits, differences, strict=True), key=lambda item: -abs(item[1]))[:2]
    splits = " and ".join(f"{value:+.2g} on split {split}" for split, value in furthest)
    return (
        f"the mean difference of {_in_ses(judgement)} published standard errors is not told from chance; "
        f"the furthest splits: {splits}"
    )


def _too_few_splits_agree(run: Run, notebook: PublishedRun, dataset: str, differences: np.ndarray) -> list[str]:
    """Apply the sharper rule of datasets whose splits come out one by one."""
    sharper = check_rule.per_split_rules().get(dataset)
    if sharper is None or run.anchor != sharper.anchor:
        return []
    close = int((np.abs(differences) <= sharper.within).sum())
    wanted: list[tuple[str, int | None, int | None]] = [
        (f"within {sharper.within:g} of the notebook", close, sharper.at_least),
        ("with the notebook's stages", _same(run, "anchor_stage", notebook.stages), sharper.stages_at_least),
        ("with the notebook's epoch", _same(run, "epoch", notebook.epochs), sharper.epochs_at_least),
    ]
    problems = []
    for name, found, at_least in wanted:
        if found is not None and at_least is not None and found < _scaled(at_least, len(differences)):
            needed = _scaled(at_least, len(differences))
            problems.append(f"{found} of {len(differences)} splits {name}, {needed} required")
    return problems


def _same(run: Run | None, column: str, theirs: Sequence[int] | None) -> int | None:
    """Count the splits on which a selected number equals the notebook's."""
    if run is None or theirs is None:
        return None
    return sum(value == theirs[split - 1] for split, value in zip(run.splits, run.column(column), strict=True))


def _scaled(at_least: int, num_splits: int) -> int:
    """Scale a number of 20 splits to fewer: the same share may fail, rounded in favour of the stricter reading."""
    return num_splits - (NUM_SPLITS - at_least) * num_splits // NUM_SPLITS


def _provenance_notes(run: Run | None, dataset: str, ablation: str, metric: str) -> list[str]:
    """Say which rows were compared, and where the paper prints something else than the notebook."""
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
