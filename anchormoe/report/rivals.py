"""The presets of the recipe beside modern rivals."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from anchormoe.config.schema import NUM_SPLITS, RIVALS_EXPERIMENT, TABLE_EXPERIMENTS
from anchormoe.distributions.scores import METRICS
from anchormoe.report import comparison, published
from anchormoe.report.comparison import Comparison
from anchormoe.report.grid import NOT_AVAILABLE, Cell, Table, with_best_bold
from anchormoe.report.ranking import LEVEL, METRIC
from anchormoe.report.render import markdown_cell, markdown_lines

FORM = "rivals"
PRESETS = ("anchormoe_best", "anchormoe_fast")
_NOTHING = "No dataset has all splits of all rivals yet."


def build(rows: pd.DataFrame) -> list[Table]:
    """Make the tables of `anchormoe-bench tables form=rivals`."""
    compared = _compared(rows)
    return comparison.build(_of_rivals(rows), datasets=compared.datasets) if compared.datasets else []


def rivals_nll(rows: pd.DataFrame) -> str:
    """Write the NLL at the data's resolution of the presets and of every rival."""
    return _scores(rows, "nll_cell_y")


def rivals_crps(rows: pd.DataFrame) -> str:
    """Write the CRPS of the presets and of every rival."""
    return _scores(rows, METRIC)


def rivals_seconds(rows: pd.DataFrame) -> str:
    """Write the mean seconds to fit a split of the presets and of every rival."""
    compared = _compared(rows)
    if not compared.datasets:
        return _NOTHING
    lines = [
        [
            comparison.heading(method),
            *(_decimals(compared.cell(METRICS["fit_seconds"], method, dataset), 1) for dataset in compared.datasets),
        ]
        for method in compared.methods
    ]
    return markdown_lines(["method", *compared.datasets], lines)


def rivals_lead(rows: pd.DataFrame) -> str:
    """Write how often `best` is better and worse than each rival, by paired tests of the CRPS."""
    compared = _compared(rows)
    if not compared.datasets:
        return _NOTHING
    best, *others = compared.methods
    found = []
    for rival in [method for method in others if method not in PRESETS]:
        common = [name for name in compared.datasets if _is_complete(compared, rival, name)]
        better, worse = _judged(compared, rival, common)
        found.append(
            f"{comparison.heading(rival)} on {len(better)} of {len(common)} and worse on {len(worse) or 'none'}"
        )
    return (
        f"By paired tests of the CRPS (p < {LEVEL:g}, corrected for overlapping training sets, not adjusted for their "
        f"number), {comparison.heading(best)} is better than {'; than '.join(found)}. A dataset counts where all "
        f"{NUM_SPLITS} splits of both are stored."
    )


def best_lead(rows: pd.DataFrame) -> str:
    """Write on how many datasets `best` is better than each method of the comparison, and where it is worse."""
    compared = Comparison(rows[rows["experiment"].isin(TABLE_EXPERIMENTS)])
    complete = [str(method) for method in compared.means(METRIC)]
    if PRESETS[0] not in complete:
        return f"{comparison.heading(PRESETS[0])} has not all splits of all datasets yet."
    others = [method for method in complete if not method.startswith("anchormoe_")]
    judged = {method: _judged(compared, method, compared.datasets) for method in others}
    least = min(len(better) for better, _ in judged.values())
    lost = [f"{comparison.heading(one)} on {', '.join(worse)}" for one, (_, worse) in judged.items() if worse]
    return (
        f"By paired tests of the CRPS (corrected p < {LEVEL:g}) {comparison.heading(PRESETS[0])} is better than each "
        f"of the {len(others)} other methods with all splits on at least {least} of the {len(compared.datasets)} "
        "datasets. " + (f"Better than it: {'; '.join(lost)}." if lost else "None is better than it on any.")
    )


