"""The four figures of the paper, from the stored arrays of the toy problems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from anchormoe.report.figures.style import (
    BLUE,
    GREY,
    INK,
    MUTED,
    PAPER,
    SOFT,
    VERMILLION,
    new_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Arrays = dict[str, np.ndarray]


def architecture() -> Figure:
    """Draw the model: input, latent plane, gates, experts, mixture, and the anchor that shifts the mean."""
    figure = new_figure(9.2, 3.7)
    axes = figure.subplots()
    axes.set_axis_off()
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 42)
    _box(axes, 7, 14, 11, 9, "features x", "standardised")
    _box(axes, 27, 25, 17, 9, "latent plane z", "linear, 2 dimensions")
    _box(axes, 50, 31, 17, 9, "windows", "how near is expert j?")
    _box(axes, 50, 19, 17, 9, "router", "softmax over experts")
    _box(axes, 70.5, 25, 12, 9, "gates w", "product, top 2")
    _box(axes, 38.5, 5.5, 40, 9, "8 experts", "2 hidden layers each, to a mixture of 3 Normals")
    _box(axes, 90, 14, 17, 11, "mixture p(y | x)", "trained by NLL", color=BLUE)
    _box(axes, 27, 38, 17, 7, "anchor a(x)", "boosted trees", color=VERMILLION)
    _arrow(axes, (12.5, 16), (18.5, 23.5))
    _arrow(axes, (12.5, 12), (18.5, 7))
    _arrow(axes, (35.5, 26), (41.5, 30))
    _arrow(axes, (35.5, 24), (41.5, 20))
    _arrow(axes, (58.5, 31), (64.5, 27))
    _arrow(axes, (58.5, 19), (64.5, 23))
    _arrow(axes, (76.5, 24), (83, 19.5))
    _arrow(axes, (58.5, 6), (83, 8.5))
    _arrow(axes, (7, 18.5), (18.3, 38), color=VERMILLION, dashed=True)
    axes.plot([35.5, 90], [38, 38], color=VERMILLION, linestyle=(0, (4, 2)), linewidth=1.3)
    _arrow(axes, (90, 38), (90, 19.8), color=VERMILLION, dashed=True)
    axes.text(89, 35.4, "added to every mean", ha="right", va="center", fontsize=8, color=VERMILLION)
    axes.text(71, 9.4, "shift Δ, scale σ, weight π", ha="center", va="bottom", fontsize=8, color=MUTED)
    note = "mean calibrated by a line\non held-out rows"
    axes.text(90, 6.8, note, ha="center", va="top", fontsize=8, color=MUTED)
    return figure


def _box(axes: Axes, x: float, y: float, width: float, height: float, title: str, below: str, color: str = INK) -> None:
    from matplotlib.patches import FancyBboxPatch

    corner = (x - width / 2, y - height / 2)
    axes.add_patch(
        FancyBboxPatch(corner, width, height, boxstyle="round,pad=0,rounding_size=1.2", fc=SOFT, ec=color, lw=1.3)
    )
    axes.text(x, y + 1.5, title, ha="center", va="center", fontsize=9, weight="bold")
    axes.text(x, y - 2.1, below, ha="center", va="center", fontsize=7.5, color=MUTED)


def _arrow(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], color: str = INK, dashed: bool = False
) -> None:
    style = {"arrowstyle": "-|>", "color": color, "lw": 1.3, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, start, arrowprops={**style, "linestyle": (0, (4, 2)) if dashed else "-"})


def interval(arrays: Arrays) -> Figure:
    """Draw the one-dimensional toy: points, predicted mean and 95% band."""
    figure = new_figure(8.2, 3.8)
    axes = figure.subplots()
    _band(axes, arrays, arrays["band"])
    axes.set_xlim(-1.2, 1.2)
    axes.set_ylim(-6, 10)
    axes.set_xlabel("x")
    axes.set_ylabel("y")
    axes.legend(loc="upper left")
    return figure


def dynamics(arrays: Arrays) -> Figure:
    """Draw both models at 0, 33, 67 and 100% of their training: without anchor above, with it below."""
    figure = new_figure(10.4, 5.0)
    grid = figure.subplots(2, 4, sharex=True, sharey=True)
    for line, title in enumerate(("without anchor", "with anchor")):
        for column, share in enumerate((0, 33, 67, 100)):
            axes = grid[line, column]
            for height in (0, 0.8, 1.6):
                axes.axhline(height, color=GREY, linewidth=0.5)
            _band(axes, arrays, arrays["band"][line, column], size=3)
            axes.set_title(f"{share}% {title}" if column == 0 else f"{share}%")
            axes.set_xlim(-1.5, 1.5)
            axes.set_ylim(-5.5, 7.5)
        grid[line, 0].set_ylabel("y")
    for axes in grid[1]:
        axes.set_xlabel("x")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def _band(axes: Axes, arrays: Arrays, band: np.ndarray, size: float = 7) -> None:
    mean, low, high = band
    axes.scatter(arrays["x"], arrays["y"], s=size, color=GREY, alpha=0.6, linewidths=0, label="data", rasterized=True)
    axes.fill_between(arrays["grid"], low, high, color=BLUE, alpha=0.16, linewidth=0, label="95% band")
    for edge in (low, high):
        axes.plot(arrays["grid"], edge, color=BLUE, linewidth=0.8, linestyle=":")
    axes.plot(arrays["grid"], mean, color=INK, linewidth=1.5, label="predicted mean")


def gradient_field(arrays: Arrays) -> Figure:
    """Draw the mean score of one Normal for all toy points, and where its gradient leads, without and with anchor."""
    figure = new_figure(9.2, 7.4)
    grid: Any = figure.subplots(2, 2, sharex=True, sharey=True)
    mu, log_sigma = arrays["mu"], arrays["log_sigma"]
    for line, anchor in enumerate(("without anchor", "with anchor")):
        for column, rule in enumerate(("NLL", "CRPS")):
            axes, surface = grid[line, column], arrays["surface"][line, column].astype(float)
            axes.grid(False)
            low, high = surface.min(), np.quantile(surface, 0.9)
            shown = np.minimum(surface, high)  # a few corners would take all the colours
            extent = (mu[0], mu[-1], log_sigma[0], log_sigma[-1])
            # One pixel per grid point, which the viewer smooths: forty filled contours would take a megabyte.
            filled = axes.imshow(
                shown, cmap="viridis", extent=extent, origin="lower", aspect="auto", interpolation="none", vmin=low
            )
            axes.contour(mu, log_sigma, shown, levels=12, colors=INK, linewidths=0.4, alpha=0.5)
            right, up = arrays["arrow"][line, column].astype(float)
            length = np.hypot(right, up)
            factor = np.where(length > 0, np.sqrt(length) / np.maximum(length, 1e-12), 0)
            # Lengths are shown as their square root: the gradients differ by orders of magnitude.
            arrows = axes.quiver(mu[::4], log_sigma[::4], right * factor, up * factor, color="w", scale=28, width=0.004)
            arrows.set_rasterized(True)
            best = np.unravel_index(np.argmin(surface), surface.shape)
            star = {"marker": "*", "color": VERMILLION, "markersize": 13, "markeredgecolor": PAPER, "clip_on": False}
            axes.plot(mu[best[1]], log_sigma[best[0]], zorder=3, **star)
            axes.set_title(f"{rule}, {anchor}")
            axes.set_xlim(mu[0], mu[-1])
            axes.set_ylim(log_sigma[0], log_sigma[-1])
            bar = figure.colorbar(filled, ax=axes, fraction=0.045, pad=0.02)
            bar.ax.tick_params(labelsize=7)
            bar.outline.set_visible(False)  # type: ignore[operator]
            bar.locator = _few_ticks()
            bar.update_ticks()
        grid[line, 0].set_ylabel("log σ")
    for axes in grid[1]:
        axes.set_xlabel("μ (above), shift on top of the anchor (below)")
    return figure


def _few_ticks() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(5)
