"""The paper's five tables from stored rows, in two forms. Each dataset has a row of published and one of our values.

The form `published` keeps units and quirks as printed, beside our rows of protocol=published. The form `corrected` has
one unit per column, the target's original one, beside our rows of protocol=clean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from anchormoe.config.schema import ABLATIONS, NUM_SPLITS
from anchormoe.report import published
from anchormoe.report.cells import StoredRuns, summarise
from anchormoe.report.grid import (
    AS_PRINTED,
    MISSING,
    NOT_AVAILABLE,
    SD,
    SE,
    Cell,
    Column,
    Row,
    Table,
    with_best_bold,
)

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
    """Make the five tables of a form ("published" or "corrected") in the paper's order. Rows may be incomplete."""
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}; received {form!r}")
    runs = StoredRuns(rows)
    return [_table(runs, key, form, seed) for key in published.TABLES]


class _Footnotes:
    """The footnotes of one table: each text is numbered once, in order of appearance."""

    def __init__(self, key: str, form: str) -> None:
        self.key, self.form = key, form
        self.texts: list[str] = []

    def mark(self, text: str) -> int:
        """Return the number of a text, a new one if it has none yet."""
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text) + 1

    def entries(self, dataset: str | None, column: str | None) -> list[published.Discrepancy]:
        """Return the discrepancies about a cell, a whole column (no dataset) or the whole table (neither)."""
        return [
            entry
            for entry in published.discrepancies()
            if self.key in entry.tables
            and self.form in entry.forms
            and entry.dataset == dataset
            and (column in entry.columns if column else not entry.columns)
        ]

    def marks(self, dataset: str | None, column: str) -> tuple[int, ...]:
        """Return the numbers of the footnotes about a cell or a whole column."""
        return tuple(self.mark(entry.text) for entry in self.entries(dataset, column))


def _table(runs: StoredRuns, key: str, form: str, seed: int) -> Table:
    footnotes = _Footnotes(key, form)
    names = published.columns(key)
    if form == "corrected" and "ngboost" in names:
        names = (*names, "ngboost_own")
    columns = tuple(_column(name, key, form, footnotes) for name in names)
    body: list[Row] = []
    for dataset in published.datasets(key):
        theirs = [_published_cell(name, key, form, dataset, footnotes) for name in names]
        ours = [
            _our_cell(runs, name, key, form, dataset, seed, footnotes) if name in ABLATIONS else replace(cell, marks=())
            for name, cell in zip(names, theirs, strict=True)
        ]
        n = published.paper_n(key, dataset)
        body.append(Row(dataset, n, "published", with_best_bold(theirs)))
        body.append(Row(dataset, n, "reproduced" if form == "published" else "clean", with_best_bold(ours)))
    title = f"{_TITLES[key]}, {_FORM_TITLES[form]}"
    notes = (*_notes(key, form), _legend(body), *(entry.text for entry in footnotes.entries(None, None)))
    return Table(key, form, title, notes, columns, tuple(body), tuple(footnotes.texts))


def _metric(key: str, form: str) -> str:
    """Return the metric of our own columns of a table."""
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
    """Return what was published: as printed, or in the corrected form what the notebooks give in original units."""
    entries = footnotes.entries(dataset, name)
    metric, spread = _metric(key, form), SE
    decimals, fixed = 2, True
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
        decimals, fixed = 3, metric != "rmse_y"  # converted values are stored with three decimals
    # A footnote about the number goes where the number is.
    moved = name == "ngboost" and form == "corrected" and dataset in _NGBOOST_RUN_BY_AUTHORS
    marks = () if moved else tuple(footnotes.mark(entry.text) for entry in entries)
    if value is None:
        return Cell(absent=NOT_AVAILABLE, marks=marks)
    comparable = form == "published" or all(entry.comparable for entry in entries)
    return Cell(metric, spread, *value, decimals=decimals, fixed=fixed, ranked=comparable, marks=marks)


def _in_original_units(run: published.PublishedRun, metric: str, dataset: str) -> published.Value | None:
    if metric == "rmse_y":
        return run.mean("rmse"), run.se("rmse")
    return published.nll_in_original_units(run.run_name, dataset)


def _our_cell(
    runs: StoredRuns, ablation: str, key: str, form: str, dataset: str, seed: int, footnotes: _Footnotes
) -> Cell:
    protocol = "published" if form == "published" else "clean"
    run = runs.choose(dataset=dataset, ablation=ablation, protocol=protocol, seed=seed)
    metric = _metric(key, form)
    summary = None if run is None else summarise(run.values(metric))
    if run is None or summary is None:
        return Cell(absent=MISSING)
    marks: tuple[int, ...] = ()
    if run.anchor != "gbdt" and ablation != "no_anchor" and run.method == "anchormoe":
        marks = (footnotes.mark(f"Our value is with anchor={run.anchor}; the published runs used gbdt."),)
    return Cell(
        metric,
        SE,
        summary.mean,
        summary.se,
        decimals=2 if form == "published" else 3,
        num_splits=summary.num_splits,
        ranked=summary.num_splits == NUM_SPLITS,
        marks=marks,
    )


def _notes(key: str, form: str) -> list[str]:
    """Return the notes of a table: its units first, then how to read it."""
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
    """Explain the signs that occur in the table."""
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
