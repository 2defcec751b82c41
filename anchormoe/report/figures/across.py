"""Figures across datasets, from stored rows: ranks, skill, cost, calibration and ingredients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from anchormoe.distributions.scores import METRICS
from anchormoe.errors import UserError
from anchormoe.report import ingredients
from anchormoe.report import statistics as stats
from anchormoe.report.comparison import Comparison, heading
from anchormoe.report.figures.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    MUTED,
    PAPER,
    PURPLE,
    SOFT,
    VERMILLION,
    new_figure,
    short,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def critical_difference(compared: Comparison, metric: str) -> Figure:
    """Draw the average rank of every method, with a bar as long as Nemenyi's critical distance around it.

    Two methods are told apart (5%) if and only if their bars do not overlap; the band marks those that are not told
    from the leader. Small ticks are the ranks on single datasets.
    """
    means = compared.means(metric)
    _require(means, metric, methods=3, datasets=2)
    test = stats.rank_test(means)
    ranks = means.rank(axis=1)
    names = [str(name) for name in test.average_rank.index]
    figure = new_figure(7.6, 1.1 + 0.24 * len(names))
    axes = figure.subplots()
    reach = test.critical_distance / 2
    leader = float(test.average_rank.iloc[0])
    axes.axvspan(leader - reach, leader + reach, color=SOFT)
    for place, name in enumerate(names):
        average = float(test.average_rank[name])
        told_apart = average - leader > test.critical_distance
        color = BLUE if place == 0 else MUTED if told_apart else INK
        axes.plot([average - reach, average + reach], [place, place], color=color, linewidth=2, alpha=0.75)
        axes.plot(ranks[name], np.full(len(ranks), place), "|", color=GREY, markersize=6)
        axes.plot(average, place, "o", color=color, markersize=7, markeredgecolor=PAPER)
    labels = [f"{short(heading(name))}  {test.average_rank[name]:.1f}" for name in names]
    axes.set_yticks(range(len(names)), labels)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(min(0.4, leader - reach), len(names) + 0.6)
    axes.set_xticks(_rank_ticks(len(names)))
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(f"average rank, 1 is best; bars that do not overlap differ (critical distance {2 * reach:.1f})")
    axes.set_title(f"{METRICS[metric].title}, {len(means)} datasets")
    return figure


def _rank_ticks(most: int) -> list[int]:
    return list(range(1, most + 1, 1 if most <= 10 else 3))


def rank_heat_map(compared: Comparison, metric: str) -> Figure:
    """Draw the rank of every method on every dataset, the best on average first."""
    from matplotlib.colors import LinearSegmentedColormap

    means = compared.means(metric)
    _require(means, metric, methods=2)
    ranks = means.rank(axis=1)
    ranks = ranks[ranks.mean().sort_values(kind="stable").index].T
    figure = new_figure(2.6 + 0.52 * ranks.shape[1], 1.2 + 0.25 * len(ranks))
    axes = figure.subplots()
    colors = LinearSegmentedColormap.from_list("ranks", ["#0a4a73", "#4f9cc9", "#cfe3ef", "#f7f7f5"])
    axes.imshow(ranks, cmap=colors, aspect="auto", vmin=1, vmax=len(ranks), interpolation="nearest")
    for line, values in enumerate(ranks.to_numpy().tolist()):
        for column, rank in enumerate(values):
            # These cells keep their colours in a dark page, so the text does too.
            dark = rank <= 1 + 0.4 * (len(ranks) - 1)
            color = "#fffffe" if dark else "#1f2329"
            axes.text(column, line, f"{rank:g}", ha="center", va="center", fontsize=8, color=color)
    axes.set_xticks(range(ranks.shape[1]), [short(str(name), 14) for name in ranks], rotation=30, ha="right")
    labels = [f"{short(heading(str(name)))}  {average:.1f}" for name, average in ranks.mean(axis=1).items()]
    axes.set_yticks(range(len(ranks)), labels)
    axes.grid(False)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.set_title(f"Rank by {METRICS[metric].title}, 1 is best")
    return figure


def families(methods: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the recipes of Anchor-MoE and the baselines; without such a recipe, the first method and all others."""
    ours = [name for name in methods if name.startswith("anchormoe")]
    ours = ours if ours and len(ours) < len(methods) else list(methods[:1])
    return ours, [name for name in methods if name not in ours]


