"""LightGBM's models in its own text format, checked here before LightGBM reads them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from anchormoe.estimator.saving.errors import SavedFileError, refused, require
from anchormoe.estimator.saving.trees import require_children, require_features

_HEADER = (
    *("version", "num_class", "num_tree_per_iteration", "label_index", "max_feature_idx", "objective"),
    *("feature_names", "feature_infos", "tree_sizes"),
)
_TREE = (
    *("num_leaves", "num_cat", "split_feature", "split_gain", "threshold", "decision_type", "left_child"),
    *("right_child", "leaf_value", "leaf_weight", "leaf_count", "internal_value", "internal_weight"),
    *("internal_count", "is_linear", "shrinkage"),
)
_SETS = ("cat_boundaries", "cat_threshold")  # before is_linear, if a split is by categories
_END = "end of trees\n"
_NUMBERS = re.compile(r"[-+0-9.einfa ]*")


def is_its(value: Any) -> bool:
    """Tell whether a value is a model of LightGBM."""
    return type(value).__name__ == "Booster" and type(value).__module__ == "lightgbm.basic"


def to_bytes(value: Any, path: str) -> bytes:
    """Return a model in LightGBM's format, without the sections that follow the trees."""
    text = value.model_to_string(num_iteration=-1)
    text = text[: text.index(_END) + len(_END)]
    try:
        _require_sound(text)
    except SavedFileError as error:
        raise ValueError(f"{path} must be a model of ordinary trees: {error}; use joblib or pickle") from None
    return text.encode()


def from_bytes(content: bytes, trusted: Sequence[str]) -> Any:
    """Load a model, as long as its trees are sound."""
    import lightgbm

    text = content.decode("ascii")
    _require_sound(text)
    return lightgbm.Booster(model_str=text)


def _require_sound(text: str) -> None:
    """Check what LightGBM takes on trust when it reads trees for one target and predicts by them."""
    head, _, body = text.partition("\n\n")
    kind, _, lines = head.partition("\n")
    require(kind == "tree" and body.endswith(_END), "a model as LightGBM writes it", repr(kind))
    header = _fields(lines.split("\n"), _HEADER)
    for name in ("num_class", "num_tree_per_iteration"):
        require(header.get(name) == "1", f"{name}=1", header.get(name))
    num_features = 1 + int(_numbers(header, "max_feature_idx", 1, np.int64)[0])
    for name in ("feature_names", "feature_infos"):
        found = len(header.get(name, "").split(" "))
        require(found == num_features, f"{name} of {num_features} features", found)
    # LightGBM cuts the text by these sizes.
    sizes = [int(size) for size in _numbers(header, "tree_sizes", None, np.int64)]
    start = 0
    children = []
    for number, size in enumerate(sizes):
        require(0 < size <= len(body) - start, "trees within the text", size)
        children.append(_require_sound_tree(body[start : start + size], number, num_features))
        start += size
    require(body[start:] == _END, f"{len(sizes)} trees and the end", "something else")
    require_children(*zip(*children, strict=True), numbered_leaves=True)


def _require_sound_tree(block: str, number: int, num_features: int) -> tuple[np.ndarray, np.ndarray]:
    """Check one tree but for its children, which are returned."""
    first, *lines = block.rstrip("\n").split("\n")
    require(first == f"Tree={number}" and block.endswith("\n"), f"Tree={number}", first)
    names = _TREE if "cat_boundaries" not in block else (*_TREE[:-2], *_SETS, *_TREE[-2:])
    tree = _fields(lines, names)
    require(tree.get("is_linear") == "0", "trees with a value in each leaf", "trees with a line in each leaf")
    num_leaves, num_sets = (int(_numbers(tree, name, 1, np.int64)[0]) for name in ("num_leaves", "num_cat"))
    require(1 <= num_leaves <= len(block), "leaves within the text", num_leaves)
    _numbers(tree, "leaf_value", num_leaves, np.float64)
    _numbers(tree, "shrinkage", 1, np.float64)
    if num_leaves == 1:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    count = num_leaves - 1
    whole = ("split_feature", "decision_type", "left_child", "right_child")
    feature, decision, left, right = (_numbers(tree, name, count, np.int64) for name in whole)
    threshold = _numbers(tree, "threshold", count, np.float64)
    for name in ("split_gain", "internal_value", "internal_weight", "internal_count"):
        _numbers(tree, name, count, np.float64)
    for name in ("leaf_weight", "leaf_count"):
        _numbers(tree, name, num_leaves, np.float64)
    require_features(feature, num_features)
    require(bool(((decision >= 0) & (decision < 16)).all()), "kinds of decisions from 0 to 15", decision)
    sets = threshold[decision % 2 == 1]  # a split by categories has the number of their set as its threshold
    known = bool(((sets >= 0) & (sets < num_sets) & (sets == np.floor(sets))).all())
    require(known, f"{num_sets} sets of categories", sets)
    if num_sets > 0:
        bounds = _numbers(tree, "cat_boundaries", num_sets + 1, np.int64)
        words = _numbers(tree, "cat_threshold", None, np.int64)
        rising = bounds[0] == 0 and bool((np.diff(bounds) >= 0).all()) and bounds[-1] == len(words)
        require(rising and bool(((words >= 0) & (words < 2**32)).all()), "sets of categories in order", bounds)
    return left, right


def _fields(lines: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Return the values of lines that are name=value, with exactly these names in this order."""
    pairs = [line.partition("=") for line in lines]
    found = [name + equals for name, equals, _ in pairs]
    require(found == [f"{name}=" for name in names], f"the lines {', '.join(names)}", ", ".join(found))
    return {name: value for name, _, value in pairs}


def _numbers(fields: dict[str, str], name: str, count: int | None, dtype: Any) -> np.ndarray:
    """Return the numbers of a line, which must be this many, or any number of them if `count` is None."""
    line = fields.get(name, "")
    texts = line.split(" ")
    if not _NUMBERS.fullmatch(line) or (count is not None and len(texts) != count):
        raise refused(f"{name} of {'some' if count is None else count} numbers", repr(line))
    return np.array(texts, dtype=dtype)
