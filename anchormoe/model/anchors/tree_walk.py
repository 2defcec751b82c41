"""Prediction by many complete binary trees, compiled.

Every row takes the same number of steps down every tree, and no step is a branch, so a block of rows goes down one
level at a time in a loop that the processor can overlap. A block's features lie column by column and stay in its cache.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anchormoe.model.kernels.compiled import compiled

_BLOCK_ROWS = 256


@dataclass(frozen=True)
class CompleteTrees:
    """T complete binary trees of one depth: inner nodes (T, 2^depth - 1) in heap order, leaves (T, 2^depth).

    A row goes left where x[feature] <= threshold, in float32. Sums are of the type of `leaf`.
    """

    base: float
    feature: np.ndarray
    threshold: np.ndarray
    leaf: np.ndarray

    def predict(self, X: np.ndarray, *, stages: int) -> np.ndarray:
        """Return the base and the leaves of the first `stages` trees, added up in their order."""
        mean = np.full(len(X), self.base, dtype=self.leaf.dtype)
        depth = self.leaf.shape[1].bit_length() - 1
        trees = self.feature[:stages], self.threshold[:stages], self.leaf[:stages]
        _add_trees(np.ascontiguousarray(X, dtype=np.float32), mean, *trees, depth)
        return mean


def rounded_down(threshold: np.ndarray) -> np.ndarray:
    """Return thresholds in float32 that part float32 values as the float64 ones do."""
    rounded = threshold.astype(np.float32)
    return np.where(rounded > threshold, np.nextafter(rounded, np.float32(-np.inf)), rounded)


@compiled
def _add_trees(X, mean, features, thresholds, leaves, depth):
    """Add the leaf of every row in every tree to its mean.

    All indices are unsigned: for signed ones numba adds a test whether they count from the end.
    """
    stages, num_inner = features.shape
    num_rows, num_columns = X.shape
    values = np.zeros(num_columns * _BLOCK_ROWS, np.float32)
    column = np.empty(num_inner, np.uint32)  # where the column that a node splits begins
    node = np.empty(_BLOCK_ROWS, np.uint32)
    total = np.zeros(_BLOCK_ROWS, mean.dtype)
    one = np.uint32(1)
    for first in range(0, num_rows, _BLOCK_ROWS):
        size = min(_BLOCK_ROWS, num_rows - first)
        for row in range(size):
            for k in range(num_columns):
                values[k * _BLOCK_ROWS + row] = X[first + row, k]
            total[row] = mean[first + row]
        for stage in range(stages):
            threshold, leaf = thresholds[stage], leaves[stage]
            for j in range(num_inner):
                column[j] = np.uint32(features[stage, j] * _BLOCK_ROWS)
            for row in range(_BLOCK_ROWS):
                node[row] = np.uint32(0)
            for _ in range(depth):
                for row in range(_BLOCK_ROWS):
                    j = node[row]
                    goes_right = values[np.uint32(column[j] + np.uint32(row))] > threshold[j]
                    node[row] = np.uint32(j + j + one + np.uint32(goes_right))
            for row in range(_BLOCK_ROWS):
                total[row] += leaf[node[row] - np.uint32(num_inner)]
        for row in range(size):
            mean[first + row] = total[row]
