"""The fair comparison: every method on the same splits of protocol=clean, one metric and one unit per table.

There is a table of values per metric, then ranks and paired differences for those in which lower is better, then our
runs beside what the methods' own papers report.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from anchormoe.config.schema import NUM_SPLITS
from anchormoe.distributions.scores import METRICS, Metric, compared, ranked
from anchormoe.methods import METHODS as REGISTRY
from anchormoe.report import published
from anchormoe.report import statistics as stats
from anchormoe.report.cells import Run, StoredRuns, summarise
from anchormoe.report.grid import AS_PRINTED, MISSING, NOT_AVAILABLE, SE, Cell, Column, Row, Table, with_best_bold

# method -> heading, in the registry's order. A regressor that was run by its import path comes last, under that path.
METHODS = {name: method.title for name, method in REGISTRY.items() if name not in ("sklearn", "calibrated")}
CORRECTED_SE = "corrected SE"
WINE = (
    "Wine's targets are whole grades, and 27% of its test rows repeat a training row, grade included. A method that "
    "puts spikes at the grades (MDN, quantile forest) or remembers single rows has a low NLL there, and some gain in "
    "CRPS."
)
_QUOTED_AS = {"dist_forest": "distforest"}
_RUN_BY_THE_AUTHORS = {"ngboost_authors": "ngboost_{dataset}", "rff_krr": "{dataset}_rff_krr"}  # runs of the notebooks


class Comparison:
    """The runs of all methods on some datasets, from which the tables are made."""

    def __init__(
        self,
        rows: pd.DataFrame,
        *,
        seed: int = 1,
        datasets: Sequence[str] = published.DATASETS,
        protocol: str = "clean",
        num_splits: int = NUM_SPLITS,
    ) -> None:
        stored = StoredRuns(rows)
        self.seed, self.datasets, self.num_splits = seed, tuple(datasets), num_splits
        self.runs: dict[tuple[str, str], Run] = {}
        for method in dict.fromkeys((*METHODS, *stored.methods)):
            for dataset in self.datasets:
                run = stored.choose(dataset=dataset, ablation="full", protocol=protocol, seed=seed, method=method)
                if run is not None:
                    self.runs[method, dataset] = run
        self.methods = list(dict.fromkeys(method for method, _ in self.runs))
        self._values: dict[tuple[str, str, str], dict[int, float]] = {}

    def values(self, metric: str, method: str, dataset: str) -> dict[int, float]:
        """Return a metric by split number, without the splits that do not have it."""
        run = self.runs.get((method, dataset))
        if run is None:
            return {}
        if (metric, method, dataset) not in self._values:
            pairs = zip(run.splits, run.values(metric).tolist(), strict=True)
            self._values[metric, method, dataset] = {split: value for split, value in pairs if not math.isnan(value)}
        return self._values[metric, method, dataset]

    def has(self, metric: str) -> bool:
        """Say whether the rows hold a metric: some do, and those of every method with all splits of all datasets.

        Older rows do not hold a metric that was added later.
        """
        found = any(self.values(metric, method, dataset) for method, dataset in self.runs)
        return found and set(self.means("nll_y")) <= set(self.means(metric))

    def nll(self) -> Metric:
        """Return the NLL that methods are ranked by: at the data's resolution as soon as all rows hold it."""
        return METRICS["nll_cell_y" if self.has("nll_cell_y") else "nll_y"]

    def ranked(self) -> list[Metric]:
        """Return the metrics that methods are ranked by, of two kinds of NLL only one."""
        left_out = {"nll_cell_y", "nll_y"} - {self.nll().name}
        return [metric for metric in ranked() if metric.name not in left_out and self.has(metric.name)]

    def means(self, metric: str) -> pd.DataFrame:
        """Return means over splits: a row per dataset, a column per method that has all splits of all datasets."""
        by_method = {
            method: [list(self.values(metric, method, dataset).values()) for dataset in self.datasets]
            for method in self.methods
        }
        complete = {
            method: [float(np.mean(values)) for values in columns]
            for method, columns in by_method.items()
            if all(len(values) == self.num_splits for values in columns)
        }
        return pd.DataFrame(complete, index=list(self.datasets))

    def pit_counts(self, method: str, dataset: str) -> np.ndarray | None:
        """Add up the PIT counts of all splits, each test row counted in the first split of the plan that tests it.

        None if a row does not hold these counts, as older rows do not, or if no split counts a row.
        """
        run = self.runs.get((method, dataset))
        counts = [] if run is None else [value for value in run.column("pit_counts_once") if isinstance(value, list)]
        total = np.sum(counts, axis=0) if run is not None and len(counts) == len(run.splits) else None
        return None if total is None or total.sum() == 0 else total

    def is_smoothed(self, method: str) -> bool:
        """Tell whether rows of a method say that their density is smoothed from quantiles, draws or residuals."""
        runs = [run for (name, _), run in self.runs.items() if name == method]
        return any(isinstance(value, str) for run in runs for value in run.column("density"))

    def paired(self, metric: str, first: str, second: str, dataset: str) -> tuple[stats.PairedTest, int] | None:
        """Test first - second on the splits that both have, and count these; None if there are fewer than two.

        Rows of splits by groups or time state the share of rows that they test on; random splits test on a tenth.
        """
        one, other = (self.values(metric, name, dataset) for name in (first, second))
        common = sorted(one.keys() & other.keys())
        if len(common) < 2:
            return None
        shares = self.runs[first, dataset].values("test_share")
        stated = shares[~np.isnan(shares)]
        share = float(stated.mean()) if len(stated) else stats.TEST_SHARE
        pairs = ([values[split] for split in common] for values in (one, other))
        return stats.paired_test(*pairs, test_share=share), len(common)

    def cell(self, metric: Metric, method: str, dataset: str) -> Cell:
        """Return mean ± SE of a method on a dataset; it is ranked if all splits are there."""
        summary = summarise(self.values(metric.name, method, dataset).values())
        if summary is None:
            return Cell(absent=MISSING)
        return Cell(
            metric.name,
            SE,
            summary.mean,
            summary.se,
            metric.decimals,
            num_splits=summary.num_splits,
            planned_splits=self.num_splits,
            ranked=summary.num_splits == self.num_splits,
        )

    def row(self, dataset: str, source: str, row: Sequence[Cell]) -> Row:
        """Return a row of a table with the number of rows of its dataset."""
        return Row(dataset, self._num_rows(dataset), source, tuple(row))

    def _num_rows(self, dataset: str) -> int | None:
        if dataset in published.DATASETS:
            return published.paper_n("nll", dataset)
        numbers = [run.values("num_rows")[0] for (_, name), run in self.runs.items() if name == dataset]
        return None if not numbers or math.isnan(numbers[0]) else int(numbers[0])


