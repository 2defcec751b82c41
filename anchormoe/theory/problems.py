"""Regression problems whose smoothness is known exactly: where the inputs live, and random regression functions there.

A regression function is a random series with coefficients at the boundary of the Hölder ball of order a,

    g(u) = sum_l 2^(-a l) sign_(l, k) psi(2^l u + shift_l - k),    k = floor(2^l u + shift_l),

on the cube of its own dimension m. psi is a bump on the unit cube with two continuous derivatives and unit energy, so
that g is not smoother than a <= 2 at any level, and a method gains nothing from smoothness that was not assumed. For
a = 1 and a = 2 the series lies in the Hölder-Zygmund class of that order, whose minimax rate is the same.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.stats import qmc

Function = Callable[[np.ndarray], np.ndarray]  # rows of inputs (N, d) -> values (N,)

_LEVELS = {1: 16, 2: 12, 3: 11, 4: 10}  # by dimension: far below the mesh of any partition that is tried
_SIGNS = 2**16
# The integral of (4 t (1 - t))^6 over [0, 1]: the energy of the bump along one axis.
_BUMP_ENERGY = 4**6 * math.factorial(6) ** 2 / math.factorial(13)


def holder_series(smoothness: float, dimension: int, rng: np.random.Generator, *, periodic: bool = False) -> Function:
    """Draw a random series of order `smoothness` on the cube of this dimension, or on the circle of length 1."""
    levels = range(_LEVELS[dimension] + 1)
    shifts = rng.uniform(size=(len(levels), dimension))
    multipliers = 2 * rng.integers(0, 2**30, size=(len(levels), dimension)) + 1
    signs = rng.choice([-1.0, 1.0], size=(len(levels), _SIGNS))

    def series(u: np.ndarray) -> np.ndarray:
        values = np.zeros(len(u))
        for level in levels:
            place = u * 2.0**level + shifts[level]
            cell = np.floor(place)
            inside = place - cell
            bump = np.prod(4 * inside * (1 - inside), axis=1) ** 3
            number = cell.astype(np.int64)
            if periodic:
                number %= 2**level
            # A linear hash: neighbouring cells of a level have signs that do not depend on one another.
            key = (number @ multipliers[level]) >> 7
            values += 2.0 ** (-smoothness * level) * signs[level, key % _SIGNS] * bump
        return values / math.sqrt(_BUMP_ENERGY**dimension)

    return series


class Problem(Protocol):
    """A problem says where inputs live and how regression functions are drawn there."""

    def __hash__(self) -> int:
        """Return the hash of a value that does not change: estimators are remembered by their problem."""

    @property
    def smoothness(self) -> float:
        """Return the order a of the regression function."""

    @property
    def ambient_dimension(self) -> int:
        """Return the number of columns of the inputs."""

    @property
    def intrinsic_dimension(self) -> int:
        """Return the dimension that the rate should depend on."""

    @property
    def coordinates(self) -> int:
        """Return the number of coordinates c that `placed` takes."""

    def placed(self, u: np.ndarray) -> np.ndarray:
        """Turn points that are uniform on [0, 1]^c into inputs (N, d)."""

    def function(self, rng: np.random.Generator) -> Function:
        """Draw a regression function."""


def inputs(problem: Problem, num_rows: int, rng: np.random.Generator) -> np.ndarray:
    """Draw inputs (N, d)."""
    return problem.placed(rng.uniform(size=(num_rows, problem.coordinates)))


@functools.lru_cache(maxsize=4)
def grid(problem: Problem, exponent: int, seed: int) -> np.ndarray:
    """Return the fixed grid that squared errors are measured on: 2^exponent points of a scrambled Sobol sequence."""
    return problem.placed(qmc.Sobol(problem.coordinates, rng=seed).random_base2(exponent))


@dataclass(frozen=True)
class Sample:
    """Observed rows, and the true regression function on the grid."""

    X: np.ndarray
    y: np.ndarray
    truth: np.ndarray


@functools.lru_cache(maxsize=32)
def sample(problem: Problem, noise: float, num_rows: int, exponent: int, seed: int, replicate: int) -> Sample:
    """Draw function, inputs and noise of a replicate; the last ones are kept for other estimators of the same rows."""
    rng = np.random.default_rng([seed, replicate, num_rows])
    function = problem.function(rng)
    X = inputs(problem, num_rows, rng)
    y = function(X) + noise * rng.standard_normal(num_rows)
    return Sample(X, y, function(grid(problem, exponent, seed)))


@dataclass(frozen=True)
class _OnCube:
    """Inputs uniform on [0, 1]^d, which are their own coordinates."""

    smoothness: float
    ambient_dimension: int

    @property
    def coordinates(self) -> int:
        return self.ambient_dimension

    def placed(self, u: np.ndarray) -> np.ndarray:
        return u


@dataclass(frozen=True)
class Cube(_OnCube):
    """Inputs uniform on [0, 1]^d; the regression function is a series in the first `relevant` of them."""

    relevant: int

    @property
    def intrinsic_dimension(self) -> int:
        return self.relevant

    def function(self, rng: np.random.Generator) -> Function:
        series = holder_series(self.smoothness, self.relevant, rng)
        return lambda X: series(X[:, : self.relevant])


@dataclass(frozen=True)
class Warped(_OnCube):
    """Inputs uniform on [0, 1]^d; the regression function is g(T(x)) with a series g and a change of variables T.

    `bi_lipschitz`: T stretches every axis by 1.6 and shrinks it by 0.4 in turn, and shears the second axis.
    `rough`: T is itself a series of order 1/2 on each axis, so that g(T(x)) has order a / 2 only.
    """

    warp: str

    @property
    def intrinsic_dimension(self) -> int:
        return self.ambient_dimension

    def function(self, rng: np.random.Generator) -> Function:
        series = holder_series(self.smoothness, self.ambient_dimension, rng)
        if self.warp == "bi_lipschitz":
            return lambda X: series(_stretched(X))
        axes = [holder_series(0.5, 1, rng) for _ in range(self.ambient_dimension)]
        return lambda X: series(np.column_stack([axis(X[:, [k]]) for k, axis in enumerate(axes)]))


def _stretched(X: np.ndarray) -> np.ndarray:
    moved = np.interp(X, [0, 0.25, 0.5, 0.75, 1], [0, 0.1, 0.5, 0.6, 1])
    if X.shape[1] > 1:
        moved[:, 1] += 0.5 * np.abs(moved[:, 0] - 0.5)
    return moved


@dataclass(frozen=True)
class Curve:
    """Inputs uniform on a closed curve in [0, 1]^d that has constant speed and winds in every pair of coordinates.

    `lattice` returns evenly spread points (K, d) and the distance between neighbours, here and on the sphere.
    """

    smoothness: float
    ambient_dimension: int  # even

    @property
    def intrinsic_dimension(self) -> int:
        return 1

    @property
    def coordinates(self) -> int:
        return 1

    def placed(self, u: np.ndarray) -> np.ndarray:
        order = np.arange(1, self.ambient_dimension // 2 + 1)
        angles = 2 * math.pi * u * order
        pairs = np.stack([np.cos(angles), np.sin(angles)], axis=2) * (0.4 / order)[:, None]
        return 0.5 + pairs.reshape(len(u), self.ambient_dimension)

    def function(self, rng: np.random.Generator) -> Function:
        series = holder_series(self.smoothness, 1, rng, periodic=True)
        return lambda X: series(np.arctan2(X[:, [1]] - 0.5, X[:, [0]] - 0.5) / (2 * math.pi) % 1.0)

    def lattice(self, num_points: int) -> tuple[np.ndarray, float]:
        points = self.placed(np.arange(num_points)[:, None] / num_points)
        mesh = float(np.linalg.norm(points[1] - points[0])) if num_points > 1 else 1.0
        return points, mesh


@dataclass(frozen=True)
class Sphere:
    """Inputs uniform on a sphere of dimension 2 that lies askew in [0, 1]^d."""

    smoothness: float
    ambient_dimension: int

    @property
    def intrinsic_dimension(self) -> int:
        return 2

    @property
    def coordinates(self) -> int:
        return 2

    def placed(self, u: np.ndarray) -> np.ndarray:
        height, angle = 1 - 2 * u[:, 0], 2 * math.pi * u[:, 1]
        ring = np.sqrt(1 - height**2)
        directions = np.column_stack([ring * np.cos(angle), ring * np.sin(angle), height])
        return 0.5 + 0.4 * directions @ _askew(self.ambient_dimension).T

    def function(self, rng: np.random.Generator) -> Function:
        series, axes = holder_series(self.smoothness, 3, rng), _askew(self.ambient_dimension)
        return lambda X: series(0.5 + (X - 0.5) @ axes)

    def lattice(self, num_points: int) -> tuple[np.ndarray, float]:
        """Return a Fibonacci lattice."""
        number = np.arange(num_points) + 0.5
        turns = number * (1 + math.sqrt(5)) / 2
        points = self.placed(np.column_stack([number / num_points, turns % 1.0]))
        return points, 0.4 * math.sqrt(4 * math.pi / num_points)


@functools.cache
def _askew(dimension: int) -> np.ndarray:
    """Return three orthonormal columns (d, 3) in no special direction."""
    return np.linalg.qr(np.random.default_rng(dimension).standard_normal((dimension, 3)))[0]
