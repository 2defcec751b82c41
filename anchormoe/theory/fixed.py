"""The studies of arm 1: rates, the two lemmas behind them, and the selection of relevant coordinates."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np

from anchormoe.rows import Row
from anchormoe.theory.estimators import (
    Estimator,
    RiskCurve,
    least_squares,
    make_estimator,
    num_experts,
    windows,
)
from anchormoe.theory.problems import Cube, Curve, Problem, Sphere, Warped, grid, inputs, sample

LEMMA_ROWS = 2**14  # of the estimation error against K


def make_problem(settings: dict[str, Any]) -> Problem:
    """Make the problem that settings name."""
    kind, smoothness, dimension = settings["problem"], float(settings["smoothness"]), int(settings["dimension"])
    if kind == "cube":
        return Cube(smoothness, dimension, int(settings.get("relevant", dimension)))
    if kind == "curve":
        return Curve(smoothness, dimension)
    if kind == "sphere":
        return Sphere(smoothness, dimension)
    return Warped(smoothness, dimension, kind)


@functools.lru_cache(maxsize=1)
def _curve(estimator: Estimator, noise: float, exponent: int, seed: int) -> RiskCurve:
    """Return the curve of an estimator, kept for the next number of rows."""
    return RiskCurve(estimator, noise, exponent, seed)


def risk(settings: dict[str, Any], replicates: int, seed: int) -> Row:
    """Measure the squared L2 error at one number of rows, K by a rule; an oracle takes the K that is best on average.

    With `lattice` in the settings the lattice lies on this number of coordinates, relevant or not.
    """
    problem, noise, num_rows = make_problem(settings), float(settings["noise"]), int(settings["num_rows"])
    lattice = settings.get("lattice")
    estimator = make_estimator(problem, settings["object"], None if lattice is None else tuple(range(lattice)))
    experts = num_experts(estimator, settings["rule"], num_rows, noise)
    risks = _curve(estimator, noise, int(settings["grid"]), seed).risks(num_rows, experts, replicates)
    best = int(np.argmin(risks.mean(axis=0)))
    return {"experts": windows(estimator, experts[best]), "risk": risks[:, best].tolist()}


def lemma(settings: dict[str, Any], replicates: int, seed: int) -> Row:
    """Measure one of the two terms of the bound at a number of windows K.

    interpolation: the squared error of sum_j w_j(x) f(x_j), without noise
    estimation: the squared error of least squares where the regression function is 0, noise alone
    """
    problem, experts = make_problem(settings), float(settings["experts"])
    estimator = make_estimator(problem, settings["object"])
    shape = estimator.shape(experts)
    points = grid(problem, int(settings["grid"]), seed)
    weights = estimator.design(points, shape)
    errors = []
    for number in range(1, replicates + 1):
        rng = np.random.default_rng([seed, number])
        if settings["rule"] == "interpolation":
            function = problem.function(rng)
            coefficients, truth = function(_nodes(estimator.kind, shape)), function(points)
        else:
            X = inputs(problem, LEMMA_ROWS, rng)
            noise = float(settings["noise"]) * rng.standard_normal(LEMMA_ROWS)
            coefficients, truth = least_squares(estimator.design(X, shape), noise), np.zeros(1)
        errors.append(float(np.mean((weights @ coefficients - truth) ** 2)))
    return {"experts": windows(estimator, experts), "risk": errors}


def _nodes(kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return the points x_j of a lattice (K, m): with nodes at the boundary for `spline`, else centres of cells."""
    axes = [np.linspace(0, 1, count) if kind == "spline" else (np.arange(count) + 0.5) / count for count in shape]
    return np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)


def selection(settings: dict[str, Any], replicates: int, seed: int) -> Row:
    """Measure what it costs not to know the relevant coordinates.

    The lattice is tried on every set of as many coordinates, and the one with the least squared error on the data it
    was fitted to is kept. All risks are those of the same data; that of coordinates that do not matter is the control.
    """
    problem, noise, num_rows = make_problem(settings), float(settings["noise"]), int(settings["num_rows"])
    estimator = make_estimator(problem, settings["object"])
    shape = estimator.shape(num_experts(estimator, "theory", num_rows, noise)[0])
    exponent = int(settings["grid"])
    points = grid(problem, exponent, seed)
    size, columns = problem.intrinsic_dimension, range(problem.ambient_dimension)
    relevant, irrelevant = tuple(columns[:size]), tuple(columns[-size:])
    found: dict[str, list[float]] = {"risk": [], "risk_known": [], "risk_irrelevant": [], "right": []}
    for number in range(1, replicates + 1):
        rows = sample(problem, noise, num_rows, exponent, seed, number)
        fits = {}
        for tried in itertools.combinations(columns, size):
            design = make_estimator(problem, settings["object"], tried).design(rows.X, shape)
            coefficients = least_squares(design, rows.y)
            fits[tried] = float(np.mean((rows.y - design @ coefficients) ** 2)), coefficients
        chosen = min(fits, key=lambda tried: fits[tried][0])
        for name, used in (("risk", chosen), ("risk_known", relevant), ("risk_irrelevant", irrelevant)):
            design = make_estimator(problem, settings["object"], used).design(points, shape)
            found[name].append(float(np.mean((design @ fits[used][1] - rows.truth) ** 2)))
        found["right"].append(float(chosen == relevant))
    return {"experts": windows(estimator, float(np.prod(shape))), **found}
