"""Figures from stored rows. The libraries that draw them come with the extra `plots`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from anchormoe.distributions.scores import METRICS
from anchormoe.errors import UserError
from anchormoe.report import comparison, published
from anchormoe.report import statistics as stats

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def require_libraries() -> None:
    """Fail with one clear line if matplotlib or scikit-posthocs is not installed."""
    try:
        import matplotlib  # noqa: F401
        import scikit_posthocs  # noqa: F401
    except ImportError as error:
        raise UserError(
            f"figures=on needs the {error.name} package: pip install 'anchormoe[plots]', or figures=off"
        ) from None


def critical_difference(rows: pd.DataFrame, metric: str) -> Figure:
    """Draw average ranks over the datasets on one axis; a bar joins methods that are not told apart (Nemenyi, 5%)."""
    from matplotlib.figure import Figure
    from scikit_posthocs import critical_difference_diagram, posthoc_nemenyi_friedman

    means = comparison.means(rows, metric)
    if means.shape[1] < 3:
        raise UserError(
            f"a figure of {metric} must have 3 methods with all 20 splits of all datasets, received {means.shape[1]}; "
            "run more of experiment=comparison, or figures=off"
        )
    test = stats.rank_test(means)
    figure = Figure(figsize=(9, 1.2 + 0.22 * means.shape[1]), layout="constrained")
    axes = figure.subplots()
    critical_difference_diagram(
        test.average_rank.rename(comparison.heading),
        posthoc_nemenyi_friedman(means).rename(index=comparison.heading, columns=comparison.heading),
        ax=axes,
        label_fmt_left="{label} ({rank:.1f})",
        label_fmt_right="({rank:.1f}) {label}",
        crossbar_props={"color": "black", "linewidth": 2},
        elbow_props={"color": "gray", "linewidth": 0.8},
    )
    title = f"Average rank by {METRICS[metric].title}, {len(means)} datasets"
    axes.set_title(f"{title}; critical distance {test.critical_distance:.1f}", fontsize=10)
    return figure


def pit_histograms(rows: pd.DataFrame, method: str) -> Figure:
    """Draw where the test targets of all splits fall in their predicted distributions, a histogram per dataset.

    A calibrated method has flat histograms. A hump means that its distributions are too wide, a bowl that they are too
    narrow, a slope that they are biased. The band would hold 90% of a calibrated method's bars if all splits had
    different rows.
    """
    import scipy.stats
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.5), layout="constrained")
    grid = figure.subplots(3, 3, sharex=True, sharey=True)
    for axes, dataset in zip(grid.flat, published.DATASETS, strict=True):
        counts = comparison.pit_counts(rows, method, dataset)
        axes.set_title(dataset, fontsize=10)
        if counts is None:
            continue
        expected = counts.sum() / len(counts)
        low, high = scipy.stats.binom.ppf([0.05, 0.95], int(counts.sum()), 1 / len(counts)) / expected
        axes.axhspan(low, high, color="lightgray")
        axes.bar(
            np.arange(len(counts)) / len(counts), counts / expected, width=1 / len(counts), align="edge", alpha=0.8
        )
        axes.axhline(1, color="black", linewidth=0.8)
    figure.supxlabel("probability below the target (PIT)", fontsize=10)
    figure.supylabel("share, 1 is uniform", fontsize=10)
    figure.suptitle(f"{comparison.heading(method)}: test targets in their predicted distributions", fontsize=10)
    return figure
