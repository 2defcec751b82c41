"""The study of arm 2's rate: the squared error of the trained network's mean on arm 1's problems."""

from __future__ import annotations

from typing import Any

import numpy as np

from anchormoe.estimator.experts import suggest_num_experts
from anchormoe.rows import Row
from anchormoe.theory.fixed import make_problem
from anchormoe.theory.problems import grid, sample


def risk(settings: dict[str, Any], replicates: int, seed: int) -> Row:
    """Measure the squared L2 error of the mean of a network trained by the paper's recipe.

    K is 8, or what `suggest_num_experts` says for the rows that the network is trained on.
    """
    from anchormoe.theory.networks import paper_recipe

    problem, num_rows = make_problem(settings), int(settings["num_rows"])
    experts = 8
    if settings["rule"] == "theory":
        experts = suggest_num_experts(num_rows, problem.ambient_dimension, alpha=problem.smoothness)
    exponent = int(settings["grid"])
    points = grid(problem, exponent, seed)
    risks = []
    for number in range(1, replicates + 1):
        rows = sample(problem, float(settings["noise"]), num_rows, exponent, seed, number)
        regressor = paper_recipe(experts, anchored=settings["object"] == "anchored_network", seed=number)
        mean = regressor.fit(rows.X, rows.y).predict_dist(points).mean
        risks.append(float(np.mean((mean - rows.truth) ** 2)))
    return {"experts": experts, "risk": risks}
