"""The data of the report's page: stored rows column by column, the runs they form, and what stands beside them."""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from anchormoe.config.schema import ABLATIONS, NUM_SPLITS
from anchormoe.distributions.scores import METRICS
from anchormoe.report import cells, check, published
from anchormoe.report.comparison import heading
from anchormoe.report.selection import Selection
from anchormoe.rows import Row

RerunCommand = Callable[[Row, Sequence[int]], str | None]

_RUN = ("experiment", "dataset", "variant", "method", "ablation", "protocol", "anchor", "seed", "config_hash")
# Lists in every row, which no table of the page shows: they would make up half of its data.
_LEFT_OUT = ("intervals", "pit_counts", "pit_counts_once")


def build(selection: Selection, rerun: RerunCommand) -> dict[str, Any]:
    """Return everything the page's script needs; `rerun` finds the command of a run."""
    rows = selection.rows.reset_index(drop=True)
    runs = _runs(rows, rerun)
    return {
        "paper": selection.paper,
        "columns": {name: _column(rows[name]) for name in rows if name not in _LEFT_OUT},
        "runs": runs,
        "metrics": [
            {"name": metric.name, "title": metric.title, "label": metric.label, "unit": metric.unit}
            | {"lower": metric.lower_is_better, "decimals": metric.decimals}
            for metric in METRICS.values()
            if metric.name in rows
        ],
        "headings": {method: heading(method) for method in dict.fromkeys(rows["method"].astype(str))},
        "compared": _compared(selection, runs),
        "published": _published() if selection.paper else [],
        "check": _check(selection, runs) if selection.paper else [],
        "num_splits": NUM_SPLITS if selection.paper else selection.compared.num_splits,
    }


def packed(data: dict[str, Any]) -> str:
    """Write data as compressed text of letters and digits, which can stand in a page as it is."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def _column(values: pd.Series) -> dict[str, Any]:
    """Write a column: numbers as they are, whole tables and words by their place in a list of the different ones."""
    items = [None if _is_missing(value) else value for value in values.tolist()]
    if all(item is None or (isinstance(item, int | float) and not isinstance(item, bool)) for item in items):
        whole = all(item is None or float(item).is_integer() for item in items)
        return {"values": [None if item is None else int(item) if whole else item for item in items]}
    words = [None if item is None else item if isinstance(item, str) else json.dumps(item) for item in items]
    names = list(dict.fromkeys(words))
    place = {name: number for number, name in enumerate(names)}
    return {"names": names, "codes": [place[word] for word in words]}


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def _runs(rows: pd.DataFrame, rerun: RerunCommand) -> list[dict[str, Any]]:
    """Return the runs: labels, the places of their rows by split, and the command that computes them again."""
    labelled = rows.assign(**{name: None for name in _RUN if name not in rows})
    runs = []
    for labels, group in labelled.groupby(list(_RUN), sort=False, dropna=False):
        group = group.sort_values("split")
        named: dict[str, Any] = {
            name: None if _is_missing(value) else value for name, value in zip(_RUN, labels, strict=True)
        }
        named["seed"] = int(named["seed"])
        for name in ("model", "calibration"):  # older rows do not have them
            known = group[name].dropna().tolist() if name in group else []
            named[name] = known[0] if known else None
        splits = [int(split) for split in group["split"]]
        row = {**named, "split": splits[0]}
        runs.append({**named, "rows": group.index.tolist(), "splits": splits, "command": rerun(row, splits)})
    return runs


def _places(runs: list[dict[str, Any]]) -> dict[tuple[Any, ...], int]:
    """Return the number of the first run of every configuration."""
    place: dict[tuple[Any, ...], int] = {}
    for number, run in enumerate(runs):
        labels = (run[name] for name in ("dataset", "method", "ablation", "protocol", "seed", "config_hash"))
        place.setdefault(tuple(labels), number)
    return place


def _compared(selection: Selection, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the methods and datasets of the comparison and which run fills each of its cells."""
    compared, place = selection.compared, _places(runs)
    filled: dict[str, dict[str, int]] = {}
    for (method, dataset), run in compared.runs.items():
        key = (dataset, method, "full", selection.protocol, selection.seed, run.config_hash)
        filled.setdefault(method, {})[dataset] = place[key]
    return {"methods": compared.methods, "datasets": list(compared.datasets), "runs": filled}


def _published() -> list[dict[str, Any]]:
    """Return the notebooks' 20 values of every run, under the names of our metrics."""
    entries = []
    for dataset in published.DATASETS:
        found = {
            (cells.measured(dataset, name, "published")[0], name): published.notebook(name, dataset)
            for name in ABLATIONS
        }
        over_trained = published.ngboost_notebook(dataset)
        if over_trained is not None:
            found["ngboost_authors", "full"] = over_trained
        for (method, ablation), run in found.items():
            labels = {"dataset": dataset, "method": method, "ablation": ablation, "protocol": "published"}
            entries.append({**labels, "nll_z": run.nll_z, "rmse_y": run.rmse})
    return entries


def _check(selection: Selection, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the verdict about every published cell, and which run was compared with it."""
    names = {metric.published_name: metric.name for metric in METRICS.values() if metric.published_name}
    stored, place = cells.StoredRuns(selection.table_rows), _places(runs)
    found = []
    for cell in check.check(selection.table_rows).cells:
        run = stored.choose(dataset=cell.dataset, ablation=cell.ablation, protocol="published")
        judgement, number = cell.judgement, None
        if run is not None:
            number = place[cell.dataset, run.method, cell.ablation, "published", 1, run.config_hash]
        found.append(
            {
                "dataset": cell.dataset,
                "ablation": cell.ablation,
                "metric": names[cell.metric],
                "in_ses": None if judgement is None else judgement.in_ses,
                "verdict": cell.verdict,
                "note": cell.note if cell.needs_a_look else "",
                "run": number,
            }
        )
    return found
