"""Gradient boosting of squared error by exact trees of limited depth, compiled: scikit-learn's GBDT, but faster.

Columns are sorted once, and every split divides each of them in two, in order. A level of a tree is one such pass over
the columns and one in search of the best cuts, so a stage costs depth * rows * columns steps. Ties between equally good
splits go to the first column (scikit-learn draws one at random).

A tree may be fitted to a random share of the rows and columns, with leaves drawn towards zero, as XGBoost's are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anchormoe.model.anchors.tree_walk import CompleteTrees, rounded_down
from anchormoe.model.kernels.compiled import compiled
from anchormoe.model.settings import require

_STAGES_AT_ONCE = 50  # between two evaluations on the validation rows, and for which rows are drawn together


@dataclass(frozen=True)
class BoostedTrees:
    """T complete binary trees of one depth: inner nodes (T, 2^depth - 1) in heap order, leaves (T, 2^depth).

    A row goes left where x[feature] <= threshold; a node that was not split has threshold inf and sends all left.
    """

    base: float
    feature: np.ndarray
    threshold: np.ndarray
    leaf: np.ndarray

    def predict(self, X: np.ndarray, *, stages: int) -> np.ndarray:
        return CompleteTrees(self.base, self.feature, rounded_down(self.threshold), self.leaf).predict(X, stages=stages)

    def staged_rmse(self, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
        """Return the RMSE after each stage, of rows that count by their weights if these are given."""
        mean, counted = np.full(len(X), self.base), _weights(weight, len(y))
        return _staged(np.float32(X), mean, self.feature, self.threshold, self.leaf, y, counted)


def fit(
    X: np.ndarray,
    y: np.ndarray,
    *,
    stages: int,
    learning_rate: float = 0.1,
    max_depth: int = 3,
    validation: tuple[np.ndarray, np.ndarray] | None = None,
    early_stopping_rounds: int | None = None,
    weight: np.ndarray | None = None,
    validation_weight: np.ndarray | None = None,
    row_share: float = 1.0,
    column_share: float = 1.0,
    penalty: float = 0.0,
    seed: int = 0,
) -> BoostedTrees:
    """Fit boosted trees to the rows, which count by their weights if these are given.

    With `validation` and `early_stopping_rounds`, fitting stops after that number of stages without a lower error on
    the validation rows.

    row_share, column_share: the shares of rows and columns that are drawn for each tree.
    penalty: the number of rows with residual zero that each leaf is thought to have besides its own.
    """
    columns = SortedColumns(X, weight)
    shares = Shares(row_share, column_share, penalty)
    stream = np.random.default_rng(seed)
    base = float(y.mean() if weight is None else np.average(y, weights=weight))
    residual = y - base
    patience = np.inf if validation is None or early_stopping_rounds is None else early_stopping_rounds
    if validation is not None:
        rows, mean = np.float32(validation[0]), np.full(len(validation[1]), base)
        counted = _weights(validation_weight, len(mean))
    parts: list[tuple[np.ndarray, ...]] = []
    rmse, done, best = np.empty(0), 0, 0
    while done < stages and done - best < patience:
        more = min(_STAGES_AT_ONCE, stages - done)
        parts.append(columns.boost(residual, more, learning_rate, max_depth, shares, stream))
        done += more
        if validation is not None and np.isfinite(patience):
            rmse = np.append(rmse, _staged(rows, mean, *parts[-1], validation[1], counted))
            best = 1 + int(np.argmin(rmse))
    return BoostedTrees(base, *(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def _weights(weight: np.ndarray | None, num_rows: int) -> np.ndarray:
    return np.ones(num_rows) if weight is None else np.asarray(weight, dtype=np.float64)


@dataclass(frozen=True)
class Shares:
    """The shares of rows and columns that a tree is fitted to, and the penalty of its leaves."""

    row_share: float = 1.0
    column_share: float = 1.0
    penalty: float = 0.0

    def __post_init__(self) -> None:
        require(0 < self.row_share <= 1, "anchor.params.row_share", "above 0 and at most 1", self.row_share)
        require(0 < self.column_share <= 1, "anchor.params.column_share", "above 0 and at most 1", self.column_share)
        require(0 <= self.penalty < np.inf, "anchor.params.penalty", "at least 0 and finite", self.penalty)

    def draw(self, stages: int, shape: tuple[int, int], stream: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw which rows (T, N) and columns (T, I) each tree is fitted to; no rows (T, 0) means all of them."""
        num_columns, num_rows = shape
        rows, columns = np.empty((stages, 0), np.bool_), np.tile(np.arange(num_columns), (stages, 1))
        if self.row_share < 1:
            rows = stream.random((stages, num_rows), dtype=np.float32) < self.row_share
            rows[~rows.any(1)] = True  # of few rows perhaps none is drawn
        if self.column_share < 1:
            kept = max(1, round(self.column_share * num_columns))
            columns = np.sort(stream.permuted(columns, axis=1)[:, :kept], axis=1)
        return rows, columns


_EVERYTHING = Shares()


