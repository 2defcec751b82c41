"""The study of the link between NLL and L2: excess NLL beside the errors of mean and standard deviation."""

from __future__ import annotations

from typing import Any

import numpy as np

from anchormoe.rows import Row
from anchormoe.theory.estimators import Estimator, least_squares, make_estimator, num_experts
from anchormoe.theory.problems import Cube, grid, inputs

_NOISE = 0.5  # the mean standard deviation, for the constant of K


def true_scale(X: np.ndarray) -> np.ndarray:
    """Return the standard deviation of the noise, from 0.25 to 0.75: inside the bounds that the lemma assumes."""
    return 0.25 + 0.5 * X[:, 0]


def link(settings: dict[str, Any], replicates: int, seed: int) -> Row:
    """Measure the excess NLL of predicted densities, and the mean squared errors of their means and scales.

    gaussian: mean and variance by least squares on a fixed partition, scales kept within the lemma's bounds
    known_scale: the same mean with the true scale
    overconfident: the control, the same mean with a tenth of the true scale, which the bounds forbid
    network: a trained network, whose density is a mixture, by the paper's recipe without an anchor
    """
    problem, num_rows = Cube(float(settings["smoothness"]), 1, 1), int(settings["num_rows"])
    points = grid(problem, int(settings["grid"]), seed)
    scale = true_scale(points)
    found: dict[str, list[float]] = {"excess_nll": [], "mean_error": [], "scale_error": []}
    for number in range(1, replicates + 1):
        rng = np.random.default_rng([seed, number, num_rows])
        function = problem.function(rng)
        X = inputs(problem, num_rows, rng)
        y = function(X) + true_scale(X) * rng.standard_normal(num_rows)
        truth = function(points)
        if settings["object"] == "network":
            from anchormoe.theory.networks import paper_recipe

            density = paper_recipe(8, anchored=False, seed=number).fit(X, y).predict_dist(points)
            fresh = truth + scale * rng.standard_normal(len(points))
            mean, predicted = density.density_mean, density.std
            excess = -density.log_prob(fresh) - (0.5 * ((fresh - truth) / scale) ** 2 + np.log(scale))
            excess -= 0.5 * np.log(2 * np.pi)
        else:
            mean, predicted = _fixed_partition(settings, problem, X, y, points)
            # The expectation over a fresh target, in closed form.
            excess = np.log(predicted / scale) + (scale**2 + (mean - truth) ** 2) / (2 * predicted**2) - 0.5
        found["excess_nll"].append(float(excess.mean()))
        found["mean_error"].append(float(np.mean((mean - truth) ** 2)))
        found["scale_error"].append(float(np.mean((predicted - scale) ** 2)))
    return dict(found)


def _fixed_partition(
    settings: dict[str, Any], problem: Cube, X: np.ndarray, y: np.ndarray, points: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return means and standard deviations at points."""
    estimator: Estimator = make_estimator(problem, "truncated_spline")
    shape = estimator.shape(num_experts(estimator, "theory", len(y), _NOISE)[0])
    design, at_points = estimator.design(X, shape), estimator.design(points, shape)
    coefficients = least_squares(design, y)
    mean = at_points @ coefficients
    kind, lowest, highest = settings["object"], float(settings["lowest"]), float(settings["highest"])
    if kind == "known_scale":
        return mean, true_scale(points)
    if kind == "overconfident":
        return mean, 0.1 * true_scale(points)
    # The variance varies slowly: a few windows do. Residuals are a little too small, by the share of windows in rows.
    few = estimator.shape(4.0)
    squares = (y - design @ coefficients) ** 2 / (1 - design.shape[1] / len(y))
    variance = estimator.design(points, few) @ least_squares(estimator.design(X, few), squares)
    return mean, np.clip(np.sqrt(np.maximum(variance, 0.0)), lowest, highest)