def build(
    rows: pd.DataFrame,
    *,
    seed: int = 1,
    datasets: Sequence[str] = published.DATASETS,
    num_splits: int = NUM_SPLITS,
) -> list[Table]:
    """Make all tables of the comparison for which there are rows."""
    comparison = Comparison(rows, seed=seed, datasets=datasets, num_splits=num_splits)
    built = [
        *(metric_table(metric, comparison) for metric in compared() if comparison.has(metric.name)),
        *(_rank_table(metric, comparison) for metric in ranked() if comparison.has(metric.name)),
        *(paired_table(metric, comparison) for metric in ranked() if comparison.has(metric.name)),
        _quoted_table(comparison),
    ]
    return [table for table in built if table.columns and table.rows]


def heading(method: str) -> str:
    """Return a method's name in tables: its own, or the import path of a regressor, with its calibration if any."""
    name, *maps = method.split("+")
    return ", ".join([METHODS.get(name, name), *maps])


def metric_table(metric: Metric, comparison: Comparison) -> Table:
    """Make the table of a metric's means, a column per method."""
    body = []
    for dataset in comparison.datasets:
        row = [comparison.cell(metric, method, dataset) for method in comparison.methods]
        body.append(comparison.row(dataset, "live", with_best_bold(row) if metric.lower_is_better else row))
    columns = tuple(Column(heading(name), (metric.name,), SE) for name in comparison.methods)
    notes = [f"protocol=clean, seed {comparison.seed}: mean ± SE over the splits.", *_wine_notes(metric, comparison)]
    smoothed = [heading(name) for name in comparison.methods if comparison.is_smoothed(name)]
    if metric.name.startswith("nll") and smoothed:
        notes.append(f"From a smoothed density, because the method predicts none: {', '.join(smoothed)}.")
    if metric.lower_is_better:
        notes.append(f"Bold: lowest on its dataset, of those with all {comparison.num_splits} splits.")
    return Table(
        f"comparison_{metric.name}",
        "comparison",
        metric.title,
        tuple(notes),
        columns,
        tuple(body),
        (),
        lines_are="Method",
    )


def _wine_notes(metric: Metric, comparison: Comparison) -> list[str]:
    return [WINE] if metric.name in ("nll_y", "crps_y") and "wine" in comparison.datasets else []


