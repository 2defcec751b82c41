"""The figures of the theory's claims about densities: the generalisation gap, the link of NLL and L2, K on tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from anchormoe.report.figures.style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, SKY, VERMILLION, new_figure
from anchormoe.report.theory import densities
from anchormoe.report.theory.names import FACTORS
from anchormoe.report.theory.rates import chosen

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKS = (("o", BLUE), ("s", VERMILLION), ("D", GREEN), ("^", ORANGE), ("v", PURPLE), ("P", SKY))
WIDTH = 8.4  # inches


def gap(rows: pd.DataFrame) -> Figure:
    """Draw test CRPS minus training CRPS against every size, beside the shape of the bound."""
    figure = new_figure(WIDTH, 4.6)
    constant, _ = densities.bound_constant(rows)
    panels = figure.subplots(2, 3, sharey=True)
    for axes, (varied, name) in zip(panels.flat, FACTORS.items(), strict=True):
        curve = densities.gap_curve(rows, "network", varied)
        if curve is None:
            continue
        low, high = np.quantile(curve.bootstrapped(), [0.025, 0.975], axis=0)
        found = chosen(rows, study="gap", object="network", varied=varied).sort_values("value")
        axes.plot(curve.x, constant * densities.bound_shape(found), ":", color=INK)
        axes.errorbar(curve.x, curve.mean, [curve.mean - low, high - curve.mean], fmt="o-", color=BLUE, markersize=4)
        if varied == "num_rows":
            control = densities.gap_curve(rows, "memoriser", varied)
            if control is not None:
                axes.plot(control.x, control.mean, "x--", color=GREY, label="control: memoriser")
                axes.legend()
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        title = {"router_dim": "router dimension (P)", "top_k": "k, at K = 16"}.get(varied, name)
        axes.set_xlabel(f"{title}: slope {curve.slope().text}", fontsize=8)
        axes.set_xticks(curve.x, [f"{value:g}" for value in curve.x])
    for axes in panels[:, 0]:
        axes.set_ylabel("CRPS gap")
    return figure


def link(rows: pd.DataFrame) -> Figure:
    """Draw the excess NLL of every fit against the error of its mean, and over the bound of the lemma."""
    figure = new_figure(WIDTH, 3.4)
    left, right = figure.subplots(1, 2)
    kinds = {
        "known_scale": "Gaussian, true scale",
        "gaussian": "Gaussian, estimated scale",
        "network": "trained network",
        "overconfident": "control: a tenth of the scale",
    }
    marks = (*MARKS[:3], ("x", GREY))
    for place, ((kind, name), (marker, colour)) in enumerate(zip(kinds.items(), marks, strict=True)):
        error, excess = (densities.of_fits(rows, kind, column) for column in ("mean_error", "excess_nll"))
        left.plot(error, excess, marker, color=colour, markersize=3, label=name, alpha=0.7)
        ratios = densities.link_ratios(rows, kind)
        spread = np.linspace(-0.25, 0.25, len(ratios))
        right.plot(ratios, place + spread, marker, color=colour, markersize=3, alpha=0.7)
    ends = np.array([densities.of_fits(rows, "known_scale", "mean_error").min(), 1.0])
    for scale in (0.25, 0.75):
        left.plot(ends, ends / (2 * scale**2), ":", color=INK, linewidth=1)
    left.set(xscale="log", yscale="log", xlabel="mean squared error of the mean", ylabel="excess NLL")
    left.legend()
    right.axvline(1.0, color=INK, linewidth=1.2)
    right.set(xscale="log", xlabel="excess NLL / (c₁ MSE + c₂ scale error)")
    right.set_yticks(range(len(kinds)), list(kinds.values()))
    right.invert_yaxis()
    right.grid(axis="y", visible=False)
    return figure


def experts(rows: pd.DataFrame) -> Figure:
    """Draw the NLL of every choice of K, minus that of K = 8, on every table."""
    compared = densities.nll_by_rule(rows)
    shown = {"theory": "rule, d = features", "theory_latent": "rule, latent plane", "validation": "held-out rows"}
    tables = list(dict.fromkeys(compared["table"]))
    figure = new_figure(WIDTH, 0.9 + 0.34 * len(tables))
    axes = figure.subplots()
    for offset, ((rule, name), (marker, colour)) in enumerate(zip(shown.items(), MARKS, strict=False)):
        part = compared[compared["rule"] == rule].set_index("table")
        x = [float(np.mean(part.loc[table, "difference"])) for table in tables if table in part.index]
        y = [place + 0.25 * (offset - 1) for place, table in enumerate(tables) if table in part.index]
        axes.plot(x, y, marker, color=colour, label=name, markersize=5)
        for table, value, height in zip([t for t in tables if t in part.index], x, y, strict=True):
            number = part.loc[table, "experts"]
            if rule != "validation":
                axes.annotate(f"{int(number)}", (value, height), (5, -2.5), textcoords="offset points", fontsize=6.5)
    axes.axvline(0.0, color=INK, linewidth=1)
    axes.set_yticks(range(len(tables)), tables)
    axes.invert_yaxis()
    axes.set_xlabel("test NLL minus that of K = 8 (nats)")
    axes.set_xscale("symlog", linthresh=0.1)
    axes.legend(loc="best")
    return figure
