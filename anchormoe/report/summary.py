"""The small table at the end of a run: our means beside the published ones."""

from __future__ import annotations

import pandas as pd
from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from anchormoe.report import cells, published

METRICS = {
    "rmse_y": "RMSE (y)",
    "nll_z": "NLL (z)",
    "nll_y": "NLL (y)",
    "crps_y": "CRPS (y)",
    "coverage_90": "90% coverage",
}
_PUBLISHED_NAME = {"rmse_y": "rmse", "nll_z": "nll_z"}  # what the authors' notebooks print


def of_rows(rows: pd.DataFrame) -> Group:
    """One table per run: metric, mean ± SE, SD, published mean ± SE, paired difference in published SEs."""
    good = rows[rows.status == "ok"]
    keys = ["dataset", "variant", "method", "ablation", "protocol", "anchor", "seed", "config_hash"]
    runs = [_table(run) for _, run in good.groupby(keys, sort=False, dropna=False)]
    return Group(*runs) if runs else Group(Text("no split has finished"))


def _table(run: pd.DataFrame) -> Table:
    first = run.iloc[0]
    title = f"{first.dataset} ({first.variant}), {first.method} {first.ablation}, protocol {first.protocol}"
    title += f", anchor {first.anchor}, seed {first.seed}, {len(run)} splits"
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    for name in ("metric", "mean ± SE", "SD", "published ± SE", "difference"):
        table.add_column(name, justify="left" if name == "metric" else "right")
    for column, label in METRICS.items():
        ours = cells.summarise(run[column])
        table.add_row(label, f"{_plus_minus(ours.mean, ours.se)}", _number(ours.sd), *_published(run, column))
    return table


def _published(run: pd.DataFrame, column: str) -> tuple[str, str]:
    """The notebook's mean over the same splits and how far ours is from it; blank where nothing comparable exists."""
    first = run.iloc[0]
    if first.dataset not in published.DATASETS:
        return "", ""
    name = _PUBLISHED_NAME.get(column)
    method, variant = cells.measured(first.dataset, first.ablation, "published")
    same_data = first.num_rows == published.paper_n("nll", first.dataset) and variant in (None, first.variant)
    if name is None or first.protocol != "published" or first.seed != 1 or first.method != method or not same_data:
        return "", ""
    notebook = published.notebook(first.ablation, first.dataset)
    theirs = pd.Series(notebook.values(name), index=range(1, published.NUM_SPLITS + 1))[run.split]
    difference = run[column].to_numpy() - theirs.to_numpy()
    se = notebook.se(name)
    return _plus_minus(theirs.mean(), se), f"{difference.mean() / se:+.2f} SE"


def _plus_minus(mean: float, error: float | None) -> str:
    return _number(mean) if error is None else f"{_number(mean)} ± {_number(error)}"


def _number(value: float | None) -> str:
    if value is None or pd.isna(value):
        return "–"
    return f"{value:.4f}" if abs(value) >= 0.01 or value == 0 else f"{value:.2e}"
