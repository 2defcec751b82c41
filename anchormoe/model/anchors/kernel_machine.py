"""Kernel regression with a length-scale for every feature: an anchor for smooth targets.

It is the mean of a Gaussian process with the Matern-5/2 kernel and Gaussian noise,

    k(x, x') = signal (1 + a + a^2 / 3) exp(-a),  a^2 = 5 sum_d (rate_d (x_d - x'_d))^2.

Rates, signal and noise maximise the marginal likelihood on a few hundred rows, which is the slow part. Given the
kernel, all rows enter one linear system.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.optimize import minimize

from anchormoe.model.training_rows import some_rows

NOISE_FLOOR = 1e-6  # of the target's variance: equal rows must not make the system singular
JITTER = 1e-8  # of the signal, for the same reason where there is no noise
LOG_RATE, LOG_SIGNAL, LOG_NOISE = (-7.0, 4.0), (-7.0, 7.0), (-16.0, 2.0)  # bounds of the search
START_NOISE = 0.1
BLOCK_ROWS = 16384  # rows whose covariances with all centers are held in memory at a time
PREDICTED_ROWS = 512  # the same in prediction
CACHED_ROWS = 64  # rows whose intermediate results need not leave the processor's cache


@dataclass(frozen=True)
class Kernel:
    """A kernel: `center` and `rates` (D) of the raw features, variances `signal` and `noise` of a z-scored target."""

    center: np.ndarray
    rates: np.ndarray
    signal: float
    noise: float

    def positions(self, X: np.ndarray) -> np.ndarray:
        """Return rows (N, D) in units of the length-scales."""
        return (X - self.center) * self.rates

    def covariance(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return the covariance (N, M) of positions (N, D) and (M, D)."""
        products = 2 * a @ b.T
        squares_a, squares_b = (a * a).sum(1), (b * b).sum(1)
        for first in range(0, len(a), CACHED_ROWS):
            rows = slice(first, first + CACHED_ROWS)
            distance = np.sqrt(5 * np.maximum(squares_a[rows, None] + squares_b - products[rows], 0))
            products[rows] = self.signal * _correlation(distance, np.exp(-distance))
        return products

    def self_covariance(self, a: np.ndarray) -> np.ndarray:
        """Return the covariance of positions with themselves, which is never singular."""
        covariance = self.covariance(a, a)
        covariance[np.diag_indices(len(a))] += JITTER * self.signal
        return covariance