def skill(compared: Comparison) -> Figure:
    """Draw what Anchor-MoE gains over the one baseline with the best average rank, per dataset, in CRPS and NLL."""
    figure = new_figure(8.6, 1.5 + 0.29 * len(compared.datasets))
    panels: Any = figure.subplots(1, 2, sharey=True)
    nll = compared.nll().name
    for axes, metric in zip(panels, ("crps_y", nll), strict=True):
        means = compared.means(metric)
        _require(means, metric, methods=2)
        by_rank = means.rank(axis=1).mean().sort_values(kind="stable").index
        ours, baselines = families([str(name) for name in by_rank])
        baseline = baselines[0]
        place = np.arange(len(means))
        looks = [(BLUE, "o"), (VERMILLION, "s"), (GREEN, "^"), (PURPLE, "D")]
        axes.axvline(0, color=INK, linewidth=0.9)
        best = means[baselines].min(axis=1)
        axes.plot(_gain(metric, best, means[baseline]), place, "|", color=GREY, markersize=11, markeredgewidth=2)
        for name, (color, marker) in zip(ours, looks, strict=False):
            axes.plot(_gain(metric, means[name], means[baseline]), place, marker, color=color, markersize=6.5)
        axes.set_yticks(place, [short(str(name), 16) for name in means.index])
        axes.set_ylim(len(means) - 0.5, -0.5)
        unit = "nats" if metric == nll else "% of its score"
        axes.set_title(f"{METRICS[metric].label}: gain over {short(heading(baseline))}")
        axes.set_xlabel(f"{unit}; to the right is better")
        if metric == nll:
            axes.set_xscale("symlog", linthresh=1, linscale=1.2)
            axes.set_xticks([-3, -1, 0, 1, 3], ["-3", "-1", "0", "1", "3"])
            axes.minorticks_off()
    labelled = [(short(heading(name)), *look) for name, look in zip(ours, looks, strict=False)]
    handles = [axes.plot([], [], marker, color=color, label=name)[0] for name, color, marker in labelled]
    handles.append(axes.plot([], [], "|", color=GREY, markersize=11, markeredgewidth=2, label="best baseline there")[0])
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure


def _gain(metric: str, score: pd.Series, baseline: pd.Series) -> pd.Series:
    return baseline - score if metric.startswith("nll") else 100 * (1 - score / baseline)


def accuracy_and_time(compared: Comparison, metric: str = "crps_y") -> Figure:
    """Draw the average rank of every method against the seconds to fit a split (geometric mean over datasets)."""
    means, seconds = compared.means(metric), compared.means("fit_seconds")
    _require(means, metric, methods=2)
    ranks = means.rank(axis=1).mean().sort_values(kind="stable")
    names = [str(name) for name in ranks.index if name in seconds]
    times = np.exp(np.log(seconds[names].clip(lower=1e-3)).mean())
    figure = new_figure(7.6, 4.4)
    axes = figure.subplots()
    axes.set_xscale("log")
    front = np.inf
    for place, name in enumerate(names):
        leads = times[name] < front
        front = min(front, float(times[name]))
        ours = name.startswith("anchormoe")
        color = VERMILLION if name == "anchormoe" else BLUE if ours or place == 0 else INK if leads else GREY
        axes.plot(times[name], ranks[name], "o" if leads else "s", color=color, markersize=7 if leads else 5)
    low, high = float(times.min()), float(times.max())
    axes.set_xlim(low / 1.6, high * 6)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_ylim(float(ranks.max()) + 0.8, 0.2)
    places = _apart([float(ranks[name]) for name in names], least=0.52 * float(ranks.max()) / 13)
    for name, height in zip(names, places, strict=True):
        # On the left where another mark would stand in the label.
        left = any(
            1 < times[other] / times[name] < 2.2 and abs(ranks[other] - height) < 0.45
            for other in names
            if other != name
        )
        axes.annotate(
            short(heading(name)),
            (float(times[name]), float(ranks[name])),
            (float(times[name]) * (1 / 1.12 if left else 1.12), height),
            fontsize=8,
            ha="right" if left else "left",
            va="center",
            arrowprops={"arrowstyle": "-", "color": GREY, "lw": 0.5, "shrinkA": 0, "shrinkB": 3},
        )
    axes.set_xlabel("seconds to fit one split on one core, geometric mean over datasets")
    axes.set_ylabel(f"average rank by {METRICS[metric].label}")
    axes.set_title("Circles: no method is both better and faster")
    return figure


