"""The small table at the end of a run: our means beside the published ones, over the same splits."""

from __future__ import annotations

import pandas as pd
from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from anchormoe.config.schema import ABLATIONS, NUM_SPLITS
from anchormoe.distributions.joint_scores import JOINT_METRICS
from anchormoe.distributions.scores import METRICS, Metric
from anchormoe.report import cells, numbers, published

_DECIMALS = 4  # as the authors' notebooks print
_RUN = ("dataset", "variant", "method", "ablation", "protocol", "anchor", "seed", "config_hash")


def of_rows(rows: pd.DataFrame) -> Group:
    """Make a table per run: mean ± SE and SD of every metric, the published mean ± SE, our difference from it."""
    good = cells.finished(rows)
    runs = [run for _, run in good.groupby(list(_RUN), sort=False, dropna=False)]
    parts = [part for run in runs for part in (Text(_title(run), style="italic"), _table(run), Text(""))]
    return Group(*parts) if parts else Group(Text("no split has finished"))


def _title(run: pd.DataFrame) -> str:
    first, num_splits = run.iloc[0], len(run)
    dataset = f"{first.dataset} ({first.variant})" if isinstance(first.variant, str) else str(first.dataset)
    title = f"{dataset}, {first.method} {first.ablation}, protocol {first.protocol}, anchor {first.anchor}"
    return f"{title}, seed {first.seed}, {'1 split' if num_splits == 1 else f'{num_splits} splits'}"


def _table(run: pd.DataFrame) -> Table:
    first, num_splits = run.iloc[0], len(run)
    splits = "split" if num_splits == 1 else f"{num_splits} splits"
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    beside = "published" if num_splits == 1 else "published ± SE"
    if num_splits < NUM_SPLITS:
        beside += f",\nsame {splits}"
    columns = ["metric", "mean ± SE", "SD", *([beside, "difference"] if _is_published_run(first) else [])]
    for name in columns:
        table.add_column(name, justify="left" if name == "metric" else "right")
    for metric in (*METRICS.values(), *JOINT_METRICS.values()):
        shown = metric.function is not None and (metric.compared or metric.published_name)
        ours = cells.summarise(run[metric.name]) if shown and metric.name in run else None
        if ours is not None:
            sd = "–" if ours.sd is None else numbers.plus_minus(ours.sd, None, least=_DECIMALS)
            texts = [metric.label_with_unit, _plus_minus(ours), sd, *_published(run, metric)]
            table.add_row(*texts[: len(columns)])
    return table


def _published(run: pd.DataFrame, metric: Metric) -> tuple[str, str]:
    """Return the notebook's mean ± SE over the same splits, and how far ours is from it in these standard errors.

    Both are empty where nothing comparable was published. A single split has no standard error: the difference is then
    in the metric's own unit.
    """
    if metric.published_name is None or not _is_published_run(run.iloc[0]):
        return "", ""
    notebook = published.notebook(run.iloc[0].ablation, run.iloc[0].dataset)
    values = [notebook.values(metric.published_name)[int(split) - 1] for split in run["split"]]
    theirs = cells.summarise(values)
    assert theirs is not None  # a run has at least one split
    difference = float((run[metric.name] - values).mean())
    text = f"{difference / theirs.se:+.2f} SE" if theirs.se else f"{difference:+.{_DECIMALS}f}"
    return _plus_minus(theirs), text


def _is_published_run(row: pd.Series) -> bool:
    """Say whether a row repeats a run of the authors' notebooks: same data, method, protocol and seed."""
    if row.dataset not in published.DATASETS or row.ablation not in ABLATIONS:
        return False
    method, variant = cells.measured(row.dataset, row.ablation, "published")
    same_data = row.get("num_rows") == published.paper_n("nll", row.dataset) and variant in (None, row.variant)
    return row.protocol == "published" and row.seed == 1 and row.method == method and same_data


def _plus_minus(summary: cells.Summary) -> str:
    return numbers.plus_minus(summary.mean, summary.se, least=_DECIMALS)
