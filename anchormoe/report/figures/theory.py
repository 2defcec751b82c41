"""The figures of the theory's simulations: learning curves beside slopes with their intervals, one for each theorem."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from anchormoe.report.figures.style import (
    BLUE,
    GREY,
    INK,
    MUTED,
    new_figure,
)
from anchormoe.report.figures.theory_densities import MARKS, WIDTH, experts, gap, link
from anchormoe.report.theory import densities, rates
from anchormoe.report.theory.claims import HOLDS, QUALIFIED, Claim, Part
from anchormoe.report.theory.names import OBJECTS, SHORT, number
from anchormoe.report.theory.rates import chosen, rate
from anchormoe.report.theory.slopes import Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SHORT = {OBJECTS[kind]: SHORT[kind] for kind in OBJECTS}
Lines = Sequence[tuple[str, Curve, bool]]  # name, curve, whether it is a control


def drawings(rows: pd.DataFrame) -> Iterator[tuple[str, str, str, Callable[[], Figure]]]:
    """Yield name, title, caption and drawing of every figure that the rows allow."""
    read = "Left: mean over replicates, dotted: the predicted slope. "
    slopes = (
        "Slopes with 95% bootstrap intervals; the tick is the prediction, grey crosses are controls. Filled: holds, "
        "half-filled: holds with a qualification, hollow: not seen."
    )
    for key, title, draw in (
        ("main_bound", "Main bound, a ≤ 1", _main_bound),
        ("smooth_functions", "Main bound, a = 2", _smooth_functions),
        ("interpolation", "Interpolation and estimation lemmas", _lemmas),
        ("manifold", "Manifold rate", _manifold),
        ("sparse", "Sparse rate", _sparse),
        ("change_of_variables", "Bi-Lipschitz change of variables", _change),
        ("trained", "The trained model", _trained),
    ):
        made = draw(rows)
        if made is not None:
            lines, claims, axis = made
            where = f"{read}Right: {slopes[0].lower()}{slopes[1:]}"
            yield f"theory/{key}", title, where, _later(_curves_and_slopes, lines, claims, axis)
    if len(chosen(rows, study="gap", object="network")):
        caption = (
            "Test CRPS minus training CRPS against one size at a time, with 95% intervals. Dotted: the shape "
            "sqrt((log(Mh)+P+K)/N) with one constant fitted to all points; the bound says that the gap rises no faster."
        )
        yield "theory/gap", "Generalisation gap", caption, _later(gap, rows)
    if len(chosen(rows, study="link")):
        caption = (
            "Every mark is a fit. Left: excess NLL against the mean's squared error; the lines are MSE/(2s²) at the "
            "lowest and the highest true scale s. Right: excess NLL over the lemma's bound, which it must not exceed."
        )
        yield "theory/link", "NLL–L2 link", caption, _later(link, rows)
    if len(densities.nll_by_rule(rows)):
        caption = "Test NLL minus that of K = 8 on the same splits; the number is K. Left of the line is better."
        yield "theory/experts", "K by the rule on nine tables", caption, _later(experts, rows)


def _later(function: Callable[..., Figure], *arguments: object) -> Callable[[], Figure]:
    return lambda: function(*arguments)


# curves, claims, and the name of the x axis with the predicted slope of the curves
Made = tuple[Lines, list[Claim], tuple[str, float]]


def _lines(rows: pd.DataFrame, wanted: Sequence[tuple[str, bool, dict[str, object]]]) -> Lines:
    found = [(name, chosen(rows, **labels), control) for name, control, labels in wanted]
    return [(name, Curve.of_rows(part, "num_rows", "risk"), control) for name, part, control in found if len(part) > 1]


def _main_bound(rows: pd.DataFrame) -> Made | None:
    claims = [claim for claim in rates.main_claims(rows) if "a = 2" not in claim.claim]
    shown: dict[str, object] = {"study": "rates", "smoothness": 1.0, "dimension": 2}
    lines = _lines(
        rows,
        [
            (SHORT["truncated_spline"], False, {**shown, "object": "truncated_spline", "rule": "theory"}),
            (SHORT["bump"], False, {**shown, "object": "bump", "rule": "theory"}),
            ("control: K fixed", True, {**shown, "rule": "fixed"}),
            ("control: K ~ N", True, {**shown, "rule": "proportional"}),
            (SHORT["smoother"], False, {**shown, "object": "smoother"}),
        ],
    )
    return (lines, claims, ("rows N (a = 1, d = 2)", rate(1.0, 2))) if claims and lines else None


def _smooth_functions(rows: pd.DataFrame) -> Made | None:
    claims = [claim for claim in rates.main_claims(rows) if "a = 2" in claim.claim]
    shown: dict[str, object] = {"study": "rates", "smoothness": 2.0, "dimension": 1, "rule": "theory"}
    kinds = ("truncated_spline", "bump", "spline", "linear_experts")
    lines = _lines(rows, [(SHORT[kind], False, {**shown, "object": kind}) for kind in kinds])
    return (lines, claims, ("rows N (a = 2, d = 1)", rate(2.0, 1))) if claims and lines else None


def _lemmas(rows: pd.DataFrame) -> Made | None:
    claims = list(rates.lemma_claims(rows))
    shown: dict[str, object] = {"study": "lemmas", "dimension": 1, "rule": "interpolation", "smoothness": 2.0}
    if not len(chosen(rows, **shown)):
        shown["smoothness"] = 1.0
    parts = [(SHORT[kind], chosen(rows, object=kind, **shown)) for kind in ("truncated_spline", "bump", "spline")]
    lines = [(name, Curve.of_rows(part, "experts", "risk"), False) for name, part in parts if len(part) > 1]
    smoothness = float(str(shown["smoothness"]))
    name = f"windows K (interpolation, a = {number(smoothness)}, d = 1)"
    return (lines, claims, (name, -2 * smoothness)) if claims and lines else None


def _manifold(rows: pd.DataFrame) -> Made | None:
    claims = list(rates.manifold_claims(rows))
    shown: dict[str, object] = {"study": "manifold", "problem": "sphere", "smoothness": 1.0}
    dimensions = sorted(chosen(rows, **shown)["dimension"].unique()) if claims else []
    wanted = [(f"sphere in d = {int(d)}", False, {**shown, "dimension": d, "rule": "theory"}) for d in dimensions]
    wanted += [("control: K by the ambient d", True, {**shown, "rule": "ambient"})]
    wanted += [("control: K fixed", True, {**shown, "rule": "fixed"})]
    lines = _lines(rows, wanted)
    return (lines, claims, ("rows N (sphere, a = 1)", rate(1.0, 2))) if claims and lines else None


def _sparse(rows: pd.DataFrame) -> Made | None:
    claims = [*rates.sparse_claims(rows), *rates.selection_claims(rows)]
    shown: dict[str, object] = {"study": "sparse", "relevant": 1}
    dimensions = sorted(chosen(rows, **shown)["dimension"].unique()) if claims else []
    wanted = [(f"known S, d = {int(d)}", False, {**shown, "dimension": d, "rule": "theory"}) for d in dimensions]
    wanted += [("control: lattice on all 4", True, {**shown, "rule": "ambient"})]
    lines = _lines(rows, wanted)
    return (lines, claims, ("rows N (a = 1, s = 1)", rate(1.0, 1))) if claims and lines else None


def _change(rows: pd.DataFrame) -> Made | None:
    claims = list(rates.change_claims(rows))
    shown: dict[str, object] = {"study": "change_of_variables", "smoothness": 1.0, "dimension": 1}
    names = (("g(x)", "cube", False), ("g(T(x)), T bi-Lipschitz", "bi_lipschitz", False))
    wanted = [(name, control, {**shown, "problem": problem}) for name, problem, control in names]
    wanted += [("control: T of order 1/2", True, {**shown, "problem": "rough"})]
    lines = _lines(rows, wanted)
    return (lines, claims, ("rows N (a = 1, d = 1)", rate(1.0, 1))) if claims and lines else None


def _trained(rows: pd.DataFrame) -> Made | None:
    claims = list(rates.trained_claims(rows))
    shown: dict[str, object] = {"study": "trained", "smoothness": 1.0, "dimension": 1}
    wanted = [
        ("K by the rule, no anchor", False, {**shown, "object": "network", "rule": "theory"}),
        ("K = 8, no anchor", True, {**shown, "object": "network", "rule": "eight"}),
        ("Anchor-MoE, K = 8", False, {**shown, "object": "anchored_network"}),
    ]
    lines = _lines(rows, wanted)
    return (lines, claims, ("rows N (a = 1, d = 1)", rate(1.0, 1))) if claims and lines else None


def _curves_and_slopes(lines: Lines, claims: Sequence[Claim], axis: tuple[str, float]) -> Figure:
    count = sum(len(claim.parts) + 1 for claim in claims)
    figure = new_figure(WIDTH, max(3.2, 0.6 + 0.19 * count))
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.25])
    _draw_curves(left, lines, *axis)
    _draw_slopes(right, claims)
    return figure


def _draw_curves(axes: Axes, lines: Lines, name: str, predicted: float) -> None:
    marks, control_marks = iter(MARKS), iter((("x", "--"), ("+", "-.")))
    for label, curve, control in lines:
        marker, style = next(control_marks) if control else ("", "-")
        marker, colour = (marker, GREY) if control else next(marks)
        axes.plot(curve.x, curve.mean, style, marker=marker, color=colour, label=label, markersize=4, linewidth=1.3)
    first = lines[0][1]
    guide = first.mean[-1] * (first.x / first.x[-1]) ** predicted
    axes.plot(first.x, 0.75 * guide, ":", color=INK, linewidth=1.2, label=f"slope {predicted:.2f}".replace("-", "−"))
    axes.set(xscale="log", yscale="log", xlabel=name, ylabel="squared L2 error")
    axes.set_xscale("log", base=2)
    axes.legend(loc="lower left", fontsize=7)


def _draw_slopes(axes: Axes, claims: Sequence[Claim]) -> None:
    place, ticks, names = 0.0, [], []
    for claim in claims:
        heading = claim.claim.split(":")[0]
        named = f"{heading}: {_SHORT.get(claim.object, claim.object)}"
        across = axes.get_yaxis_transform()
        axes.text(0.0, place, named, fontsize=7, color=MUTED, va="center", transform=across)
        place += 1
        for part in claim.parts:
            _draw_part(axes, place, part)
            ticks.append(place)
            names.append(part.label or "all fits")
            place += 1
        for control in claim.controls:
            matching = [k for k, part in enumerate(claim.parts) if control.label.endswith(part.label) and part.label]
            at = ticks[len(ticks) - len(claim.parts) + matching[0]] if matching else ticks[-1]
            axes.plot(control.measured.value, at, "x", color=GREY, markersize=4)
    axes.set_yticks(ticks, names)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(place - 0.4, -0.8)
    axes.set_xlabel("slope on the log-log scale")
    axes.grid(axis="y", visible=False)


def _draw_part(axes: Axes, place: float, part: Part) -> None:
    face = {HOLDS: "full", QUALIFIED: "left"}.get(part.verdict, "none")
    axes.plot([part.predicted] * 2, [place - 0.38, place + 0.38], color=INK, linewidth=1.6)
    axes.plot([part.measured.low, part.measured.high], [place] * 2, color=BLUE, linewidth=1.6)
    axes.plot(part.measured.value, place, "o", color=BLUE, fillstyle=face, markersize=6, markerfacecoloralt="none")
