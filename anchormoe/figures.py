"""Figures from stored rows; matplotlib and scikit-posthocs come with the extra `plots`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from anchormoe import comparison, stats
from anchormoe.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def critical_difference(rows: pd.DataFrame, metric: str) -> Figure:
    """Average ranks over the datasets on one axis; methods that a bar joins are not told apart (Nemenyi, 5%)."""
    try:
        from matplotlib.figure import Figure
        from scikit_posthocs import critical_difference_diagram, posthoc_nemenyi_friedman
    except ImportError as error:
        raise UserError(
            f"figures=on needs the {error.name} package: pip install 'anchormoe[plots]', or figures=off"
        ) from None
    means = comparison.means(rows, metric)
    title, _ = comparison.METRICS[metric]
    if means.shape[1] < 3:
        raise UserError(
            f"a figure of {metric} must have 3 methods with rows on all datasets, received {means.shape[1]}; "
            "run more of experiment=comparison, or figures=off"
        )
    test = stats.rank_test(means)
    figure = Figure(figsize=(9, 1.2 + 0.22 * means.shape[1]), layout="constrained")
    axes = figure.subplots()
    critical_difference_diagram(
        test.average_rank.rename(comparison.METHODS),
        posthoc_nemenyi_friedman(means).rename(index=comparison.METHODS, columns=comparison.METHODS),
        ax=axes,
        label_fmt_left="{label} ({rank:.1f})",
        label_fmt_right="({rank:.1f}) {label}",
        crossbar_props={"color": "black", "linewidth": 2},
        elbow_props={"color": "gray", "linewidth": 0.8},
    )
    axes.set_title(
        f"Average rank by {title}, {len(means)} datasets; critical distance {test.critical_distance:.1f}", fontsize=10
    )
    return figure