def _scaled_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return sqrt(5) times the distances between positions."""
    squares = (a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * a @ b.T
    return np.sqrt(5 * np.maximum(squares, 0))


def _correlation(distance: np.ndarray, decay: np.ndarray) -> np.ndarray:
    """Compute the Matern-5/2 correlation of scaled distances; `decay` is exp(-distance)."""
    return (1 + distance + distance * distance / 3) * decay


def learn_kernel(X: np.ndarray, y: np.ndarray, *, steps: int) -> Kernel:
    """Find the likeliest kernel for a z-scored target with at most `steps` evaluations of the likelihood."""
    center, spread = X.mean(0), X.std(0)
    spread = np.where(spread > 0, spread, 1.0)
    dimension = X.shape[1]
    # Distances between standardised rows grow with the root of the number of features.
    start = np.concatenate([np.full(dimension, -0.5 * np.log(dimension)), [0.0, np.log(START_NOISE)]])
    found = minimize(
        negative_log_likelihood,
        start,
        args=((X - center) / spread, y),
        jac=True,
        method="L-BFGS-B",
        bounds=[*[LOG_RATE] * dimension, LOG_SIGNAL, LOG_NOISE],
        options={"maxfun": steps},
    ).x
    rates, signal, noise = np.exp(found[:-2]), float(np.exp(found[-2])), float(np.exp(found[-1]))
    return Kernel(center, rates / spread, signal, noise + NOISE_FLOOR)


def negative_log_likelihood(parameters: np.ndarray, X: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """Return value and gradient, per row and without the constant, for the logs of rates, signal and noise (D + 2)."""
    positions = X * np.exp(parameters[:-2])
    signal, noise = np.exp(parameters[-2:])
    distance = _scaled_distances(positions, positions)
    decay = np.exp(-distance)
    correlation = _correlation(distance, decay)
    covariance = signal * correlation
    covariance[np.diag_indices(len(y))] += noise + NOISE_FLOOR + JITTER * signal
    lower, failed = dpotrf(covariance, lower=1)
    if failed:  # the line search went too far: a high value makes it return
        return 1e10, np.zeros_like(parameters)
    solved = cho_solve((lower, True), y)
    value = 0.5 * y @ solved + np.log(lower.diagonal()).sum()
    inverse = np.tril(dpotri(lower, lower=1)[0])
    inverse += np.tril(inverse, -1).T
    # The gradient by the covariance is (inverse - solved solved^T) / 2.
    by_covariance = 0.5 * (inverse - np.outer(solved, solved))
    by_signal = signal * ((by_covariance * correlation).sum() + JITTER * by_covariance.trace())
    by_noise = noise * by_covariance.trace()
    # d covariance / d (squared distance) = -5/6 signal (1 + a) exp(-a), and sum_ij W_ij (z_i - z_j)^2 for a symmetric W
    # is 2 sum_i z_i^2 sum_j W_ij - 2 z^T W z.
    by_square = by_covariance * ((1 + distance) * decay) * (-5 / 6 * signal)
    by_rates = 4 * (by_square.sum(1) @ (positions * positions) - (positions * (by_square @ positions)).sum(0))
    gradient = np.concatenate([by_rates, [by_signal, by_noise]])
    return value / len(y), gradient / len(y)


@dataclass(kw_only=True, eq=False)
class KernelMachine:
    """The kernel regression.

    Up to `exact_up_to` rows, all are centers of the kernel. Above, `num_centers` of them are, drawn at random (the
    subset-of-regressors approximation). At most `most_rows_to_fit` rows are used, drawn at random.
    """

    least_rows: int = 220
    most_rows: int = 500
    steps: int = 60
    exact_up_to: int = 1500
    num_centers: int = 1000
    most_rows_to_fit: int = 50_000
    random_state: int = 0
    # Results of the fit: the mean is y_center + y_scale * covariance(x, centers) @ weights.
    kernel: Kernel = field(init=False, repr=False)
    centers: np.ndarray = field(init=False, repr=False)
    weights: np.ndarray = field(init=False, repr=False)
    y_center: float = field(init=False, repr=False)
    y_scale: float = field(init=False, repr=False)

    def rows_to_learn(self, num_rows: int) -> int:
        """Return the number of rows to learn a kernel from: one in twenty, within limits."""
        return max(self.least_rows, min(num_rows // 20, self.most_rows))

    def learn_kernel(self, X: np.ndarray, y: np.ndarray) -> Kernel:
        some = self._some(len(y), self.rows_to_learn(len(y)))
        return learn_kernel(X[some], _z_scored(y[some])[0], steps=self.steps)

    def fit(
        self, X: np.ndarray, y: np.ndarray, sample_weight: np.ndarray | None = None, *, kernel: Kernel | None = None
    ) -> Self:
        """Fit to rows; a kernel that is not given is learnt from the same rows.

        A row of weight w has the noise's variance over w, as the mean of w equal rows would have.
        """
        some = some_rows(len(y), self.most_rows_to_fit, self.random_state)
        X, y, sample_weight = X[some], y[some], None if sample_weight is None else sample_weight[some]
        self.kernel = kernel = self.learn_kernel(X, y) if kernel is None else kernel
        target, self.y_center, self.y_scale = _z_scored(y)
        if len(y) <= self.exact_up_to:
            self.centers = kernel.positions(X)
            noise = kernel.noise if sample_weight is None else kernel.noise / sample_weight
            self.weights = cho_solve(_factor(kernel.self_covariance(self.centers), noise), target)
        else:
            self.centers = kernel.positions(X[self._some(len(y), self.num_centers)])
            lower, _ = _factor(kernel.self_covariance(self.centers))
            gram, moment = self._normal_equations(lower, X, target, sample_weight)
            solved = cho_solve(_factor(gram, kernel.noise), moment)
            self.weights = solve_triangular(lower, solved, lower=True, trans="T")
        return self

    def _normal_equations(
        self, lower: np.ndarray, X: np.ndarray, target: np.ndarray, weight: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return sum_n w_n f_n f_n^T and sum_n w_n f_n y_n of the rows' features f, summed over blocks of rows."""
        gram, moment = np.zeros((len(lower), len(lower))), np.zeros(len(lower))
        for first in range(0, len(target), BLOCK_ROWS):
            block = slice(first, first + BLOCK_ROWS)
            positions = self.kernel.positions(X[block])
            features = solve_triangular(lower, self.kernel.covariance(self.centers, positions), lower=True)
            weighted = features if weight is None else features * weight[block]
            gram += weighted @ features.T
            moment += weighted @ target[block]
        return gram, moment

    def _some(self, num_rows: int, how_many: int) -> np.ndarray:
        return np.random.default_rng(self.random_state).permutation(num_rows)[:how_many]

    def predict(self, X: np.ndarray) -> np.ndarray:
        blocks = [X[first : first + PREDICTED_ROWS] for first in range(0, len(X), PREDICTED_ROWS)]
        means = [self.kernel.covariance(self.kernel.positions(rows), self.centers) @ self.weights for rows in blocks]
        return np.concatenate([np.empty(0), *means]) * self.y_scale + self.y_center


def _z_scored(y: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Return the z-scored target, its center and its scale; a constant target keeps its unit."""
    center, scale = float(y.mean()), float(y.std()) or 1.0
    return (y - center) / scale, center, scale


def _factor(matrix: np.ndarray, noise: float | np.ndarray = 0.0) -> tuple[np.ndarray, bool]:
    """Return the Cholesky factor of the matrix with `noise` added to its diagonal; the matrix is overwritten."""
    matrix[np.diag_indices(len(matrix))] += noise
    return cho_factor(matrix, lower=True, overwrite_a=True)
