"""The paper's five tables from stored rows, in two forms; each dataset has a row of published and one of our values.

published  units and quirks as printed, beside our rows of protocol=published
corrected  one unit per column (original units), beside our rows of protocol=clean
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from anchormoe.report import cells, published
from anchormoe.report.grid import AS_PRINTED, MISSING, NOT_AVAILABLE, SD, SE, Cell, Column, Row, Table
from anchormoe.report.published import ABLATIONS, NUM_SPLITS

FORMS = ("published", "corrected")

_TITLES = {
    "nll": "Table 1. Test NLL",
    "rmse": "Table 2. Test RMSE",
    "ablation_nll": "Table 3. Test NLL without one component",
    "ablation_rmse": "Table 4. Test RMSE without one component",
    "appendix_nll": "Table 5 (appendix). Test NLL, other methods",
}
_FORM_TITLES = {"published": "as published", "corrected": "corrected"}
_COLUMN_TITLES = {
    "full": "Anchor-MoE",
    "no_anchor": "No anchor",
    "no_router": "No router",
    "no_cal": "No calibration",
    "ngboost": "NGBoost (quoted)",
    "ngboost_own": "NGBoost (authors' run)",
    "mc_dropout": "MC dropout (quoted)",
    "deep_ensembles": "Deep ensembles (quoted)",
    "concrete_dropout": "Concrete dropout (quoted)",
    "gaussian_process": "Gaussian process (quoted)",
    "gamlss": "GAMLSS (quoted)",
    "distforest": "DistForest (quoted)",
}
_PRINTED_ABLATION_TITLES = {"no_anchor": "Anchor", "no_router": "Router", "no_cal": "Calibration"}
_NGBOOST_RUN_BY_AUTHORS = ("protein", "wine")


def build(rows: pd.DataFrame, form: str, *, seed: int = 1) -> list[Table]:
    """The five tables of a form ("published" or "corrected"), in the paper's order. Rows may be incomplete."""
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}; received {form!r}")
    return [_table(rows, key, form, seed) for key in published.TABLES]


class _Footnotes:
    """Numbers each text once, in order of appearance."""

    def __init__(self, key: str, form: str) -> None:
        self.key, self.form = key, form
        self.texts: list[str] = []

    def mark(self, text: str) -> int:
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text) + 1

    def entries(self, dataset: str | None, column: str | None) -> list[published.Discrepancy]:
        return [
            entry
            for entry in published.discrepancies()
            if self.key in entry.tables
            and self.form in entry.forms
            and entry.dataset == dataset
            and (column in entry.columns if column else not entry.columns)
        ]

    def marks(self, dataset: str | None, column: str) -> tuple[int, ...]:
        return tuple(self.mark(entry.text) for entry in self.entries(dataset, column))


def _table(rows: pd.DataFrame, key: str, form: str, seed: int) -> Table:
    footnotes = _Footnotes(key, form)
    names = published.columns(key)
    if form == "corrected" and "ngboost" in names:
        names = (*names, "ngboost_own")
    columns = tuple(_column(name, key, form, footnotes) for name in names)
    body: list[Row] = []
    for dataset in published.datasets(key):
        theirs = [_published_cell(name, key, form, dataset, footnotes) for name in names]
        ours = [
            _our_cell(rows, name, key, form, dataset, seed, footnotes) if name in ABLATIONS else replace(cell, marks=())
            for name, cell in zip(names, theirs, strict=True)
        ]
        n = published.paper_n(key, dataset)
        body.append(Row(dataset, n, "published", with_best_bold(theirs)))
        body.append(Row(dataset, n, "reproduced" if form == "published" else "clean", with_best_bold(ours)))
    title = f"{_TITLES[key]}, {_FORM_TITLES[form]}"
    notes = (*_notes(key, form), _legend(body), *(entry.text for entry in footnotes.entries(None, None)))
    return Table(key, form, title, notes, columns, tuple(body), tuple(footnotes.texts))


def _metric(key: str, form: str) -> str:
    """What our own columns of a table are measured in."""
    if key.endswith("rmse"):
        return "rmse_y"
    return "nll_z" if form == "published" else "nll_y"


def _column(name: str, key: str, form: str, footnotes: _Footnotes) -> Column:
    title = _COLUMN_TITLES[name]
    if form == "published":
        title = _PRINTED_ABLATION_TITLES.get(name, title)
    marks = footnotes.marks(None, name)
    if name in ABLATIONS or name == "ngboost_own":
        return Column(title, (_metric(key, form),), SE, marks=marks)
    if name == "ngboost" and form == "published":
        metrics = ("nll_y", "nll_z") if key == "nll" else ("rmse_y",)
        return Column(title, metrics, AS_PRINTED, as_printed=True, marks=marks)
    return Column(title, (_metric(key, "corrected"),), SD if name == "ngboost" else AS_PRINTED, marks=marks)