class SortedColumns:
    """The features of the rows to fit, sorted once for any number of trees."""

    def __init__(self, X: np.ndarray, weight: np.ndarray | None = None) -> None:
        self._weight = np.empty(0) if weight is None else np.asarray(weight, dtype=np.float64)
        columns = np.asarray(X, dtype=np.float32).T
        self._kept = _worth_searching(columns)
        self._columns = np.ascontiguousarray(columns[self._kept])
        self._ascending = _ascending(self._columns)

    def tree(self, y: np.ndarray, *, max_depth: int) -> BoostedTrees:
        """Fit one tree by least squares."""
        return BoostedTrees(0.0, *self.boost(np.array(y, dtype=np.float64), 1, 1.0, max_depth))

    def boost(
        self,
        residual: np.ndarray,
        stages: int,
        learning_rate: float,
        max_depth: int,
        shares: Shares = _EVERYTHING,
        stream: np.random.Generator | None = None,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Fit `stages` more trees, subtract them from the residual, and return (feature, threshold, leaf).

        Rows and columns of shares below one are drawn from `stream`.
        """
        drawn = shares.draw(stages, self._columns.shape, stream or np.random.default_rng(0))
        feature, threshold, leaf = _boost(
            self._columns, self._ascending, residual, self._weight, *drawn, shares.penalty, learning_rate, max_depth
        )
        return self._kept[feature], threshold, leaf


def _ascending(columns: np.ndarray) -> np.ndarray:
    """Return each column's rows in ascending order, as rank << 32 | row in one word; equal values have equal ranks."""
    order = np.argsort(columns, axis=1, kind="stable")
    values = np.take_along_axis(columns, order, axis=1)
    rank = np.zeros_like(order)
    rank[:, 1:] = np.cumsum(values[:, 1:] > values[:, :-1], axis=1)
    return (rank << 32 | order).astype(np.int64)


def _worth_searching(columns: np.ndarray) -> np.ndarray:
    """Return the columns that vary, and of equal ones only the first, which wins their ties (Naval has 13 of 16)."""
    _, first = np.unique(columns, axis=0, return_index=True)
    kept = np.sort(first[columns[first].min(axis=1) < columns[first].max(axis=1)])
    return kept if len(kept) else np.array([0])


@compiled
def _boost(columns, ascending, residual, weight, drawn_rows, drawn_columns, penalty, learning_rate, max_depth):
    """Fit trees to the residual and subtract them from it; an empty `weight` means that all rows count alike."""
    num_rows = columns.shape[1]
    stages, all_rows = len(drawn_rows), drawn_rows.shape[1] == 0
    num_inner, num_leaves = 2**max_depth - 1, 2**max_depth
    features = np.zeros((stages, num_inner), np.int32)
    thresholds = np.full((stages, num_inner), np.inf)
    leaves = np.zeros((stages, num_leaves))
    inverse = np.zeros(num_rows + 1)
    for count in range(1, num_rows + 1):
        inverse[count] = 1 / (count + penalty)
    node = np.empty(num_rows, np.int16)  # of each row, counted within its level
    total, best = np.empty(num_leaves), np.empty(num_leaves)
    node_weight, inverse_weight = np.empty(num_leaves), np.empty(num_leaves)
    begin = np.zeros(num_leaves + 1, np.int64)
    by_node = np.empty_like(ascending)  # each column's rows in ascending order within a node, node after node
    spare, left_sum = np.empty(num_rows, np.int64), np.empty(num_rows)
    for stage in range(stages):
        is_drawn = drawn_rows[stage]
        node[:] = 0
        begin[1] = 0
        total[0] = node_weight[0] = 0.0
        for row in range(num_rows):
            if all_rows or is_drawn[row]:
                begin[1] += 1
                total[0] += residual[row] * weight[row] if len(weight) else residual[row]
                node_weight[0] += weight[row] if len(weight) else 1.0
        inverse_weight[0] = 1 / (node_weight[0] + penalty)
        if not all_rows:
            for column in drawn_columns[stage]:
                _keep_drawn(ascending[column], is_drawn, by_node[column])
        for level in range(max_depth):
            first, num_nodes = 2**level - 1, 2**level
            feature, threshold = features[stage, first:], thresholds[stage, first:]
            for j in range(num_nodes):
                best[j] = total[j] ** 2 * inverse_weight[j] * (1 + 1e-12)  # a gain must exceed rounding
            for column in drawn_columns[stage]:
                keys = ascending[column] if all_rows else by_node[column]
                if level > 0:
                    before, keys = by_node[column] if level > 1 else keys, by_node[column]
                    for j in range(0, num_nodes, 2):
                        _part(before, keys, node, begin[j], begin[j + 1], begin[j + 2], spare)
                for j in range(num_nodes):
                    if len(weight):
                        gain, at = _best_weighted_split(
                            keys, residual, weight, begin[j], begin[j + 1], total[j], node_weight[j], penalty, best[j]
                        )
                    else:
                        gain, at = _best_split(
                            keys, residual, begin[j], begin[j + 1], total[j], inverse, best[j], left_sum
                        )
                    if at >= 0:
                        below, above = columns[column, _row(keys[at - 1])], columns[column, _row(keys[at])]
                        best[j], feature[j] = gain, column
                        threshold[j] = np.float64(below) / 2 + np.float64(above) / 2
            _descend(
                columns, feature, threshold, residual, weight, is_drawn, node, total, node_weight, begin, 2 * num_nodes
            )
            for j in range(2 * num_nodes):
                inverse_weight[j] = 1 / (node_weight[j] + penalty) if node_weight[j] > 0 else 0.0
        for leaf in range(num_leaves):
            leaves[stage, leaf] = learning_rate * total[leaf] * inverse_weight[leaf]
        for row in range(num_rows):
            residual[row] -= leaves[stage, node[row]]
    return features, thresholds, leaves


@compiled
def _row(key):
    return key & 0xFFFFFFFF


@compiled
def _keep_drawn(keys, is_drawn, to_keys):
    """Copy the keys of the drawn rows, in their order."""
    count = 0
    for key in keys:
        to_keys[count] = key
        count += is_drawn[_row(key)]


@compiled
def _descend(columns, feature, threshold, residual, weight, is_drawn, node, total, node_weight, begin, num_nodes):
    """Move rows one level down, and write the new nodes' sums and weights, of drawn rows, and where each begins."""
    total[:num_nodes] = 0.0
    node_weight[:num_nodes] = 0.0
    begin[: num_nodes + 1] = 0
    for row in range(columns.shape[1]):
        j = node[row]
        j = 2 * j + (columns[feature[j], row] > threshold[j])
        node[row] = j
        if len(is_drawn) and not is_drawn[row]:
            continue
        total[j] += residual[row] * weight[row] if len(weight) else residual[row]
        node_weight[j] += weight[row] if len(weight) else 1.0
        begin[j + 1] += 1
    for j in range(num_nodes):
        begin[j + 1] += begin[j]


@compiled
def _part(keys, to_keys, node, begin, middle, end, spare):
    """Move rows of even nodes to begin..middle and of odd ones to middle..end, in the order they had; may be in place.

    Each row is written to both sides and counted on one, because a branch here would be mispredicted every other row.
    """
    left, right = begin, 0
    for position in range(begin, end):
        key = keys[position]
        goes_right = node[_row(key)] & 1
        to_keys[left] = spare[right] = key
        left += 1 - goes_right
        right += goes_right
    to_keys[middle:end] = spare[: end - middle]


@compiled
def _best_split(keys, residual, begin, end, total, inverse, best, left_sum):
    """Find the cut of one node's rows in one column with the largest sum_left^2 / n_left + sum_right^2 / n_right.

    This is the cut of the least squared error. Returned are the sum and the position of the first row on the right,
    which is -1 if no cut is above `best`. The largest gain is computed first, because this vectorises, and its position
    only if it is above `best`.
    """
    count = end - begin
    running = 0.0
    for i in range(1, count):
        running += residual[_row(keys[begin + i - 1])]
        left_sum[i] = running
    largest = best
    for i in range(1, count):
        largest = max(largest, _gain(left_sum[i], total, inverse[i], inverse[count - i]))
    at = -1
    if largest > best:
        for i in range(1, count):
            gain = _gain(left_sum[i], total, inverse[i], inverse[count - i])
            if gain > best and keys[begin + i] >> 32 != keys[begin + i - 1] >> 32:
                best, at = gain, begin + i
    return best, at


@compiled
def _best_weighted_split(keys, residual, weight, begin, end, total, total_weight, penalty, best):
    """Find the same cut where rows have weights: sum_left^2 / weight_left + sum_right^2 / weight_right is largest."""
    at = -1
    left_sum, left_weight = 0.0, 0.0
    for position in range(begin + 1, end):
        row = _row(keys[position - 1])
        left_sum += weight[row] * residual[row]
        left_weight += weight[row]
        if keys[position] >> 32 != keys[position - 1] >> 32 and 0 < left_weight < total_weight:
            right_weight = total_weight - left_weight
            gain = _gain(left_sum, total, 1 / (left_weight + penalty), 1 / (right_weight + penalty))
            if gain > best:
                best, at = gain, position
    return best, at


@compiled
def _gain(left_sum, total, inverse_left, inverse_right):
    right_sum = total - left_sum
    return left_sum**2 * inverse_left + right_sum**2 * inverse_right


@compiled
def _staged(X, mean, features, thresholds, leaves, y, weight):
    """Add all stages to the mean and return the weighted RMSE against y after each of them."""
    stages, num_inner = features.shape
    total_weight = weight.sum()
    rmse = np.empty(stages)
    for stage in range(stages):
        squares = 0.0
        for row in range(X.shape[0]):
            inner = 0
            while inner < num_inner:
                inner = 2 * inner + 1 + (X[row, features[stage, inner]] > thresholds[stage, inner])
            mean[row] += leaves[stage, inner - num_inner]
            squares += weight[row] * (y[row] - mean[row]) ** 2
        rmse[stage] = np.sqrt(squares / total_weight)
    return rmse
