"""Partitions of unity that are fixed before the data are seen, as sparse matrices of weights.

A partition on the lattice with J_1 x ... x J_m cells is the product of one on each axis. Every axis gives each row a
few windows with their weights, which add to 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import sparse
from scipy.interpolate import BSpline
from scipy.spatial import cKDTree

AxisWeights = tuple[np.ndarray, np.ndarray]  # numbers of windows (N, q), weights (N, q)
Axis = Callable[[np.ndarray, int], AxisWeights]

_BUMP_RADIUS = 0.7  # of the mesh: neighbouring windows overlap, and do not reproduce linear functions
_SCATTERED_RADIUS = 1.5
_MOST_NEIGHBOURS = 8


def lattice_shape(num_windows: float, dimension: int) -> tuple[int, ...]:
    """Return the numbers of cells along the axes, equal or one apart, whose product is nearest to a number of windows.

    Nearest is meant on the logarithmic scale, so that sizes too large and too small are equally likely.
    """
    low = max(1, math.floor(num_windows ** (1 / dimension) + 1e-9))
    shapes = [(low + 1,) * more + (low,) * (dimension - more) for more in range(dimension + 1)]
    return min(shapes, key=lambda shape: abs(math.log(math.prod(shape) / max(num_windows, 1.0))))


def truncated_linear(x: np.ndarray, count: int) -> AxisWeights:
    """Weigh by linear B-splines at the centres of the cells, renormalised at the ends: the partition of (A2)."""
    place = x * count - 0.5
    left = np.clip(np.floor(place), 0, max(count - 2, 0)).astype(np.int64)
    share = np.clip(place - left, 0.0, 1.0)
    if count == 1:
        return left[:, None], np.ones((len(x), 1))
    return np.stack([left, left + 1], axis=1), np.stack([1 - share, share], axis=1)


def bump(x: np.ndarray, count: int) -> AxisWeights:
    """Weigh by normalised bumps (1 - u^2)^2 around the centres of the cells: a partition without special properties."""
    place = x * count
    own = np.minimum(np.floor(place), count - 1).astype(np.int64)
    offset = place - own - 0.5
    other = own + np.where(offset >= 0, 1, -1)
    weight, other_weight = (_bump(distance / _BUMP_RADIUS) for distance in (np.abs(offset), 1 - np.abs(offset)))
    other_weight = np.where((other < 0) | (other >= count), 0.0, other_weight)
    columns = np.stack([own, np.clip(other, 0, count - 1)], axis=1)
    values = np.stack([weight, other_weight], axis=1)
    return columns, values / values.sum(axis=1, keepdims=True)


def _bump(u: np.ndarray) -> np.ndarray:
    return np.maximum(1 - u**2, 0.0) ** 2


def spline(degree: int) -> Axis:
    """Weigh by B-splines whose knots reach the ends of the axis, where they reproduce polynomials of their degree."""

    def axis(x: np.ndarray, count: int) -> AxisWeights:
        order = min(degree, count - 1)
        knots = np.concatenate([np.zeros(order), np.linspace(0, 1, count - order + 1), np.ones(order)])
        matrix = BSpline.design_matrix(x, knots, order)
        shape = (len(x), order + 1)
        return matrix.indices.reshape(shape).astype(np.int64), matrix.data.reshape(shape)

    return axis


def product_weights(X: np.ndarray, shape: tuple[int, ...], axis: Axis) -> sparse.csr_matrix:
    """Return the weights (N, K) of the product partition with `shape` windows along the axes."""
    columns, values = np.zeros((len(X), 1), dtype=np.int64), np.ones((len(X), 1))
    for x, count in zip(X.T, shape, strict=True):
        number, weight = axis(x, count)
        columns = (columns[:, :, None] * count + number[:, None, :]).reshape(len(X), -1)
        values = (values[:, :, None] * weight[:, None, :]).reshape(len(X), -1)
    return csr_rows(columns, values, math.prod(shape))


def csr_rows(columns: np.ndarray, values: np.ndarray, width: int) -> sparse.csr_matrix:
    """Return a sparse matrix from the columns and values of every row."""
    starts = np.arange(0, columns.size + 1, columns.shape[1])
    matrix = sparse.csr_matrix((values.ravel(), columns.ravel(), starts), shape=(len(columns), width))
    matrix.eliminate_zeros()
    return matrix


def scattered_weights(X: np.ndarray, centres: np.ndarray, mesh: float) -> sparse.csr_matrix:
    """Weigh by normalised bumps of the distance to scattered centres: the geodesic partition of a manifold.

    Distances are those of the surrounding space, which at the scale of the mesh are geodesic up to a constant.
    """
    overlap = min(_MOST_NEIGHBOURS, len(centres))
    distance, columns = cKDTree(centres).query(X, k=np.arange(1, overlap + 1))
    values = _bump(distance / (_SCATTERED_RADIUS * mesh))
    values[:, 0] = np.maximum(values[:, 0], 1e-6)  # the nearest centre, where a coarse lattice leaves a hole
    return csr_rows(columns, values / values.sum(axis=1, keepdims=True), len(centres))


def linear_experts(weights: sparse.csr_matrix, X: np.ndarray, shape: tuple[int, ...]) -> sparse.csr_matrix:
    """Give each window of a lattice an expert that is linear: columns w_j, and w_j (x - x_j) over the mesh."""
    rows = np.repeat(np.arange(len(X)), np.diff(weights.indptr))
    blocks = [weights]
    for axis, place in enumerate(np.unravel_index(weights.indices, shape)):
        offset = X[rows, axis] * shape[axis] - place - 0.5
        blocks.append(sparse.csr_matrix((weights.data * offset, weights.indices, weights.indptr), weights.shape))
    return sparse.hstack(blocks).tocsr()