def _apart(values: Sequence[float], *, least: float) -> list[float]:
    """Move sorted heights of labels so that neighbours are at least this far apart, and all near where they were."""
    groups: list[list[float]] = []  # sums, counts
    for value in values:
        groups.append([value, 1])
        while len(groups) > 1:
            (before, many), (last, few) = groups[-2:]
            if last / few - before / many >= least * (many + few) / 2:
                break
            groups[-2:] = [[before + last, many + few]]
    placed = []
    for total, count in groups:
        middle = total / count
        placed += [middle + least * (number - (count - 1) / 2) for number in range(int(count))]
    return placed


def what_ingredients_buy(rows: pd.DataFrame, metric: str = "nll_y") -> Figure:
    """Draw the score after each step from the published recipe to the cross-fitted one, a panel per dataset."""
    (table,) = [table for table in ingredients.build(rows) if table.key == f"ingredients_{metric}"]
    steps = [column.title for column in table.columns]
    figure = new_figure(9.4, 6.6)
    panels: Any = figure.subplots(3, 3, sharey=True)
    for axes, row in zip(panels.flat, table.rows, strict=False):
        place = np.arange(len(steps))
        mean = np.array([np.nan if cell.mean is None else cell.mean for cell in row.cells])
        se = np.array([cell.deviation or 0 for cell in row.cells])
        axes.plot(mean, place, color=GREY, linewidth=1)
        axes.errorbar(mean, place, xerr=se, fmt="o", color=BLUE, markersize=5, linewidth=1.2)
        axes.set_title(row.dataset)
        axes.set_yticks(place, steps, fontsize=7.5)
        axes.set_ylim(len(steps) - 0.5, -0.5)
        axes.locator_params(axis="x", nbins=4)
    for axes in panels[-1]:
        axes.set_xlabel(f"{METRICS[metric].label}, lower is better")
    return figure


def most_counted(compared: Comparison) -> str:
    """Return the first of the methods that have PIT counts on most datasets; there must be a method."""

    def number(method: str) -> int:
        return sum(compared.pit_counts(method, name) is not None for name in compared.datasets)

    return max(compared.methods, key=number)


def pit_histograms(compared: Comparison, method: str) -> Figure:
    """Draw where the test targets of all splits fall in their predicted distributions, a histogram per dataset.

    Each row counts once, in the first split that tests it; the band holds 90% of a calibrated method's bars.
    """
    import scipy.stats

    found = {name: counts for name in compared.datasets if (counts := compared.pit_counts(method, name)) is not None}
    if not found:
        raise UserError(f"a PIT histogram must have rows with pit_counts_once, received none of {method}; run it again")
    columns = min(3, len(found))
    lines = -(-len(found) // columns)
    figure = new_figure(2.9 * columns, 0.9 + 1.6 * lines)
    panels: Any = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    for axes in panels.flat[len(found) :]:
        axes.set_axis_off()
    for axes, (name, counts) in zip(panels.flat, found.items(), strict=False):
        expected = counts.sum() / len(counts)
        low, high = scipy.stats.binom.ppf([0.05, 0.95], int(counts.sum()), 1 / len(counts)) / expected
        axes.axhspan(low, high, color=SOFT)
        width = 1 / len(counts)
        axes.bar(np.arange(len(counts)) * width, counts / expected, width=0.92 * width, align="edge", color=BLUE)
        axes.axhline(1, color=INK, linewidth=0.8)
        axes.set_title(short(name, 24))
        axes.set_xlim(0, 1)
    figure.supxlabel("probability below the target (PIT)", fontsize=9)
    figure.supylabel("share of targets, 1 is uniform", fontsize=9)
    return figure


def _require(means: pd.DataFrame, metric: str, *, methods: int, datasets: int = 1) -> None:
    if means.shape[1] < methods or len(means) < datasets:
        raise UserError(
            f"this figure of {metric} must have {methods} methods with all splits of {datasets} or more datasets, "
            f"received {means.shape[1]} methods and {len(means)} datasets; run more, for example experiment=comparison"
        )