def _judged(compared: Comparison, method: str, datasets: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the datasets on which `best` is better than a method and those on which it is worse, significantly."""
    better: list[str] = []
    worse: list[str] = []
    for dataset in datasets:
        paired = compared.paired(METRIC, method, PRESETS[0], dataset)
        assert paired is not None  # both have all splits
        test, _ = paired
        if test.p_value < LEVEL and test.mean != 0:
            (better if test.mean > 0 else worse).append(dataset)
    return better, worse


def presets(rows: pd.DataFrame) -> str:
    """Write the presets beside each other, on the datasets where both have rows.

    Scores, by how many percent the CRPS of `fast` is above, coverage and seconds.

    Bold: p < 0.05 by the paired test of the CRPS.
    """
    compared = Comparison(_of_rivals(rows))
    lines, ratios = [], []
    for dataset in published.DATASETS:
        cells = {
            (name, preset): compared.cell(METRICS[name], f"anchormoe_{preset}", dataset)
            for name in ("nll_cell_y", "crps_y", "coverage_90", "fit_seconds")
            for preset in ("fast", "best")
        }
        found = compared.paired("crps_y", "anchormoe_fast", "anchormoe_best", dataset)
        base = cells["crps_y", "best"].mean
        if found is None or base is None:
            continue
        ratio = 100 * found[0].mean / base
        ratios.append(ratio)
        difference = f"**{ratio:+.1f}%**" if found[0].p_value < LEVEL else f"{ratio:+.1f}%"
        scores = [cells[name, preset].text for name in ("nll_cell_y", "crps_y") for preset in ("fast", "best")]
        coverage = [_decimals(cells["coverage_90", preset], 3) for preset in ("fast", "best")]
        seconds = [_decimals(cells["fit_seconds", preset], 1) for preset in ("fast", "best")]
        lines.append([dataset, *scores, difference, *coverage, *seconds])
    if ratios:
        lines.append(["mean", *[NOT_AVAILABLE] * 4, f"{sum(ratios) / len(ratios):+.1f}%", *[NOT_AVAILABLE] * 4])
    pairs = (("cell NLL", "CRPS"), ("90%", "seconds"))
    first, last = ([f"{title} {preset}" for title in titles for preset in ("fast", "best")] for titles in pairs)
    return markdown_lines(["dataset", *first, "CRPS fast over best", *last], lines)


def _text(cell: Cell) -> str:
    return NOT_AVAILABLE if cell.mean is None else markdown_cell(cell)


def _decimals(cell: Cell, decimals: int) -> str:
    return NOT_AVAILABLE if cell.mean is None else f"{cell.mean:.{decimals}f}"


def _scores(rows: pd.DataFrame, metric: str) -> str:
    """Write means and standard errors, a line for every method; bold: the lowest of its dataset.

    The average rank is over the datasets where all of the methods have all splits.
    """
    compared = _compared(rows)
    if not compared.datasets:
        return _NOTHING
    columns = [
        with_best_bold([compared.cell(METRICS[metric], method, dataset) for method in compared.methods])
        for dataset in compared.datasets
    ]
    common = [name for name in compared.datasets if all(_is_complete(compared, one, name) for one in compared.methods)]
    means = Comparison(_of_rivals(rows), datasets=common).means(metric)
    ranks = means.reindex(columns=compared.methods).rank(axis=1).mean()
    lines = [
        [
            comparison.heading(method),
            NOT_AVAILABLE if math.isnan(ranks[method]) else f"{ranks[method]:.1f}",
            *(_text(column[number]) for column in columns),
        ]
        for number, method in enumerate(compared.methods)
    ]
    return markdown_lines(["method", f"average rank on {len(common)}", *compared.datasets], lines)


def _compared(rows: pd.DataFrame) -> Comparison:
    """Compare methods with all splits of a dataset, on the datasets where the presets and a rival have them."""
    compared = Comparison(_of_rivals(rows))
    complete = {
        name: [one for one in compared.methods if _is_complete(compared, one, name)] for name in compared.datasets
    }
    datasets = [name for name, methods in complete.items() if set(PRESETS) < set(methods)]
    methods = {method for name in datasets for method in complete[name]}
    own = _of_rivals(rows)
    return Comparison(own[own["method"].isin(methods)], datasets=datasets)


def _is_complete(compared: Comparison, method: str, dataset: str) -> bool:
    return len(compared.values(METRIC, method, dataset)) == NUM_SPLITS


def _of_rivals(rows: pd.DataFrame) -> pd.DataFrame:
    """Keep the rows of the rivals, `best` among them, and of the fast preset."""
    own = rows["experiment"].eq("crossfit") & rows["method"].isin(PRESETS)
    return rows[own | rows["experiment"].eq(RIVALS_EXPERIMENT)].reset_index(drop=True)
