"""The figures of one dataset, from the arrays of its stored fits (`report/figure_data.py`) and from stored rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from anchormoe.report import published
from anchormoe.report.cells import StoredRuns
from anchormoe.report.comparison import heading
from anchormoe.report.figures.style import (
    BLUE,
    EXPERTS,
    GREEN,
    GREY,
    INK,
    MUTED,
    SOFT,
    VERMILLION,
    new_figure,
    short,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Arrays = dict[str, np.ndarray]

# method -> colour, line and marker; shape and line tell them apart without colour
LOOKS = {
    "anchormoe_crossfit": (BLUE, "-", "o"),
    "anchormoe": (VERMILLION, "--", "s"),
    "ngboost": (GREEN, "-.", "^"),
}
SIZE = (4.4, 3.3)
LEADING = "anchormoe_crossfit"
_SHOWN_ROWS = 110


def predicted(arrays: Arrays) -> Figure:
    """Draw predicted means with 90% intervals against the targets of some test rows."""
    figure, axes = _single()
    rows = _some_rows(len(arrays["y"]), _SHOWN_ROWS)
    y, mean = arrays["y"][rows], arrays[f"{LEADING}/mean"][rows]
    low, high = arrays[f"{LEADING}/interval"][rows].T
    inside = (low <= y) & (y <= high)
    spread_out = _spread_out(y)
    for chosen, color, marker, label in (
        (inside, BLUE, "o", "target inside"),
        (~inside, VERMILLION, "X", "target outside"),
    ):
        axes.vlines(spread_out[chosen], low[chosen], high[chosen], color=color, linewidth=0.9, alpha=0.55)
        axes.plot(
            spread_out[chosen],
            mean[chosen],
            marker,
            color=color,
            markersize=3.8,
            label=f"{label} ({chosen.mean():.0%})",
        )
    ends = [min(y.min(), low.min()), max(y.max(), high.max())]
    axes.plot(ends, ends, color=MUTED, linewidth=0.8)
    axes.set_xlabel(f"target ({arrays['target_name']})")
    axes.set_ylabel("predicted mean, 90% interval")
    axes.legend(loc="upper left", handletextpad=0.2)
    return figure


def pit(counts: np.ndarray) -> Figure:
    """Draw how often targets fall into each part of their predicted distribution; all bars at 1 is calibrated.

    The band would hold 90% of a calibrated method's bars if all splits had different rows.
    """
    import scipy.stats

    figure, axes = _single()
    expected = counts.sum() / len(counts)
    low, high = scipy.stats.binom.ppf([0.05, 0.95], int(counts.sum()), 1 / len(counts)) / expected
    axes.axhspan(low, high, color=SOFT, label="90% of bars, if calibrated")
    width = 1 / len(counts)
    axes.bar(np.arange(len(counts)) * width, counts / expected, width=0.92 * width, align="edge", color=BLUE)
    axes.axhline(1, color=INK, linewidth=0.8)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, max(2.0, 1.25 * float((counts / expected).max())))
    axes.set_xlabel("probability below the target (PIT)")
    axes.set_ylabel("share of targets, 1 is uniform")
    axes.legend(loc="upper left", title=f"{counts.sum()} test targets", title_fontsize=8)
    return figure


def reliability(arrays: Arrays) -> Figure:
    """Draw the share of targets inside central intervals against the share these promise."""
    figure, axes = _single()
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.8)
    for method, (color, line, _) in LOOKS.items():
        axes.plot(arrays["levels"], _observed(arrays, method), line, color=color, label=heading(method))
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_xlabel("nominal coverage")
    axes.set_ylabel("observed coverage")
    axes.legend(loc="upper left")
    axes.text(0.98, 0.05, "below the line: too narrow", ha="right", fontsize=8, color=MUTED)
    return figure


def width(arrays: Arrays) -> Figure:
    """Draw observed coverage against the mean width of central intervals: further up and left is better."""
    figure, axes = _single()
    spread = float(arrays["y"].std())
    marked = [int(np.argmin(np.abs(arrays["levels"] - level))) for level in (0.5, 0.8, 0.9, 0.95)]
    for method, (color, line, marker) in LOOKS.items():
        across = arrays[f"{method}/widths"].mean(0) / spread
        observed = _observed(arrays, method)
        axes.plot(across, observed, line, color=color, label=heading(method))
        axes.plot(across[marked], observed[marked], marker, color=color, markersize=4.5)
    axes.set_ylim(0, 1.02)
    axes.set_xlim(left=0)
    axes.set_xlabel("mean width of the interval / SD of the target")
    axes.set_ylabel("observed coverage")
    axes.legend(loc="lower right", title="marks: nominal 50, 80, 90, 95%", title_fontsize=8)
    return figure


def splits(runs: StoredRuns, dataset: str) -> Figure | None:
    """Draw the NLL of every split, published beside ours, in the order of the published values."""
    run = runs.choose(dataset=dataset, ablation="full", protocol="published")
    if run is None or dataset not in published.DATASETS:
        return None
    figure, axes = _single()
    theirs = np.array(published.notebook("full", dataset).nll_z)[np.array(run.splits) - 1]
    ours = run.values("nll_z")
    order = np.argsort(theirs)
    place = np.arange(1, len(order) + 1)
    axes.vlines(place, theirs[order], ours[order], color=MUTED, linewidth=1)
    axes.plot(place, theirs[order], "s", color=INK, markersize=6, fillstyle="none", label="published")
    axes.plot(place, ours[order], "o", color=BLUE, markersize=3.6, label="ours")
    axes.set_xticks(place, [str(run.splits[position]) for position in order], fontsize=7)
    axes.set_xlabel("split, by its published value")
    axes.set_ylabel("NLL of the z-scored target")
    axes.legend(loc="lower right")
    axes.grid(axis="x", visible=False)
    return figure


def router(arrays: Arrays) -> Figure:
    """Draw the latent plane of the paper's network: the leading expert everywhere, its window, and the test rows."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Ellipse

    figure, axes = _single()
    first, second = arrays["router/first_axis"], arrays["router/second_axis"]
    regions = arrays["router/regions"]
    extent = (float(first[0]), float(first[-1]), float(second[0]), float(second[-1]))
    axes.imshow(
        regions,
        cmap=ListedColormap(EXPERTS),
        vmin=-0.5,
        vmax=len(EXPERTS) - 0.5,
        extent=extent,
        origin="lower",
        aspect="auto",
        alpha=0.4,
        interpolation="nearest",
    )
    rows = _some_rows(len(arrays["router/z"]), 250)
    axes.plot(*arrays["router/z"][rows].T, ".", color=INK, markersize=3, alpha=0.7, label="test rows")
    for expert, (center, scale) in enumerate(zip(arrays["router/centers"], arrays["router/scales"], strict=True)):
        axes.add_patch(Ellipse(center, 2 * scale[0], 2 * scale[1], fill=False, ec=INK, lw=0.7, alpha=0.6))
        inside = extent[0] < center[0] < extent[1] and extent[2] < center[1] < extent[3]
        if inside:
            box = {"boxstyle": "circle,pad=0.2", "fc": EXPERTS[expert], "ec": INK, "lw": 0.6}
            # On these colours the text is dark in either theme, so it is no colour of the theme.
            number = str(expert + 1)
            axes.text(center[0], center[1], number, ha="center", va="center", fontsize=7.5, color="#000001", bbox=box)
    axes.set_xlim(*extent[:2])
    axes.set_ylim(*extent[2:])
    axes.grid(False)
    axes.set_xlabel("z₁")
    axes.set_ylabel("z₂")
    used = len(np.unique(arrays["router/expert"]))
    axes.set_title(f"{used} of {len(arrays['router/centers'])} experts lead on test rows", weight="normal")
    return figure


