"""The comparison on the extended suite: does the recipe lead on tables on which none of its settings was chosen?

Ranks need every method on the same splits. While some are missing, they rest on the complete tables, and say so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd

from anchormoe.config.compose import suite_datasets
from anchormoe.config.schema import EXTENDED_EXPERIMENT, NUM_SPLITS
from anchormoe.distributions.scores import METRICS
from anchormoe.report import comparison
from anchormoe.report.comparison import Comparison
from anchormoe.report.grid import NOT_AVAILABLE, Table, with_best_bold
from anchormoe.report.ranking import LEVEL, METRIC
from anchormoe.report.render import markdown_cell, markdown_lines

SUITE = "extended"
RECIPE = "anchormoe_crossfit"
NO_ROWS = "No table of the extended suite has all its rows yet."


@dataclass(frozen=True)
class Coverage:
    """The tables of the suite on which every method has all splits, and those that are left out for now."""

    complete: tuple[str, ...]
    left_out: tuple[str, ...]
    num_methods: int

    @classmethod
    def of(cls, rows: pd.DataFrame) -> Coverage:
        """Find the complete tables; the methods that count are all that have rows on some table of the suite."""
        compared = Comparison(rows, datasets=suite_datasets(SUITE))

        def is_complete(dataset: str) -> bool:
            counts = [len(compared.values(METRIC, method, dataset)) for method in compared.methods]
            return len(counts) > 1 and all(count == NUM_SPLITS for count in counts)

        complete = tuple(name for name in compared.datasets if is_complete(name))
        left_out = tuple(name for name in compared.datasets if name not in complete)
        return cls(complete, left_out, len(compared.methods))

    @property
    def text(self) -> str:
        """Return on what ranks rest, such as: On 6 of the 10 tables, those with all 20 splits of all 8 methods."""
        total = len(self.complete) + len(self.left_out)
        if not self.left_out:
            return f"On the {total} tables, with {NUM_SPLITS} splits of each of the {self.num_methods} methods"
        return (
            f"On {len(self.complete)} of the {total} tables, those that have all {NUM_SPLITS} splits of all "
            f"{self.num_methods} methods so far (without {', '.join(self.left_out)})"
        )


def build(rows: pd.DataFrame) -> list[Table]:
    """Make the tables of `anchormoe-bench tables form=extended`; the ranks are those on the complete tables."""
    coverage = Coverage.of(rows)
    built = comparison.build(rows, datasets=suite_datasets(SUITE))
    if not coverage.left_out or not coverage.complete:
        return built
    ranks = [
        replace(table, notes=(f"{coverage.text}.", *table.notes))
        for table in comparison.build(rows, datasets=coverage.complete)
        if table.key.startswith("ranks_")
    ]
    return [*built, *ranks]


def extended_ranks(rows: pd.DataFrame) -> str:
    """Write the average ranks on the complete tables of the extended suite, and the coverage of 90% intervals."""
    compared = _on_complete_tables(rows)
    metrics = compared.ranked()
    ranks = pd.DataFrame({metric.label: compared.means(metric.name).rank(axis=1).mean() for metric in metrics})
    coverage = compared.means("coverage_90").mean()
    lines = [
        [comparison.heading(str(method)), *(f"{rank:.1f}" for rank in ranks.loc[method]), f"{coverage[method]:.3f}"]
        for method in ranks.mean(axis=1).sort_values(kind="stable").index
    ]
    return markdown_lines(["method", *ranks.columns, METRICS["coverage_90"].label], lines)


def extended_crps(rows: pd.DataFrame) -> str:
    """Write the CRPS of every method on every table that has rows, with the number of splits where some are missing."""
    compared = Comparison(_of_suite(rows), datasets=suite_datasets(SUITE))
    methods, lines = compared.methods, []
    for dataset in compared.datasets:
        if any(compared.values(METRIC, method, dataset) for method in methods):
            row = [replace(compared.cell(METRICS[METRIC], name, dataset), absent=NOT_AVAILABLE) for name in methods]
            lines.append([dataset, *(markdown_cell(cell) for cell in with_best_bold(row))])
    return markdown_lines(["dataset", *map(comparison.heading, methods)], lines)


def extended_lead(rows: pd.DataFrame) -> str:
    """Write in one sentence whether the recipe leads on the complete tables."""
    coverage = Coverage.of(_of_suite(rows))
    if not coverage.complete:
        return NO_ROWS
    average = _on_complete_tables(rows).means(METRIC).rank(axis=1).mean().sort_values(kind="stable")
    place = list(average.index).index(RECIPE) + 1
    other = next(str(method) for method in average.index if method != RECIPE)
    lead = "leads" if place == 1 else f"does not lead: it is number {place}"
    return (
        f"{coverage.text}, the cross-fitted recipe {lead} by the average rank of its CRPS, {average[RECIPE]:.1f} "
        f"(1 is best); {'the next is' if place == 1 else 'the best is'} {comparison.heading(other)} with "
        f"{average[other]:.1f}."
    )


def extended_cells(rows: pd.DataFrame) -> str:
    """Write on how many tables the recipe has the lowest CRPS, who has it elsewhere, and what paired tests say."""
    compared = _on_complete_tables(rows)
    if not compared.datasets:
        return NO_ROWS
    best = compared.means(METRIC).idxmin(axis=1)
    elsewhere = [f"{name} ({comparison.heading(str(method))})" for name, method in best.items() if method != RECIPE]
    better = worse = total = 0
    for dataset in compared.datasets:
        for method in compared.methods:
            found = None if method == RECIPE else compared.paired(METRIC, method, RECIPE, dataset)
            if found is None:
                continue
            test, _ = found
            total += 1
            better += test.p_value < LEVEL and test.mean > 0
            worse += test.p_value < LEVEL and test.mean < 0
    where = f"; elsewhere another method has it: {', '.join(elsewhere)}" if elsewhere else ""
    lowest = len(best) - len(elsewhere)
    return (
        f"Its mean CRPS is the lowest on {lowest} of these {len(best)} tables{where}. In paired tests on the same "
        f"splits (p < {LEVEL:g}, not adjusted) it is better than another method in {better} of {total} comparisons "
        f"and worse in {worse or 'none'}."
    )


def _on_complete_tables(rows: pd.DataFrame) -> Comparison:
    own = _of_suite(rows)
    return Comparison(own, datasets=Coverage.of(own).complete)


def _of_suite(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["experiment"] == EXTENDED_EXPERIMENT].reset_index(drop=True)
