"""The claims about rates: lemmas, main bound, manifolds, sparsity, changes of variables, and the trained network."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from anchormoe.report.theory.claims import Claim, Part
from anchormoe.report.theory.names import OBJECTS, RULES, number
from anchormoe.report.theory.slopes import Curve, Estimate, interval

FIRST_ROWS = 2**10  # slopes begin above the numbers of rows that the constant of K was fitted at


_CONTROLLED = {False: "truncated_spline", True: "linear_experts"}  # a > 1 -> object that has controls


def rate(smoothness: float, dimension: float) -> float:
    """Return the exponent of N in the paper's rate: -2 a / (2 a + d)."""
    return -2 * smoothness / (2 * smoothness + dimension)


def chosen(rows: pd.DataFrame, **labels: object) -> pd.DataFrame:
    """Return the rows with these labels; a column that does not exist holds nothing."""
    kept = np.ones(len(rows), dtype=bool)
    for name, value in labels.items():
        kept &= (rows[name] == value).to_numpy() if name in rows else False
    return rows[kept]


def risk_curve(rows: pd.DataFrame, **labels: object) -> Curve | None:
    """Return a learning curve of at least two numbers of rows that slopes are taken from, or None."""
    found = chosen(rows, **labels)
    curve = Curve.of_rows(found, "num_rows", "risk") if len(found) else None
    return curve if curve is not None and len(curve.from_(FIRST_ROWS).x) > 1 else None


def _part(rows: pd.DataFrame, label: str, predicted: float, **labels: object) -> Iterator[Part]:
    curve = risk_curve(rows, **labels)
    if curve is not None:
        yield Part(label, predicted, curve.from_(FIRST_ROWS).slope())


def _values(rows: pd.DataFrame, name: str) -> list[float]:
    return sorted(rows[name].dropna().unique().tolist()) if name in rows else []


def lemma_claims(rows: pd.DataFrame) -> Iterator[Claim]:
    """Judge the two terms of the bound: interpolation error K^(-2 a / d), estimation error K / N."""
    rows = chosen(rows, study="lemmas")
    dimensions = [int(value) for value in _values(rows, "dimension")]
    smoothnesses = _values(rows, "smoothness")

    def parts(label: str, predicted: float, **labels: object) -> Iterator[Part]:
        for dimension in dimensions:
            found = chosen(rows, dimension=dimension, **labels)
            if len(found) > 1:
                measured = Curve.of_rows(found, "experts", "risk").slope()
                yield Part(f"{label}d = {dimension}", predicted / dimension if predicted < 0 else predicted, measured)

    for smoothness in smoothnesses:
        # The control is a function of another smoothness, rougher if there is one.
        others = [value for value in smoothnesses if value < smoothness][-1:] or smoothnesses[1:2]
        for kind in ("truncated_spline", "bump", "spline"):
            labels = {"object": kind, "rule": "interpolation"}
            controls = [
                part
                for other in others
                for part in parts(f"a = {number(other)}, ", -2 * smoothness, **labels, smoothness=other)
            ]
            found = [*parts("", -2 * smoothness, **labels, smoothness=smoothness)]
            if found:
                claim = f"Interpolation lemma, a = {number(smoothness)}: error ~ K^(−2a/d)"
                yield Claim("lemmas", claim, OBJECTS[kind], found, controls)
    for kind in ("truncated_spline", "linear_experts"):
        # The control is the other term, which falls with K.
        found = [*parts("", 1.0, object=kind, rule="estimation")]
        controls = [*parts("interpolation, ", 1.0, object="truncated_spline", rule="interpolation", smoothness=1.0)]
        if found:
            claim = "Estimation lemma: error ~ K/N, slope in K"
            yield Claim("lemmas", claim, OBJECTS[kind], found, controls)


def main_claims(rows: pd.DataFrame) -> Iterator[Claim]:
    """Judge the main bound for every object; the controls hold K fixed or let it grow with N."""
    rows = chosen(rows, study="rates")
    for smoothness in _values(rows, "smoothness"):
        for kind in ("truncated_spline", "bump", "spline", "linear_experts", "smoother"):
            parts: list[Part] = []
            controls: list[Part] = []
            references: list[Part] = []
            # Objects without controls of their own have those of another one.
            own = len(chosen(rows, object=kind, smoothness=smoothness, rule="fixed")) > 0
            controlled = kind if own else _CONTROLLED[smoothness > 1]
            for dimension in map(int, _values(rows, "dimension")):
                labels: dict[str, object] = {"smoothness": smoothness, "dimension": dimension}
                predicted, label = rate(smoothness, dimension), f"d = {dimension}"
                rule = "oracle" if kind == "smoother" else "theory"
                parts += _part(rows, label, predicted, object=kind, rule=rule, **labels)
                references += _part(rows, label, predicted, object="smoother", rule="oracle", **labels)
                for control in ("fixed", "proportional"):
                    controls += _part(rows, f"{control}, {label}", predicted, object=controlled, rule=control, **labels)
            if parts:
                claim = f"Main bound, a = {number(smoothness)}: risk ~ N^(−2a/(2a+d))"
                if kind == "smoother":
                    claim = f"Reference that must reach the rate, a = {number(smoothness)}"
                yield Claim("rates", claim, OBJECTS[kind], parts, controls, references)


