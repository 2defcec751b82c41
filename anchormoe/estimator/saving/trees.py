"""Checks of decision trees that come from a file.

The libraries walk down a tree without looking whether a child or a feature exists. Indices out of range would read
foreign memory, and a loop would never end.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from anchormoe.estimator.saving.errors import require


def require_children(left: Sequence[np.ndarray], right: Sequence[np.ndarray], *, numbered_leaves: bool = False) -> None:
    """Require of several trees that following the children from node 0 ends at a leaf.

    left, right: the children of each tree's nodes. A leaf is a node whose children are both -1. With `numbered_leaves`
    all nodes are inner ones, and a negative child is a leaf: -1, -2, ... are the leaves 0, 1, ... of the tree.
    """
    sizes = np.array([len(nodes) for nodes in left], dtype=np.int64)
    require([len(nodes) for nodes in right] == sizes.tolist(), "two children of each node", "other numbers of them")
    if sizes.sum() == 0:
        return
    first, second = (np.concatenate(list(nodes)).astype(np.int64) for nodes in (left, right))
    lowest = -(sizes + 1) if numbered_leaves else np.full(len(sizes), -1)
    for children in (first, second):
        known = (children < np.repeat(sizes, sizes)) & (children >= np.repeat(lowest, sizes))
        require(bool(known.all()), "children that are nodes of their tree", children[~known][:1])
    if not numbered_leaves:
        require(np.array_equal(first < 0, second < 0), "nodes with two children or none", "a node with one")
    # Nobody's child twice, and the root nobody's: then no path from the root comes back.
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    inner = np.concatenate([(starts + children)[children >= 0] for children in (first, second)])
    once = bool((np.bincount(inner, minlength=sizes.sum()) <= 1).all()) and not np.isin(starts, inner).any()
    require(once, "nodes with one parent and a root with none", "a loop or a node with two parents")


def require_features(features: np.ndarray, num_features: int) -> None:
    """Require that splits are on features that exist."""
    known = (features >= 0) & (features < num_features)
    require(bool(known.all()), f"splits on {num_features} features", features[~known][:1])
