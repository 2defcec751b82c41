"""The picture of the score at the data's resolution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.report.figures.style import BLUE, GREY, INK, SOFT, VERMILLION, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_GRADE, _STEP = 6.0, 1.0
_NARROW, _WIDE = 0.05, 0.6


def resolution() -> Figure:
    """Draw two densities of a whole grade with its cell, and both kinds of NLL against the width of the density."""
    figure = new_figure(8.6, 2.9)
    panels: Any = figure.subplots(1, 2)
    _cell(panels[0])
    _scores(panels[1])
    return figure


def _cell(axes: Any) -> None:
    y = np.linspace(_GRADE - 2, _GRADE + 2, 801)
    axes.axvspan(_GRADE - _STEP / 2, _GRADE + _STEP / 2, color=SOFT)
    for scale, color, line in ((_NARROW, VERMILLION, "--"), (_WIDE, BLUE, "-")):
        mixture = GaussianMixture.normal(np.full(len(y), _GRADE), scale)
        cell = np.exp(mixture.log_cell(_GRADE, _STEP)[0]) * _STEP
        label = f"standard deviation {scale:g}: probability {cell:.2f}"
        axes.plot(y, np.exp(mixture.log_prob(y)), line, color=color, label=label)
    axes.axvline(_GRADE, color=INK, linewidth=0.9)
    axes.set_title("The recorded value 6 stands for its cell")
    axes.set_xlabel("target, recorded in steps of 1")
    axes.set_ylabel("density")
    axes.set_ylim(0, 13)
    axes.legend(loc="upper left", fontsize=7.5)


def _scores(axes: Any) -> None:
    scales = np.geomspace(1e-3, 3, 400)
    mixture = GaussianMixture.normal(np.full(len(scales), _GRADE), scales)
    axes.plot(scales, -mixture.log_prob(_GRADE), "--", color=VERMILLION, label="NLL")
    axes.plot(scales, -mixture.log_cell(_GRADE, _STEP), color=BLUE, label="NLL at the data's resolution")
    axes.axhline(np.log(_STEP), color=GREY, linewidth=0.9)
    axes.set_xscale("log")
    axes.set_title("What a narrower density gains")
    axes.set_xlabel("standard deviation of the density")
    axes.set_ylabel("score of the value 6")
    axes.legend(loc="lower right")
