"""The study of K on the nine datasets: the rule of the theory, the paper's K = 8, and K by held-out rows."""

from __future__ import annotations

import dataclasses
from typing import Any

from anchormoe.data import catalogue
from anchormoe.data.dataset import load
from anchormoe.data.splits import OuterSplit, subsample
from anchormoe.distributions.scores import scores as score
from anchormoe.estimator.experts import suggest_num_experts
from anchormoe.rows import Row

_LATENT_DIMENSION = 2  # of the plane that the windows of the paper's recipe lie in


def scores(settings: dict[str, Any], replicates: int, seed: int) -> Row:
    """Fit the paper's recipe with a number of experts on the first splits of a dataset, and score it.

    `rule` is a number, `theory` (suggest_num_experts with its defaults) or `theory_latent` (the same with the
    dimension of the latent plane as the intrinsic one). `held_out_nll` is the NLL on the rows of CAL, which neither
    phase of the training sees.
    """
    from anchormoe.theory.networks import paper_recipe

    dataset = load(catalogue.info(settings["table"]))
    most = int(settings["most_rows"])
    if len(dataset.y) > most:
        rows = subsample(len(dataset.y), most, seed)
        dataset = dataclasses.replace(dataset, X=dataset.X[rows], y=dataset.y[rows])
    found: dict[str, list[float]] = {"held_out_nll": [], "nll_y": [], "crps_y": [], "rmse_y": []}
    experts = 0
    for number in range(1, replicates + 1):
        train, test = OuterSplit(number, seed).rows(len(dataset.y))
        experts = _num_experts(settings["rule"], len(train), dataset.X.shape[1])
        regressor = paper_recipe(experts, anchored=True, seed=number).fit(dataset.X[train], dataset.y[train])
        measured = score(regressor.predict_dist(dataset.X[test]), dataset.y[test])
        found["held_out_nll"].append(regressor.fitted_.held_out.scores["nll"])
        for name in ("nll_y", "crps_y", "rmse_y"):
            found[name].append(float(measured[name]))
    return {"experts": experts, **found}


def _num_experts(rule: str, num_rows: int, num_columns: int) -> int:
    if rule == "theory":
        return suggest_num_experts(num_rows, num_columns)
    if rule == "theory_latent":
        return suggest_num_experts(num_rows, num_columns, intrinsic_dim=min(num_columns, _LATENT_DIMENSION))
    return int(rule)
