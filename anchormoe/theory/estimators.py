"""Arm 1: least squares on a fixed partition of unity, and the number of windows K by a rule."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.linalg import LinearOperator, cg

from anchormoe.theory import partitions
from anchormoe.theory.problems import Problem, grid, sample

_RIDGE = 0.01  # of an observation: it decides only where a window has hardly any
_DENSE_COLUMNS, _DENSE_OVERLAP = 1000, 32  # up to here the normal equations are solved directly

PILOT_ROWS = (2**8, 2**9)  # the numbers of rows that the constant of K is fitted at
_PILOT_CONSTANTS = 2.0 ** np.arange(-4, 4.1, 0.5)
_PILOT_REPLICATES, _PILOT_GRID, _PILOT_SEED = 8, 12, 10**6

_AXES = {
    "truncated_spline": partitions.truncated_linear,
    "bump": partitions.bump,
    "spline": partitions.spline(1),
    "linear_experts": partitions.bump,
    "smoother": partitions.spline(2),
}
OBJECTS = (*_AXES, "scattered")


@dataclass(frozen=True)
class Estimator:
    """Least squares with K windows.

    truncated_spline: constant experts on the partition of (A2), linear B-splines renormalised at the boundary
    bump: constant experts on normalised bumps, a generic partition
    spline: constant experts on linear B-splines with nodes at the boundary, which reproduce linear functions
    linear_experts: local linear experts on the generic partition
    smoother: quadratic B-splines, the control with a known rate
    scattered: constant experts on bumps around points of a manifold
    """

    problem: Problem
    kind: str
    columns: tuple[int, ...]  # of the inputs, that a lattice lies on

    def shape(self, experts: float) -> tuple[int, ...]:
        """Return the numbers of windows along the axes for about this number of experts."""
        if self.kind == "scattered":
            return (max(1, round(experts)),)
        return partitions.lattice_shape(experts, len(self.columns))

    def design(self, X: np.ndarray, shape: tuple[int, ...]) -> sparse.csr_matrix:
        """Return the matrix whose columns are windows times the functions of an expert."""
        if self.kind == "scattered":
            return partitions.scattered_weights(X, *_lattice(self.problem, shape[0]))
        chosen = X[:, self.columns]
        weights = partitions.product_weights(chosen, shape, _AXES[self.kind])
        return partitions.linear_experts(weights, chosen, shape) if self.kind == "linear_experts" else weights


def make_estimator(problem: Problem, kind: str, columns: tuple[int, ...] | None = None) -> Estimator:
    """Make an estimator whose lattice lies on the coordinates that matter, or on those that are named."""
    return Estimator(problem, kind, tuple(range(problem.intrinsic_dimension)) if columns is None else columns)


@functools.cache
def _lattice(problem: Any, num_points: int) -> tuple[np.ndarray, float]:
    """Return the lattice of a manifold."""
    return problem.lattice(num_points)


def least_squares(design: sparse.csr_matrix, y: np.ndarray) -> np.ndarray:
    """Return the coefficients of least squares with a ridge of a hundredth of an observation.

    Small systems are solved directly; the normal equations of large ones, whose windows overlap little and are hence
    well conditioned, by conjugate gradients.
    """
    size, transposed = design.shape[1], design.T.tocsr()
    if size <= _DENSE_COLUMNS and design.nnz <= _DENSE_OVERLAP * len(y):
        gram = (transposed @ design).toarray()
        gram[np.diag_indices(size)] += _RIDGE
        return linalg.solve(gram, transposed @ y, assume_a="pos")
    diagonal = np.asarray(design.multiply(design).sum(axis=0)).ravel() + _RIDGE
    normal = LinearOperator((size, size), matvec=lambda v: transposed @ (design @ v) + _RIDGE * v)
    preconditioner = LinearOperator((size, size), matvec=lambda v: v.ravel() / diagonal)
    coefficients, _ = cg(normal, transposed @ y, rtol=1e-6, maxiter=500, M=preconditioner)
    return coefficients


def rule_exponent(smoothness: float, dimension: float) -> float:
    """Return the exponent of N in the paper's choice of K: d / (2 a + d)."""
    return dimension / (2 * smoothness + dimension)


class RiskCurve:
    """The squared L2 error of an estimator on a fixed grid."""

    def __init__(self, estimator: Estimator, noise: float, exponent: int, seed: int) -> None:
        self.estimator, self.noise, self.exponent, self.seed = estimator, noise, exponent, seed
        self._points = grid(estimator.problem, exponent, seed)
        self._designs: dict[tuple[int, ...], sparse.csr_matrix] = {}

    def risks(self, num_rows: int, experts: list[float], replicates: int) -> np.ndarray:
        """Return the errors (replicates, len(experts)); a replicate draws function, inputs and noise anew."""
        shapes = [self.estimator.shape(number) for number in experts]
        for shape in set(shapes) - self._designs.keys():
            self._designs[shape] = self.estimator.design(self._points, shape)
        return np.array([self._replicate(num_rows, shapes, number) for number in range(1, replicates + 1)])

    def _replicate(self, num_rows: int, shapes: list[tuple[int, ...]], number: int) -> list[float]:
        rows = sample(self.estimator.problem, self.noise, num_rows, self.exponent, self.seed, number)
        errors: dict[tuple[int, ...], float] = {}
        for shape in set(shapes):
            coefficients = least_squares(self.estimator.design(rows.X, shape), rows.y)
            errors[shape] = float(np.mean((self._designs[shape] @ coefficients - rows.truth) ** 2))
        return [errors[shape] for shape in shapes]


@functools.cache
def fitted_constant(estimator: Estimator, noise: float, dimension: int) -> float:
    """Fit the constant c of K = c N^(m / (2 a + m)) at the smallest numbers of rows, on replicates of their own.

    `dimension` is the m of the rule.
    """
    exponent = rule_exponent(estimator.problem.smoothness, dimension)
    curve = RiskCurve(estimator, noise, _PILOT_GRID, _PILOT_SEED)
    total = np.zeros(len(_PILOT_CONSTANTS))
    for num_rows in PILOT_ROWS:
        experts = [float(min(c * num_rows**exponent, num_rows / 2)) for c in _PILOT_CONSTANTS]
        total += np.log(curve.risks(num_rows, experts, _PILOT_REPLICATES).mean(axis=0))
    return float(_PILOT_CONSTANTS[np.argmin(total)])


def num_experts(estimator: Estimator, rule: str, num_rows: int, noise: float) -> list[float]:
    """Return the K that a rule gives for this number of rows; `oracle` gives several, the best of which counts.

    theory: c N^(m / (2 a + m)), m the intrinsic dimension; ambient: the same with the number of columns for m
    fixed: the K of `theory` at the smallest number of rows; proportional: as many coefficients as rows
    """
    problem, smallest = estimator.problem, PILOT_ROWS[0]
    dimension = problem.ambient_dimension if rule == "ambient" else problem.intrinsic_dimension
    constant = fitted_constant(estimator, noise, dimension)
    exponent = rule_exponent(problem.smoothness, dimension)
    by_rule = constant * num_rows**exponent
    of_an_expert = 1 + len(estimator.columns) if estimator.kind == "linear_experts" else 1
    return {
        "theory": [by_rule],
        "ambient": [by_rule],
        "fixed": [constant * smallest**exponent],
        "proportional": [num_rows / of_an_expert],
        "oracle": [by_rule / 2, by_rule, by_rule * 2],
    }[rule]


def windows(estimator: Estimator, experts: float) -> int:
    """Return the number of windows that an estimator has when about `experts` are asked for."""
    return math.prod(estimator.shape(experts))