def _published_cell(name: str, key: str, form: str, dataset: str, footnotes: _Footnotes) -> Cell:
    """What was published, as printed or (corrected) what the notebooks give in original units."""
    entries = footnotes.entries(dataset, name)
    metric, spread = _metric(key, form), SE
    decimals, known_decimals = 2, 2
    value = published.paper_cell(key, dataset, name)
    if name not in ABLATIONS and name != "ngboost_own":
        own_run = name == "ngboost" and dataset in _NGBOOST_RUN_BY_AUTHORS
        if form == "corrected" and (own_run or any(entry.wrong_quantity for entry in entries)):
            value = None
        metric = _metric(key, "published" if own_run and form == "published" else "corrected")
        spread = SD if name == "ngboost" and form == "corrected" else AS_PRINTED
    elif form == "corrected":
        run = published.ngboost_notebook(dataset) if name == "ngboost_own" else published.notebook(name, dataset)
        value = None if run is None else _in_original_units(run, metric, dataset)
        decimals = 3 if value is None else decimals_for(value[1], least=3)
        known_decimals = decimals
    # A footnote about the number goes where the number is.
    moved = name == "ngboost" and form == "corrected" and dataset in _NGBOOST_RUN_BY_AUTHORS
    marks = () if moved else tuple(footnotes.mark(entry.text) for entry in entries)
    if value is None:
        return Cell(absent=NOT_AVAILABLE, marks=marks)
    comparable = form == "published" or all(entry.comparable for entry in entries)
    return Cell(
        metric, spread, *value, decimals=decimals, known_decimals=known_decimals, ranked=comparable, marks=marks
    )


def _in_original_units(run: published.PublishedRun, metric: str, dataset: str) -> published.Value | None:
    if metric == "rmse_y":
        return run.mean("rmse"), run.se("rmse")
    return published.nll_in_original_units(run.run_name, dataset)


def _our_cell(
    rows: pd.DataFrame, ablation: str, key: str, form: str, dataset: str, seed: int, footnotes: _Footnotes
) -> Cell:
    protocol = "published" if form == "published" else "clean"
    run = cells.choose(rows, dataset=dataset, ablation=ablation, protocol=protocol, seed=seed)
    if run is None:
        return Cell(absent=MISSING)
    metric = _metric(key, form)
    summary = cells.summarise(run.rows[metric])
    marks: tuple[int, ...] = ()
    if run.anchor != "gbdt" and ablation != "no_anchor" and run.rows["method"].iloc[0] == "anchormoe":
        marks = (footnotes.mark(f"Our value is with anchor={run.anchor}; the published runs used gbdt."),)
    return Cell(
        metric,
        SE,
        summary.mean,
        summary.se,
        decimals=decimals_for(summary.se, least=2 if form == "published" else 3),
        num_splits=summary.num_splits,
        ranked=summary.num_splits == NUM_SPLITS,
        marks=marks,
    )


def decimals_for(deviation: float | None, least: int) -> int:
    """As many as show the first digit of ±, within reason."""
    if not deviation or not math.isfinite(deviation):
        return max(least, 3)
    return min(max(least, -math.floor(math.log10(deviation))), 6)


def with_best_bold(row: Sequence[Cell]) -> tuple[Cell, ...]:
    """The lowest in bold, ties included; nothing where all are equal or only one is there to compare."""
    contenders = [(index, cell, cell.mean) for index, cell in enumerate(row) if cell.mean is not None and cell.ranked]
    # Beside a number known to two decimals, a third one decides nothing.
    known = [cell.known_decimals for _, cell, _ in contenders if cell.known_decimals is not None]
    means = {index: round(mean, min(known)) if known else mean for index, _, mean in contenders}
    if len(set(means.values())) < 2:
        return tuple(row)
    best = min(means.values())
    return tuple(replace(cell, bold=means.get(index) == best) for index, cell in enumerate(row))


def _notes(key: str, form: str) -> list[str]:
    """Units first, then how to read the table."""
    ablation, rmse = key.startswith("ablation"), key.endswith("rmse")
    if rmse:
        units = "RMSE in the target's original units (rmse_y)."
    elif form == "corrected":
        units = "NLL in the target's original units (nll_y = nll_z + log of the scale that z-scored the target)."
    elif ablation:
        units = "NLL of the z-scored target (nll_z), as printed."
    else:
        units = (
            "Units as printed: Anchor-MoE is NLL of the z-scored target (nll_z), the other columns are NLL in original "
            "units (nll_y) unless a footnote says otherwise. Bold compares the printed numbers across these units, as "
            "the paper does; it is no ranking of the methods."
        )
    if form == "published":
        rows = (
            "published: as the paper prints it; reproduced: our rows of protocol=published, mean ± SE over 20 splits."
        )
        if ablation:
            rows += " Anchor, Router and Calibration name the component that was removed."
    else:
        values = "the authors' 20 notebook values" + ("" if rmse else ", converted split by split")
        rows = f"published: {values}, mean ± SE; clean: our rows of protocol=clean, mean ± SE over 20 splits."
        rows += " Published values that measure something else than the rest of their row are not ranked."
    if not ablation:
        rows += " Quoted columns repeat the paper's numbers in both rows."
    return [units, rows]


def _legend(body: Sequence[Row]) -> str:
    """Explains only what the table shows."""
    found = [cell for row in body for cell in row.cells]
    quoted = any(cell.spread in (SD, AS_PRINTED) for cell in found)
    legend = [
        "Bold: lowest of its row, at the precision of the quoted numbers." if quoted else "Bold: lowest of its row."
    ]
    if any(cell.mean is not None and cell.num_splits < NUM_SPLITS for cell in found):
        legend.append(f"(7/{NUM_SPLITS}): from 7 of {NUM_SPLITS} splits, not ranked.")
    if any(cell.mean is None and cell.absent == MISSING for cell in found):
        legend.append(f"{MISSING}: no finished split is stored.")
    if any(cell.mean is None and cell.absent == NOT_AVAILABLE for cell in found):
        legend.append(f"{NOT_AVAILABLE}: not published in this unit.")
    return " ".join(legend)
