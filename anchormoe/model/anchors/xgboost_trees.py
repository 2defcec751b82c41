"""XGBoost's trees as complete binary trees, which predict the same numbers in a fraction of the time."""

from __future__ import annotations

from typing import Any

import numpy as np

from anchormoe.model.anchors import ubjson
from anchormoe.model.anchors.tree_walk import CompleteTrees

_DEEPEST = 8  # deeper trees are rarely complete, and most of their nodes would be padding
# Objectives whose prediction is the sum of the leaves itself, and not its exponential or another function of it.
_SUMS = {f"reg:{name}error" for name in ("squared", "absolute", "pseudohuber", "quantile", "squaredlog")}


def complete_trees(booster: Any) -> CompleteTrees | None:
    """Return the trees of a model that adds up one tree per stage, None for any other or if trees are too deep to pad.

    They are for rows without gaps: where a gap goes is left out.
    """
    learner = ubjson.read(bytes(booster.save_raw(raw_format="ubj")))["learner"]
    if not _adds_up_trees(learner):
        return None
    base = float(learner["learner_model_param"]["base_score"].strip("[]"))
    trees = learner["gradient_booster"]["model"]["trees"]
    left, right, feature = (_table(trees, name, -1) for name in ("left_children", "right_children", "split_indices"))
    # A row goes left where x < condition. At a leaf the condition is its value.
    condition = _table(trees, "split_conditions", 0.0)
    node = np.zeros((len(trees), 1), dtype=np.int64)  # the node of the tree at each place of the level
    features: list[np.ndarray] = []
    thresholds: list[np.ndarray] = []
    while (np.take_along_axis(left, node, 1) >= 0).any():
        if len(features) == _DEEPEST:
            return None
        is_leaf, cut = np.take_along_axis(left, node, 1) < 0, np.take_along_axis(condition, node, 1)
        below = np.nextafter(cut, np.float32(-np.inf))
        features.append(np.where(is_leaf, 0, np.take_along_axis(feature, node, 1)))
        thresholds.append(np.where(is_leaf, np.float32(np.inf), below))
        # Below a leaf both children are the leaf again.
        children = [np.where(is_leaf, node, np.take_along_axis(side, node, 1)) for side in (left, right)]
        node = np.stack(children, axis=2).reshape(len(trees), -1)
    if not features:
        return None
    return CompleteTrees(
        base,
        np.concatenate(features, axis=1).astype(np.int32),
        np.concatenate(thresholds, axis=1),
        np.take_along_axis(condition, node, 1),
    )


def _adds_up_trees(learner: dict[str, Any]) -> bool:
    """Tell whether a model is the sum of one tree per stage for one target, and splits by numbers alone."""
    booster, objective = learner["gradient_booster"], learner["objective"]["name"]
    if booster["name"] != "gbtree" or objective not in _SUMS or "," in learner["learner_model_param"]["base_score"]:
        return False  # dart weights its trees, a linear model has none, and a list of bases is one of targets
    forest = booster["model"]
    one_per_stage = forest["iteration_indptr"] == list(range(len(forest["trees"]) + 1))
    return one_per_stage and not any(tree["split_type"].any() for tree in forest["trees"])


def _table(trees: list[dict[str, np.ndarray]], name: str, fill: float) -> np.ndarray:
    """Return an array of all trees' nodes (T, most nodes) in the machine's byte order."""
    parts = [tree[name] for tree in trees]
    table = np.full((len(parts), max(map(len, parts))), fill, dtype=parts[0].dtype.newbyteorder("="))
    for row, part in zip(table, parts, strict=True):
        row[: len(part)] = part
    return table
