"""The fair comparison: every method on the same splits of protocol=clean, one metric and one unit per table.

Each dataset has a row of our own runs and, where the paper quotes one, a row of what the method's own paper reports.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from anchormoe.config.schema import NUM_SPLITS
from anchormoe.report import cells, published
from anchormoe.report import statistics as stats
from anchormoe.report.grid import AS_PRINTED, MISSING, NOT_AVAILABLE, SE, Cell, Column, Row, Table
from anchormoe.report.tables import decimals_for, with_best_bold

# column -> heading; Anchor-MoE first, then in the paper's order, then what the paper does not have. A regressor that
# was run by its import path comes last, under that path.
METHODS = {
    "anchormoe_crossfit": "Anchor-MoE, cross-fitted",
    "anchormoe": "Anchor-MoE",
    "ngboost": "NGBoost",
    "ngboost_authors": "NGBoost, over-trained",
    "mc_dropout": "MC dropout",
    "deep_ensembles": "Deep ensembles",
    "concrete_dropout": "Concrete dropout",
    "gaussian_process": "Gaussian process",
    "gamlss": "GAMLSS",
    "dist_forest": "Dist. forest",
    "rff_krr": "Kernel ridge mixture",
    "xgboost_normal": "XGBoost pair",
    "catboost_uncertainty": "CatBoost",
    "quantile_forest": "Quantile forest",
    "gbdt_homoscedastic": "GBDT, one variance",
    "mdn": "MDN",
}
METRICS = {
    "nll_y": ("NLL in original units", True),
    "crps_y": ("CRPS in original units", True),
    "rmse_y": ("RMSE in original units", True),
    "coverage_90": ("Coverage of the central 90% interval", False),
    "fit_seconds": ("Seconds to fit a split, on one core", False),
}
RANKED = tuple(metric for metric, (_, lower_is_better) in METRICS.items() if lower_is_better)
CORRECTED_SE = "corrected SE"
WINE = (
    "Wine's targets are whole grades, and 27% of its test rows repeat a training row, grade included. Spikes at the "
    "grades (MDN, quantile forest) have as low an NLL there as the narrowest component allows, and some gain in CRPS; "
    "so has whatever remembers single rows."
)
_QUOTED_AS = {"dist_forest": "distforest"}
_RUN_BY_THE_AUTHORS = {"ngboost_authors": "ngboost_{dataset}", "rff_krr": "{dataset}_rff_krr"}  # runs of the notebooks

Runs = dict[tuple[str, str], pd.DataFrame]  # (method, dataset) -> finished splits, indexed by split number


def build(rows: pd.DataFrame, *, seed: int = 1) -> list[Table]:
    """A table per metric, then one of ranks."""
    chosen = _runs(rows, seed)
    present = _present(chosen)
    if not present:
        return []
    return [
        *(_metric_table(metric, chosen, present) for metric in METRICS),
        *(_rank_table(metric, chosen, present) for metric in RANKED),
        *(_paired_table(metric, chosen, present) for metric in RANKED),
        _quoted_table(chosen, present),
    ]


def _runs(rows: pd.DataFrame, seed: int) -> Runs:
    found = {}
    further = rows.loc[~rows["method"].isin(METHODS), "method"].unique()
    for method in (*METHODS, *further):
        for dataset in published.DATASETS:
            run = cells.choose(rows, dataset=dataset, ablation="full", protocol="clean", seed=seed, method=method)
            if run is not None:
                found[method, dataset] = run.rows
    return found


def _present(chosen: Runs) -> list[str]:
    return list(dict.fromkeys(method for method, _ in chosen))


def heading(method: str) -> str:
    return METHODS.get(method, method)


def _metric_table(metric: str, chosen: Runs, present: Sequence[str]) -> Table:
    title, lower_is_better = METRICS[metric]
    body = []
    for dataset in published.DATASETS:
        row = [_live_cell(metric, chosen.get((method, dataset))) for method in present]
        body.append(_row(dataset, "live", with_best_bold(row) if lower_is_better else row))
    columns = tuple(Column(heading(name), (metric,), SE) for name in present)
    notes = ["protocol=clean, seed 1: mean ± SE over the splits."]
    if metric in ("nll_y", "crps_y"):
        notes.append(WINE)
    if lower_is_better:
        notes.append("Bold: lowest on its dataset, of those with all 20 splits.")
    return Table(
        f"comparison_{metric}", "comparison", title, tuple(notes), columns, tuple(body), (), lines_are="Method"
    )


def _live_cell(metric: str, run: pd.DataFrame | None) -> Cell:
    if run is None:
        return Cell(absent=MISSING)
    summary = cells.summarise(run[metric])
    complete = summary.num_splits == NUM_SPLITS
    decimals = decimals_for(summary.se, least=1 if metric == "fit_seconds" else 3)
    return Cell(metric, SE, summary.mean, summary.se, decimals, num_splits=summary.num_splits, ranked=complete)


def means(rows: pd.DataFrame, metric: str, *, seed: int = 1) -> pd.DataFrame:
    """Mean over splits: one row per dataset, one column per method that has all 20 splits of all datasets."""
    chosen = _runs(rows, seed)
    return _means(metric, chosen, _present(chosen))


def pit_counts(rows: pd.DataFrame, method: str, dataset: str, *, seed: int = 1) -> np.ndarray | None:
    """Of all splits together; None if there are none (older rows do not hold them)."""
    run = _runs(rows, seed).get((method, dataset))
    if run is None or "pit_counts" not in run:
        return None
    counts = run["pit_counts"].dropna()
    return None if counts.empty else np.sum(counts.to_list(), axis=0)


def _means(metric: str, chosen: Runs, methods: Sequence[str]) -> pd.DataFrame:
    complete = [
        name
        for name in methods
        if all(len(chosen.get((name, dataset), ())) == NUM_SPLITS for dataset in published.DATASETS)
    ]
    return pd.DataFrame(
        {name: [chosen[name, dataset][metric].mean() for dataset in published.DATASETS] for name in complete},
        index=list(published.DATASETS),
    )


def _rank_table(metric: str, chosen: Runs, present: Sequence[str]) -> Table:
    means = _means(metric, chosen, present)
    ranks = means.rank(axis=1)
    ranks = ranks[ranks.mean().sort_values(kind="stable").index]
    complete = [str(name) for name in ranks]
    body = []
    for dataset, values in zip(published.DATASETS, ranks.to_numpy().tolist(), strict=True):
        body.append(_row(dataset, "live", [Cell("rank", "", value, decimals=0) for value in values]))
    notes = ["1 is best. Only methods with all 20 splits of all nine datasets."]
    if metric in ("nll_y", "crps_y"):
        notes.append(WINE)
    if len(complete) > 2:
        test = stats.rank_test(means)
        average = [Cell("rank", "", float(test.average_rank.loc[name]), decimals=2) for name in complete]
        body.append(Row("average", None, "live", with_best_bold(average)))
        notes.append(
            f"Friedman's test: p = {test.p_value:.2g}. Average ranks that differ by less than "
            f"{test.critical_distance:.2f} are not told apart (Nemenyi, 5%)."
        )
    columns = tuple(Column(heading(name), ("rank",), "") for name in complete)
    title = f"Ranks by {METRICS[metric][0]}"
    return Table(f"ranks_{metric}", "comparison", title, tuple(notes), columns, tuple(body), (), lines_are="Method")


def _paired_table(metric: str, chosen: Runs, present: Sequence[str]) -> Table:
    """Each method minus the first, split by split."""
    base, *others = present
    body = []
    for dataset in published.DATASETS:
        body.append(_row(dataset, "live", [_paired_cell(metric, chosen, base, name, dataset) for name in others]))
    columns = tuple(Column(heading(name), (f"difference of {metric}",), CORRECTED_SE) for name in others)
    notes = (
        f"Method minus {heading(base)} on the same splits, mean ± standard error corrected for overlapping training "
        "sets (Nadeau and Bengio). Positive: the method is worse. Bold: p < 0.05, two-sided, not adjusted for many "
        "comparisons.",
    )
    title = f"{METRICS[metric][0]}: difference from {heading(base)}"
    return Table(f"paired_{metric}", "comparison", title, notes, columns, tuple(body), (), lines_are="Method")


def _paired_cell(metric: str, chosen: Runs, base: str, method: str, dataset: str) -> Cell:
    pair = [chosen.get((name, dataset)) for name in (method, base)]
    if pair[0] is None or pair[1] is None:
        return Cell(absent=MISSING)
    both = pair[0][[metric]].join(pair[1][[metric]], lsuffix="_method", rsuffix="_base", how="inner")
    if len(both) < 2:
        return Cell(absent=MISSING)
    test = stats.paired_test(*(both[name].to_list() for name in both))
    return Cell(
        f"difference of {metric}",
        CORRECTED_SE,
        test.mean,
        test.se,
        decimals_for(test.se, least=3),
        num_splits=len(both),
        bold=test.p_value < 0.05,
    )


def _quoted_table(chosen: Runs, present: Sequence[str]) -> Table:
    """What each method's own paper reports, beside our run of it."""
    body = []
    for dataset in published.DATASETS:
        for method in present:
            quoted = _quoted(method, dataset)
            if quoted is None:
                continue
            live = _live_cell("nll_y", chosen.get((method, dataset)))
            cited = Cell("nll_y", AS_PRINTED, *quoted, decimals=2)
            difference = Cell(absent=NOT_AVAILABLE)
            if live.mean is not None and live.deviation is not None:
                combined = math.hypot(live.deviation, quoted[1])
                difference = Cell("combined SE", "", (live.mean - quoted[0]) / combined, decimals=1)
            body.append(_row(dataset, heading(method), [live, cited, difference]))
    columns = (
        Column("live", ("nll_y",), SE),
        Column("quoted", ("nll_y",), AS_PRINTED),
        Column("live - quoted", ("combined SE",), ""),
    )
    notes = (
        "quoted: the Anchor-MoE paper's tables, which repeat the methods' own papers; other splits, other tuning. Its "
        "± is a standard deviation for NGBoost (divided by the root of 20 here) and taken as a standard error for the "
        "others. NGBoost, over-trained, and the kernel ridge mixture: the paper's own runs, in original units.",
    )
    title = "NLL in original units, beside what the methods' own papers report"
    return Table("quoted_nll_y", "comparison", title, notes, columns, tuple(body), ())


def _quoted(method: str, dataset: str) -> published.Value | None:
    if method.startswith("anchormoe"):
        return None
    if method == "ngboost":
        # Wine and Protein are the paper's own over-trained runs, Energy is NGBoost's RMSE.
        value = (
            published.paper_cell("nll", dataset, "ngboost") if dataset not in ("energy", "protein", "wine") else None
        )
        return None if value is None else (value[0], value[1] / math.sqrt(NUM_SPLITS))
    if method in _RUN_BY_THE_AUTHORS:
        return published.nll_in_original_units(_RUN_BY_THE_AUTHORS[method].format(dataset=dataset), dataset)
    return published.paper_cell("appendix_nll", dataset, _QUOTED_AS.get(method, method))


def _row(dataset: str, source: str, row: Sequence[Cell]) -> Row:
    return Row(dataset, published.paper_n("nll", dataset), source, tuple(row))