def _rank_table(metric: Metric, comparison: Comparison) -> Table:
    means = comparison.means(metric.name)
    ranks = means.rank(axis=1)
    ranks = ranks[ranks.mean().sort_values(kind="stable").index]
    complete = [str(name) for name in ranks]
    body = []
    for dataset, values in zip(comparison.datasets, ranks.to_numpy().tolist(), strict=True):
        body.append(comparison.row(dataset, "live", [_rank_cell(value, decimals=0) for value in values]))
    num_datasets = len(comparison.datasets)
    notes = [f"1 is best. Only methods with all {comparison.num_splits} splits of all {num_datasets} datasets."]
    notes += _wine_notes(metric, comparison)
    if len(complete) > 2 and num_datasets > 1:
        test = stats.rank_test(means)
        average = [_rank_cell(float(test.average_rank.loc[name]), decimals=2) for name in complete]
        body.append(Row("average", None, "live", with_best_bold(average)))
        notes.append(
            f"Friedman's test: p = {test.p_value:.2g}. Average ranks that differ by less than "
            f"{test.critical_distance:.2f} are not told apart (Nemenyi, 5%)."
        )
    columns = tuple(Column(heading(name), ("rank",), "") for name in complete)
    return Table(
        f"ranks_{metric.name}",
        "comparison",
        f"Ranks by {metric.title}",
        tuple(notes),
        columns,
        tuple(body),
        (),
        lines_are="Method",
    )


def _rank_cell(rank: float, *, decimals: int) -> Cell:
    return Cell("rank", "", rank, decimals=decimals, fixed=True)


def paired_table(metric: Metric, comparison: Comparison) -> Table:
    """Compare every method with the first one, split by split."""
    base, *others = comparison.methods
    body = []
    for dataset in comparison.datasets:
        row = [paired_cell(metric, comparison, base, name, dataset) for name in others]
        body.append(comparison.row(dataset, "live", row))
    columns = tuple(Column(heading(name), (f"difference of {metric.name}",), CORRECTED_SE) for name in others)
    notes = (
        f"Method minus {heading(base)} on the same splits, mean ± standard error corrected for overlapping training "
        "sets (Nadeau and Bengio). Positive: the method is worse. Bold: p < 0.05, two-sided, not adjusted for many "
        "comparisons.",
    )
    title = f"{metric.title}: difference from {heading(base)}"
    return Table(f"paired_{metric.name}", "comparison", title, notes, columns, tuple(body), (), lines_are="Method")


def paired_cell(metric: Metric, comparison: Comparison, base: str, method: str, dataset: str) -> Cell:
    """Return the difference of a method from the base on the splits that both have; bold: p < 0.05."""
    found = comparison.paired(metric.name, method, base, dataset)
    if found is None:
        return Cell(absent=MISSING)
    test, num_splits = found
    return Cell(
        f"difference of {metric.name}",
        CORRECTED_SE,
        test.mean,
        test.se,
        metric.decimals,
        num_splits=num_splits,
        bold=test.p_value < 0.05,
    )


def _quoted_table(comparison: Comparison) -> Table:
    """Set our run of each method beside what its own paper reports."""
    body = []
    for dataset in comparison.datasets:
        for method in comparison.methods:
            cited = quoted(method, dataset)
            if cited is None:
                continue
            live = comparison.cell(METRICS["nll_y"], method, dataset)
            apart = combined_standard_errors(method, live, cited)
            difference = Cell(absent=NOT_AVAILABLE)
            if apart is not None:
                difference = Cell("combined SE", "", apart, decimals=1, fixed=True)
            cells = [live, Cell("nll_y", AS_PRINTED, *cited, decimals=2, fixed=True), difference]
            body.append(comparison.row(dataset, heading(method), cells))
    columns = (
        Column("live", ("nll_y",), SE),
        Column("quoted", ("nll_y",), AS_PRINTED),
        Column("live - quoted", ("combined SE",), ""),
    )
    notes = (
        "quoted: the Anchor-MoE paper's tables, which repeat the methods' own papers; other splits, other tuning. Its "
        "± is a standard deviation for NGBoost (divided by the root of 20 for the difference) and taken as a standard "
        "error for the others. NGBoost, over-trained, and the kernel ridge mixture: the paper's own runs, in original "
        "units.",
    )
    title = "NLL in original units, beside what the methods' own papers report"
    return Table("quoted_nll_y", "comparison", title, notes, columns, tuple(body), ())


def quoted(method: str, dataset: str) -> published.Value | None:
    """Return the NLL in original units that the paper prints for another method, and the number after its ±."""
    if method.startswith("anchormoe") or dataset not in published.DATASETS:
        return None
    if method == "ngboost":
        # Wine and Protein are the paper's own over-trained runs, Energy is NGBoost's RMSE.
        if dataset in ("energy", "protein", "wine"):
            return None
        return published.paper_cell("nll", dataset, "ngboost")
    if method in _RUN_BY_THE_AUTHORS:
        return published.nll_in_original_units(_RUN_BY_THE_AUTHORS[method].format(dataset=dataset), dataset)
    return published.paper_cell("appendix_nll", dataset, _QUOTED_AS.get(method, method))


def combined_standard_errors(method: str, live: Cell, cited: published.Value) -> float | None:
    """Return live - quoted in combined standard errors; the number after NGBoost's ± is a standard deviation."""
    if live.mean is None or live.deviation is None:
        return None
    se = cited[1] / math.sqrt(NUM_SPLITS) if method == "ngboost" else cited[1]
    return (live.mean - cited[0]) / math.hypot(live.deviation, se)
