"""The published numbers: what the paper's tables print and what the authors' notebooks saved, split by split.

The facts are read from `benchmarks/`. A run is named by its ablation. What a name really stands for (the Kin8nm value
of `full` is another model, for instance) is written in `benchmarks/discrepancies.json`.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from anchormoe.config.schema import ABLATIONS, NUM_SPLITS
from anchormoe.paths import shipped

DATASETS = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine", "yacht")
METRICS = ("rmse", "nll_z")
TABLES = ("nll", "rmse", "ablation_nll", "ablation_rmse", "appendix_nll")

Value = tuple[float, float]  # mean and the number printed after "±"


@dataclass(frozen=True)
class PublishedRun:
    """One notebook run: 20 values per metric at four decimals, split 1 first. RMSE in original units, NLL z-scored."""

    run_name: str
    rmse: tuple[float, ...]
    nll_z: tuple[float, ...]
    stages: tuple[int, ...] | None  # number of boosting stages the anchor selected; printed by the full runs only
    epochs: tuple[int, ...] | None
    r2: tuple[float, ...] | None  # printed by the runs without router and without calibration
    num_rows: int | None  # as printed

    def values(self, metric: str) -> tuple[float, ...]:
        """Return the 20 values of `rmse` or `nll_z`."""
        _require("metric", metric, METRICS)
        return self.rmse if metric == "rmse" else self.nll_z

    def mean(self, metric: str) -> float:
        """Return the mean over the splits."""
        return float(np.mean(self.values(metric)))

    def se(self, metric: str) -> float:
        """Return the standard error of the mean over the splits."""
        return float(np.std(self.values(metric), ddof=1) / np.sqrt(NUM_SPLITS))


@dataclass(frozen=True)
class Discrepancy:
    """A fact about published numbers that their table does not tell."""

    id: int
    tables: tuple[str, ...]
    dataset: str | None  # None means every dataset of the column
    columns: tuple[str, ...]  # empty, with no dataset, means the whole table
    text: str
    paper_contradicts_notebook: bool = False  # the printed cell is not the rounded notebook value
    comparable: bool = True  # False if it measures something else than the other cells of its row
    wrong_quantity: bool = False  # the printed number is of another metric altogether
    forms: tuple[str, ...] = ("published", "corrected")


def notebook(ablation: str, dataset: str) -> PublishedRun:
    """Return the notebook run behind the paper's value of this ablation and dataset."""
    _require("ablation", ablation, ABLATIONS)
    _require("dataset", dataset, DATASETS)
    runs = _load("published.json")["notebooks"]
    if (ablation, dataset) == ("full", "kin8nm"):
        return _run("kin8nm_rff_krr", runs["kin8nm_rff_krr"])
    return _run(ablation, runs[ablation][dataset])


def ngboost_notebook(dataset: str) -> PublishedRun | None:
    """Return the authors' own NGBoost run, which exists for protein and wine only."""
    _require("dataset", dataset, DATASETS)
    name = f"ngboost_{dataset}"
    runs = _load("published.json")["notebooks"]
    return _run(name, runs[name]) if name in runs else None


def datasets(table: str) -> tuple[str, ...]:
    """Return a table's datasets in the paper's order."""
    return tuple(_paper(table))


def columns(table: str) -> tuple[str, ...]:
    """Return a table's value columns in the paper's order; Anchor-MoE itself is `full` in every table."""
    first = next(iter(_paper(table).values()))
    return tuple("full" if name == "anchor_moe" else name for name in first if name != "n")


def paper_cell(table: str, dataset: str, column: str) -> Value | None:
    """Return mean and ± as the paper prints them, None where it prints nothing.

    The columns `full` and `anchor_moe` are the same.
    """
    row = _paper(table).get(dataset, {})
    value = row.get(column)
    if value is None and column in ("full", "anchor_moe"):
        value = row.get("anchor_moe", row.get("full"))
    return None if value is None else (value[0], value[1])


def paper_n(table: str, dataset: str) -> int:
    """Return the number of rows N as a table prints it."""
    row = _paper(table)
    _require(f"dataset of table {table}", dataset, tuple(row))
    return row[dataset]["n"]


def nll_in_original_units(run_name: str, dataset: str) -> Value | None:
    """Return mean and SE of a notebook run's NLL, converted split by split; None where that is not possible."""
    value = _load("original_units.json")["nll_y"].get(run_name, {}).get(dataset)
    return None if value is None else (value[0], value[1])


def unit_differences() -> dict[str, tuple[float, float]]:
    """Return the NLL of Anchor-MoE minus NGBoost's per dataset: as printed, and both in original units.

    Where the paper prints something else than NGBoost's NLL, the second takes the value of a reprint.
    """
    quoted = _load("in_print.json")["ngboost_nll"]
    differences = {}
    for dataset in DATASETS:
        ours, theirs = (paper_cell("nll", dataset, name) for name in ("full", "ngboost"))
        converted = nll_in_original_units(notebook("full", dataset).run_name, dataset)
        assert ours is not None
        assert theirs is not None
        assert converted is not None
        differences[dataset] = (ours[0] - theirs[0], converted[0] - float(quoted[dataset].split()[0]))
    return differences


@functools.cache
def discrepancies() -> tuple[Discrepancy, ...]:
    """Return where the paper's tables, its text and the notebooks disagree, in a fixed order."""
    result = []
    for entry in _load("discrepancies.json"):
        fields: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in entry.items()}
        result.append(Discrepancy(**fields))
    return tuple(result)


def _run(name: str, facts: dict[str, Any]) -> PublishedRun:
    stages, epochs, r2 = (facts.get(key) for key in ("gbdt_best_iter", "moe_best_epoch", "r2"))
    return PublishedRun(
        run_name=name,
        rmse=tuple(facts["rmse"]),
        nll_z=tuple(facts["nll_z"]),
        stages=None if stages is None else tuple(stages),
        epochs=None if epochs is None else tuple(epochs),
        r2=None if r2 is None else tuple(r2),
        num_rows=facts.get("printed_x_shape", [None])[0],
    )


def _paper(table: str) -> dict[str, Any]:
    _require("table", table, TABLES)
    return _load("published.json")["paper"]["tables"][table]


@functools.cache
def _load(name: str) -> Any:
    return json.loads(shipped(f"benchmarks/{name}").read_text(encoding="utf-8"))


def _require(what: str, received: str, allowed: tuple[str, ...]) -> None:
    if received not in allowed:
        raise ValueError(f"{what} must be one of {', '.join(allowed)}; received {received!r}")