def training(arrays: Arrays) -> Figure:
    """Draw the curves of phase 1 of the paper's recipe, and the epoch it selects."""
    figure, axes = _single()
    objective, validation = arrays["training/objective"], arrays["training/validation"]
    epochs, selected = np.arange(1, len(objective) + 1), int(arrays["training/epoch"])
    axes.plot(epochs, objective, "--", color=MUTED, label="objective, training rows")
    axes.plot(epochs, validation, color=VERMILLION, label="NLL, validation rows")
    axes.plot(selected, validation[selected - 1], "o", color=INK, markersize=6, label=f"selected: epoch {selected}")
    # Where the validation loss runs away later, its best part is what matters.
    together = np.concatenate([objective, validation])
    low, start = float(together.min()), float(max(objective[0], validation[0]))
    axes.set_ylim(low - 0.08 * (start - low), start + 0.45 * (start - low))
    axes.set_xscale("log")
    axes.set_xlim(1, len(epochs))
    axes.set_xticks([1, 3, 10, 30, 100, 300], ["1", "3", "10", "30", "100", "300"])
    axes.minorticks_off()
    axes.set_xlabel("epoch of phase 1")
    axes.set_ylabel("z-scored target")
    axes.legend(loc="upper left")
    return figure


def calibration(arrays: Arrays) -> Figure:
    """Draw the targets of the calibration rows against their predicted means, and the line fitted to them."""
    figure, axes = _single()
    mean, y = arrays["calibration/mean"], arrays["calibration/y"]
    slope, intercept = (float(value) for value in arrays["calibration/line"])
    rows = _some_rows(len(y), 300)
    axes.plot(mean[rows], y[rows], "o", color=GREY, markersize=3, alpha=0.7, label="rows held out to calibrate")
    ends = np.array([mean.min(), mean.max()])
    axes.plot(ends, ends, color=MUTED, linewidth=0.8, label="no change")
    sign = "+" if intercept >= 0 else "−"
    label = f"{slope:.3f} · mean {sign} {abs(intercept):.3g}"
    axes.plot(ends, slope * ends + intercept, "--", color=VERMILLION, label=label)
    axes.set_xlabel("predicted mean")
    axes.set_ylabel(f"target ({arrays['target_name']})")
    axes.legend(loc="upper left")
    return figure


