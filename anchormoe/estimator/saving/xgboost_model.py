"""XGBoost's models in its own binary format, UBJSON, read and checked here before XGBoost reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from anchormoe.estimator.saving.errors import refused, require
from anchormoe.estimator.saving.trees import require_children, require_features
from anchormoe.model.anchors import ubjson

_PER_NODE = {
    **dict.fromkeys(("left_children", "right_children", "parents", "split_indices"), "l"),
    **dict.fromkeys(("split_conditions", "base_weights", "loss_changes", "sum_hessian"), "d"),
    **dict.fromkeys(("split_type", "default_left"), "U"),
}
_SETS = {"categories_nodes": "l", "categories_segments": "L", "categories_sizes": "L", "categories": "l"}
_NO_PARENT = 2**31 - 1
_MOST_CATEGORIES = 2**24  # XGBoost keeps categories as float32


def is_its(value: Any) -> bool:
    """Tell whether a value is a model of XGBoost."""
    return type(value).__name__ == "Booster" and type(value).__module__ == "xgboost.core"


def to_bytes(value: Any, path: str) -> bytes:
    """Return a model in XGBoost's format."""
    content = bytes(value.save_raw(raw_format="ubj"))
    try:
        _require_sound(_read(content))
    except ValueError as error:
        raise ValueError(f"{path} must be a model of ordinary trees: {error}; use joblib or pickle") from None
    return content


def from_bytes(content: bytes, trusted: Sequence[str]) -> Any:
    """Load a model, as long as its trees are sound."""
    import xgboost

    _require_sound(_read(content))
    model = xgboost.Booster({"nthread": 1})
    model.load_model(bytearray(content))
    return model


def _read(content: bytes) -> Any:
    try:
        return ubjson.read(content)
    except ubjson.UbjsonError as error:
        raise refused("UBJSON", error) from None


def _require_sound(model: Any) -> None:
    """Check what XGBoost takes on trust when it reads trees for one target and predicts by them."""
    model = _fields(model, {"learner": dict, "version": list})
    learner = _fields(
        model["learner"],
        {
            **{"attributes": dict, "feature_names": list, "feature_types": list},
            **{"gradient_booster": dict, "learner_model_param": dict, "objective": dict},
        },
    )
    for texts in (learner["attributes"].values(), learner["feature_names"], learner["feature_types"]):
        require(all(isinstance(text, str) for text in texts), "texts as attributes and names of features", texts)
    parameters = learner["learner_model_param"]
    require(all(isinstance(text, str) for text in parameters.values()), "parameters that are texts", parameters)
    one_target = parameters.get("num_class") == "0" and parameters.get("num_target") == "1"
    require(one_target and "base_score" in parameters, "a model of one target", parameters)
    booster = _fields(learner["gradient_booster"], {"model": dict, "name": str})
    require(booster["name"] == "gbtree", "a booster gbtree", booster["name"])
    wanted = {"gbtree_model_param": dict, "iteration_indptr": list, "tree_info": list, "trees": list}
    _require_sound_forest(_fields(booster["model"], wanted, {"cats": dict}), int(parameters.get("num_feature", "")))


def _require_sound_forest(forest: dict[str, Any], num_features: int) -> None:
    trees = forest["trees"]
    require(not forest.get("cats", {}).get("enc"), "categories as numbers", "categories as text")
    counts = _fields(forest["gbtree_model_param"], {"num_trees": str, "num_parallel_tree": str})
    right = int(counts["num_trees"]) == len(trees) and int(counts["num_parallel_tree"]) >= 1
    require(right, f"{len(trees)} trees", counts)
    require(forest["tree_info"] == [0] * len(trees), f"{len(trees)} trees of one group", forest["tree_info"])
    ends = forest["iteration_indptr"]
    rising = all(type(end) is int for end in ends) and ends == sorted(set(ends)) and ends[:1] == [0]
    require(rising and ends[-1] == len(trees), "iterations of all trees in order", ends)
    for number, tree in enumerate(trees):
        _require_sound_tree(tree, number, num_features)
    require_children(*([tree[name] for tree in trees] for name in ("left_children", "right_children")))


def _require_sound_tree(tree: Any, number: int, num_features: int) -> None:
    """Check one tree but for its children."""
    tree = _fields(tree, {"id": int, "tree_param": dict, **dict.fromkeys((*_PER_NODE, *_SETS), np.ndarray)})
    sizes = _fields(
        tree["tree_param"], dict.fromkeys(("num_nodes", "num_feature", "num_deleted", "size_leaf_vector"), str)
    )
    left, parents = tree["left_children"], tree["parents"]
    count = len(left)
    fits = tree["id"] == number and count == int(sizes["num_nodes"]) > int(sizes["num_deleted"]) >= 0
    require(fits and int(sizes["num_feature"]) == num_features, f"tree {number} of {count} nodes", sizes)
    require(sizes["size_leaf_vector"] in ("0", "1"), "one value to a leaf", sizes["size_leaf_vector"])
    for name, code in (*_PER_NODE.items(), *_SETS.items()):
        require(tree[name].dtype == ubjson.NUMBERS[code], f"{name} of type {code}", tree[name].dtype)
        require(name in _SETS or len(tree[name]) == count, f"{name} of {count} nodes", len(tree[name]))
    known = (parents == _NO_PARENT) | ((parents >= 0) & (parents < count))
    require(bool(known.all()), "parents that are nodes of their tree", parents[~known][:1])
    require_features(tree["split_indices"][left >= 0], num_features)
    _require_sound_categories(tree)


def _require_sound_categories(tree: dict[str, Any]) -> None:
    """Check the sets of categories: those of node nodes[k] are categories[segments[k]:][:sizes[k]]."""
    nodes, segments, sizes, categories = (tree[name] for name in _SETS)
    by_category = np.flatnonzero(tree["split_type"])
    if len(by_category) == len(nodes) == len(segments) == len(sizes) == len(categories) == 0:
        return
    kinds = bool((tree["split_type"] <= 1).all()) and np.array_equal(nodes, by_category)
    require(kinds, "sets of categories for the nodes that split by them", nodes)
    require(len(segments) == len(sizes) == len(nodes), f"{len(nodes)} sets of categories", len(segments))
    inside = bool(((sizes >= 0) & (sizes <= len(categories))).all())  # else their sum may overflow
    joined = inside and np.array_equal(segments, np.cumsum(sizes) - sizes) and sizes.sum() == len(categories)
    require(joined, "sets of categories one after the other", segments)
    small = bool(((categories >= 0) & (categories < _MOST_CATEGORIES)).all())
    require(small, f"categories from 0 to {_MOST_CATEGORIES - 1}", categories)


def _fields(value: Any, wanted: Mapping[str, type], optional: Mapping[str, type] | None = None) -> dict[str, Any]:
    """Return an object that has the fields that are wanted, of these types, and no others but optional ones."""
    require(isinstance(value, dict), "an object", type(value).__name__)
    kinds = {**wanted, **(optional or {})}
    names = set(wanted) <= set(value) <= set(kinds)
    require(names, f"the fields {', '.join(kinds)}", ", ".join(value))
    for name, content in value.items():
        require(type(content) is kinds[name], f"{name} to be a {kinds[name].__name__}", type(content).__name__)
    return value
