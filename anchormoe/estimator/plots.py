"""Plots of a fitted regressor, with matplotlib (the extra `plots`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.distributions.recalibrated import Recalibrated

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#666666"  # distinguishable to colour-blind readers
NUM_BINS = 20
MOST_INTERVALS = 300  # rows whose intervals are drawn


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("plots need matplotlib: pip install 'anchormoe[plots]'") from None
    return plt.subplots(figsize=(5, 4), layout="constrained")[1]


def reliability(predicted: GaussianMixture | Recalibrated, y: np.ndarray, ax: Axes | None) -> Axes:
    """Plot the share of targets inside central intervals against the share that the intervals promise."""
    ax = _axes(ax)
    # A target lies inside the central interval of a level if and only if its cdf is within half the level of 1/2.
    distance = 2 * np.abs(predicted.cdf(y) - 0.5)
    levels = np.linspace(0, 1, 101)
    observed = np.searchsorted(np.sort(distance), levels, side="right") / len(y)
    error = 1.96 * np.sqrt(levels * (1 - levels) / len(y))
    ax.fill_between(levels, levels - error, levels + error, color=GREY, alpha=0.25, lw=0, label="95% of chance")
    ax.plot([0, 1], [0, 1], color=GREY, lw=1, ls="--")
    ax.plot(levels, observed, color=BLUE, lw=2, label=f"{len(y)} rows")
    ax.set(xlabel="nominal coverage", ylabel="observed coverage", xlim=(0, 1), ylim=(0, 1), title="Reliability")
    ax.legend(frameon=False, loc="upper left")
    return ax


def pit(predicted: GaussianMixture | Recalibrated, y: np.ndarray, ax: Axes | None) -> Axes:
    """Plot the histogram of the cdf at the targets, with the height it has if the distributions are right."""
    ax = _axes(ax)
    ax.hist(predicted.cdf(y), bins=NUM_BINS, range=(0, 1), density=True, color=BLUE, edgecolor="white")
    ax.axhline(1, color=ORANGE, lw=2)
    ax.set(xlabel="cdf at the target", ylabel="density", xlim=(0, 1), title="PIT histogram")
    return ax


def intervals(predicted: GaussianMixture | Recalibrated, y: np.ndarray, coverage: float, ax: Axes | None) -> Axes:
    """Plot predicted means and intervals in the order of the means, and the targets, those outside marked."""
    ax = _axes(ax)
    some = np.random.default_rng(0).permutation(len(y))[:MOST_INTERVALS]
    some = some[np.argsort(predicted.mean[some])]
    shown, target, place = predicted.rows(some), y[some], np.arange(len(some))
    low, high = shown.interval(coverage).T
    inside = (target >= low) & (target <= high)
    ax.vlines(place, low, high, color=BLUE, alpha=0.35, lw=1.5, label=f"{coverage:.0%} interval")
    ax.plot(place, shown.mean, color=BLUE, lw=1.5, label="mean")
    ax.scatter(place[inside], target[inside], s=8, color=GREY, label="target", zorder=3)
    ax.scatter(place[~inside], target[~inside], s=14, color=ORANGE, label="outside", zorder=3)
    ax.set(xlabel="rows in the order of their predicted mean", ylabel="target", title="Intervals and targets")
    ax.legend(frameon=False)
    return ax


def router(fitted: Any, X: np.ndarray, member: int, ax: Axes | None) -> Axes:
    """Plot rows in the first two latent dimensions, coloured by their first expert, and the experts' windows."""
    import torch
    from matplotlib.patches import Ellipse

    from anchormoe.model.latent_rows import latent_codes

    networks = fitted.networks
    if not 0 <= member < len(networks):
        raise ValueError(f"member must be from 0 to {len(networks) - 1}, received {member}")
    network = networks[member]
    latent, x = latent_codes(network, X)
    with torch.no_grad():
        first = network.model.gates(x).chosen_NJ[:, 0].numpy()
    window = network.model.window
    centers = window.center_KD.detach().numpy()
    scales = window.log_scale_KD.detach().clamp(window.log_scale_min, window.log_scale_max).exp().numpy()
    if latent.shape[1] < 2:
        raise ValueError(f"the router's map needs a latent space of two dimensions, received {latent.shape[1]}")
    ax = _axes(ax)
    colours = _colours(len(centers))
    ax.scatter(latent[:, 0], latent[:, 1], s=8, c=[colours[k] for k in first], alpha=0.7)
    for k, (center, scale) in enumerate(zip(centers, scales, strict=True)):
        ellipse = Ellipse(center[:2], 2 * scale[0], 2 * scale[1], fill=False, edgecolor=colours[k], lw=1.5)
        ax.add_patch(ellipse)
        ax.annotate(str(k), center[:2], color=colours[k], ha="center", va="center", weight="bold")
    ax.set(xlabel="latent 1", ylabel="latent 2", title="Rows by their first expert, and windows")
    return ax


def _colours(number: int) -> list[Any]:
    from matplotlib import colormaps

    return [colormaps["tab10"](k % 10) for k in range(number)]