def densities(arrays: Arrays) -> Figure:
    """Draw the predicted densities of an easy, a hard and a wrong test row, with their targets."""
    figure = new_figure(*SIZE)
    panels: Any = figure.subplots(1, 3)
    for position, (axes, title) in enumerate(zip(panels, ("easy", "hard", "wrong"), strict=True)):
        grid, target = arrays["density_grid"][position], float(arrays["density_y"][position])
        highest = 0.0
        for method in (LEADING, "anchormoe"):
            color, line, _ = LOOKS[method]
            density = arrays[f"{method}/density"][position]
            axes.plot(grid, density, line, color=color, linewidth=1.3, label=heading(method))
            highest = max(highest, float(density.max()))
        axes.axvline(target, color=INK, linewidth=1, linestyle=":", label="target")
        axes.set_title(title)
        axes.set_yticks([])
        axes.set_ylim(0, 1.08 * highest)
        axes.spines["left"].set_visible(False)
        axes.locator_params(axis="x", nbins=3)
        axes.tick_params(labelsize=7)
    panels[1].set_xlabel(f"{arrays['target_name']}")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=7, columnspacing=1)
    return figure


def _single() -> tuple[Figure, Axes]:
    figure = new_figure(*SIZE)
    return figure, figure.subplots()


def _some_rows(count: int, most: int) -> np.ndarray:
    """Return all rows, or a random choice of them that is always the same."""
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng(1).choice(count, most, replace=False))


def _spread_out(y: np.ndarray) -> np.ndarray:
    """Move targets that are whole grades a little to the side, where they would hide each other."""
    grades = np.unique(y)
    if len(grades) > 20 or len(grades) < 2:
        return y
    return y + np.random.default_rng(1).uniform(-0.3, 0.3, len(y)) * np.diff(grades).min()


def _observed(arrays: Arrays, method: str) -> np.ndarray:
    """Return the share of targets inside central intervals of every nominal level."""
    from_middle = 2 * np.abs(arrays[f"{method}/pit"].astype(float) - 0.5)
    return np.array([float((from_middle <= level).mean()) for level in arrays["levels"]])


def nll_by_split(values: Mapping[str, Sequence[float]], title: str) -> Figure:
    """Draw the values of every split, a column of dots per method, the best mean first."""
    figure, axes = _single()
    order = sorted(values, key=lambda method: float(np.mean(values[method])))
    for place, method in enumerate(order):
        color = BLUE if place == 0 else GREY
        axes.plot(values[method], np.full(len(values[method]), place), "o", color=color, markersize=3.5, alpha=0.6)
        axes.plot(np.mean(values[method]), place, "|", color=INK, markersize=11, markeredgewidth=1.8)
    axes.set_yticks(range(len(order)), [short(heading(method), 24) for method in order])
    axes.set_ylim(len(order) - 0.5, -0.5)
    axes.set_xlabel(f"{title}: splits, and their mean")
    return figure