def manifold_claims(rows: pd.DataFrame) -> Iterator[Claim]:
    """Judge the rate on a curve and on a sphere in spaces of more dimensions."""
    rows = chosen(rows, study="manifold")
    for name, intrinsic in (("curve", 1), ("sphere", 2)):
        for smoothness in _values(rows, "smoothness"):
            predicted = rate(smoothness, intrinsic)
            parts: list[Part] = []
            controls: list[Part] = []
            for dimension in map(int, _values(chosen(rows, problem=name), "dimension")):
                labels = {"problem": name, "smoothness": smoothness, "dimension": dimension}
                parts += _part(rows, f"d = {dimension}", predicted, rule="theory", **labels)
                for rule, label in (("ambient", "K by the ambient d"), ("fixed", "K fixed")):
                    controls += _part(rows, f"{label}, d = {dimension}", predicted, rule=rule, **labels)
            if parts:
                claim = f"Manifold rate, {name} (d₀ = {intrinsic}), a = {number(smoothness)}: N^(−2a/(2a+d₀))"
                yield Claim("manifold", claim, OBJECTS["scattered"], parts, controls)


def sparse_claims(rows: pd.DataFrame) -> Iterator[Claim]:
    """Judge the rate with s relevant coordinates that are known; the control has a lattice on all coordinates."""
    known = chosen(rows, study="sparse")
    for relevant in map(int, _values(known, "relevant")):
        parts: list[Part] = []
        controls: list[Part] = []
        for dimension in map(int, _values(known, "dimension")):
            labels = {"relevant": relevant, "dimension": dimension}
            predicted = rate(1.0, relevant)
            parts += _part(known, f"d = {dimension}", predicted, rule="theory", **labels)
            controls += _part(known, f"lattice on all {dimension}", predicted, rule="ambient", **labels)
        if parts:
            claim = f"Sparse rate, known S, s = {relevant}, a = 1: N^(−2a/(2a+s))"
            yield Claim("sparse", claim, OBJECTS["truncated_spline"], parts, controls)


def selection_claims(rows: pd.DataFrame) -> Iterator[Claim]:
    """Judge the price of not knowing the relevant coordinates; the control uses coordinates that do not matter."""
    unknown = chosen(rows, study="selection")
    for relevant in map(int, _values(unknown, "relevant")):
        parts: list[Part] = []
        controls: list[Part] = []
        for dimension in map(int, _values(unknown, "dimension")):
            found = chosen(unknown, relevant=relevant, dimension=dimension)
            if len(found) < 2:
                continue
            for place, label, column in ((parts, "", "risk"), (controls, "wrong coordinates, ", "risk_irrelevant")):
                price = Curve.of_rows(found, "num_rows", column, minus="risk_known")
                place.append(Part(f"{label}d = {dimension}", 1.0, _growth(price), at_most=True))
        if parts:
            claim = f"Unknown S, s = {relevant}: price ≲ (s log d)/N, N·price at large N over that at small N"
            yield Claim("sparse", claim, "B-splines (A2), S by least squares", parts, controls)


def _growth(price: Curve) -> Estimate:
    """Return N times the price at the larger half of the numbers of rows, over the same at the smaller half."""
    half = len(price.x) // 2

    def ratio(means: np.ndarray) -> np.ndarray:
        scaled = means * price.x
        return scaled[:, half:].mean(axis=1) / scaled[:, :half].mean(axis=1)

    draws = price.bootstrapped()
    paid = draws[:, :half].sum(axis=1) > 0  # else the right coordinates were always found
    return Estimate(float(ratio(price.mean[None, :])[0]), *interval(ratio(draws[paid])))


def change_claims(rows: pd.DataFrame) -> Iterator[Claim]:
    """Judge whether a bi-Lipschitz change of variables leaves the rate as it is."""
    rows = chosen(rows, study="change_of_variables")
    for smoothness in _values(rows, "smoothness"):
        parts: list[Part] = []
        controls: list[Part] = []
        for dimension in map(int, _values(rows, "dimension")):
            labels = {"smoothness": smoothness, "dimension": dimension, "rule": "theory"}
            predicted = rate(smoothness, dimension)
            parts += _part(rows, f"d = {dimension}", predicted, problem="bi_lipschitz", **labels)
            largest = max(_values(rows, "smoothness"))
            if dimension == 1:
                rough = {**labels, "smoothness": largest, "problem": "rough"}
                # A map of order 1/2 leaves g(T(x)) of order a / 2, whatever the K rule takes a to be.
                controls += _part(rows, "T of order 1/2", rate(largest, 1), **rough)
        if parts:
            claim = f"Bi-Lipschitz change of variables, a = {number(smoothness)}: same rate"
            yield Claim("change_of_variables", claim, OBJECTS["truncated_spline"], parts, controls)


def trained_claims(rows: pd.DataFrame) -> Iterator[Claim]:
    """Judge arm 2: the rate of the trained network's mean, with K by the rule; K = 8 is the control.

    The theory says that a K which does not grow misses the rate. Where K = 8 does as well, the rule explains nothing.
    """
    rows = chosen(rows, study="trained")

    def parts(kind: str, rule: str, label: str = "") -> Iterator[Part]:
        for smoothness in _values(rows, "smoothness"):
            for dimension in map(int, _values(rows, "dimension")):
                found = chosen(rows, object=kind, rule=rule, smoothness=smoothness, dimension=dimension)
                if len(found) > 1:
                    measured = Curve.of_rows(found, "num_rows", "risk").slope()
                    named = f"{label}a = {number(smoothness)}, d = {dimension}"
                    yield Part(named, rate(smoothness, dimension), measured)

    controls = [*parts("network", "eight", "K = 8, ")]
    for kind, rule in (("network", "theory"), ("network", "eight"), ("anchored_network", "eight")):
        found = [*parts(kind, rule)]
        if found:
            named = f"{OBJECTS[kind]}, {RULES[rule]}"
            yield Claim("trained", "Main bound for the trained model", named, found, controls)
