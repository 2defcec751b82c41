"""Figures of the published numbers: which of them reproduce, and what their units hide."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from anchormoe.report import published
from anchormoe.report.check import EXCEPTION, CheckReport
from anchormoe.report.figures.style import BLUE, GREEN, INK, MUTED, ORANGE, PURPLE, SOFT, VERMILLION, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ABLATION_LOOKS = {
    "full": ("o", BLUE, "full"),
    "no_anchor": ("s", VERMILLION, "no anchor"),
    "no_router": ("^", GREEN, "no router"),
    "no_cal": ("D", PURPLE, "no calibration"),
}


def reproduction(report: CheckReport) -> Figure:
    """Draw how far every published cell is from ours, in published standard errors."""
    figure = new_figure(4.6, 3.6)
    axes = figure.subplots()
    axes.axvspan(-1, 1, color=SOFT)
    axes.axvline(0, color=INK, linewidth=0.9)
    datasets = list(dict.fromkeys(cell.dataset for cell in report.cells))
    reach = 3.0
    for cell in report.cells:
        if cell.judgement is None:
            continue
        marker, color, _ = _ABLATION_LOOKS[cell.ablation]
        offset = 0.09 * (list(_ABLATION_LOOKS).index(cell.ablation) * 2 - 3) + (0.03 if cell.metric == "rmse" else 0)
        far = float(np.clip(cell.judgement.in_ses, -reach, reach))
        unfilled = cell.verdict == EXCEPTION
        axes.plot(
            far,
            datasets.index(cell.dataset) + offset,
            "x" if unfilled else marker,
            color=MUTED if unfilled else color,
            markersize=5,
            alpha=0.9,
        )
    axes.set_yticks(range(len(datasets)), datasets)
    axes.set_ylim(len(datasets) - 0.5, -0.5)
    axes.set_xlim(-reach - 0.2, reach + 0.2)
    axes.set_xlabel("ours − published, in published standard errors")
    handles = [
        axes.plot([], [], marker, color=color, markersize=5, label=label)[0]
        for marker, color, label in _ABLATION_LOOKS.values()
    ]
    handles.append(axes.plot([], [], "x", color=MUTED, markersize=5, label="other rows, not judged")[0])
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=7, columnspacing=1, handletextpad=0.2)
    return figure


def units() -> Figure:
    """Draw the published NLL of Anchor-MoE minus NGBoost's, as the paper prints both and in one unit."""
    figure = new_figure(4.6, 3.6)
    axes = figure.subplots()
    axes.axvline(0, color=INK, linewidth=0.9)
    for place, (dataset, (printed, converted)) in enumerate(published.unit_differences().items()):
        color = MUTED if dataset == "kin8nm" else BLUE
        axes.annotate(
            "", (converted, place), (printed, place), arrowprops={"arrowstyle": "->", "color": color, "lw": 1.1}
        )
        axes.plot(printed, place, "s", color=ORANGE if dataset != "kin8nm" else MUTED, markersize=6)
        axes.plot(converted, place, "o", color=color, markersize=6)
    names = [f"{name} ¹" if name == "kin8nm" else name for name in published.DATASETS]
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel("NLL of Anchor-MoE − NGBoost; left: Anchor-MoE ahead")
    handles = [
        axes.plot([], [], "s", color=ORANGE, markersize=6, label="as printed, units mixed")[0],
        axes.plot([], [], "o", color=BLUE, markersize=6, label="both in original units")[0],
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=7, handletextpad=0.2)
    return figure
