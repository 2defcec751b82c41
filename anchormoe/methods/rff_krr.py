"""Random-Fourier-feature kernel-ridge mixture: the model behind the published "Anchor-MoE" row of Kin8nm.

K-means clusters the inputs; each cluster has a ridge regression on random Fourier features of its own bandwidth, with
one residual variance; soft cluster memberships mix them. No trees, no network, no validation, no calibration.
"""

from __future__ import annotations

import time

import numpy as np
import torch
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.blas import ssyrk
from scipy.sparse.linalg import LinearOperator, cg
from sklearn.cluster import KMeans

from anchormoe.config import Config
from anchormoe.data import Dataset
from anchormoe.metrics import Outcome
from anchormoe.mixture import GaussianMixture
from anchormoe.splits import Split

NUM_CLUSTERS = 20
NUM_FEATURES = 4096
RIDGE = 1e-3
VARIANCE_FLOOR = 1e-8
_FLOOR = 1e-12


def fit_predict(config: Config, dataset: Dataset, split: Split, *, inner_seed: int) -> Outcome:
    """Uses the whole 90% and its own seed, the run's seed + split number, whatever the protocol's inner seed."""
    start = time.perf_counter()
    seed = config.seed + split.number
    X, y = dataset.X[split.train], dataset.y[split.train]
    column_mean, column_std = X.mean(0), X.std(0)
    column_std[column_std == 0] = 1.0  # a constant column says nothing; it must not divide by zero
    center, scale = float(y.mean()), float(y.std()) + 1e-8
    X = (X - column_mean) / column_std
    z = (y - center) / scale
    X_test = (dataset.X[split.test] - column_mean) / column_std

    clusters = KMeans(NUM_CLUSTERS, n_init=10, random_state=seed).fit(X)
    bandwidth2 = np.array(
        [_bandwidth2(X[clusters.labels_ == k], clusters.cluster_centers_[k]) for k in range(NUM_CLUSTERS)]
    )
    membership = _memberships(X, clusters.cluster_centers_, bandwidth2)
    test_membership = _memberships(X_test, clusters.cluster_centers_, bandwidth2)

    means = np.empty_like(test_membership)
    variances = np.empty(NUM_CLUSTERS)
    for k in range(NUM_CLUSTERS):
        features = _FourierFeatures(X.shape[1], np.sqrt(bandwidth2[k]), seed + 100 + k)
        design, weight = features(X), membership[:, k]
        coefficients = _weighted_ridge(design, weight, z)
        residual2 = (z - design @ coefficients) ** 2
        variances[k] = max(float(weight @ residual2 / (weight.sum() + _FLOOR)), VARIANCE_FLOOR)
        means[:, k] = features(X_test) @ coefficients
    fitted = time.perf_counter()

    mixture = GaussianMixture(
        torch.as_tensor(np.log(test_membership + _FLOOR)),
        torch.as_tensor(means),
        torch.as_tensor(np.sqrt(variances)).expand(means.shape),
    )
    mean_y = (test_membership * means).sum(1) * scale + center
    return Outcome(
        mixture_z=mixture,
        center=center,
        scale=scale,
        mean_y=mean_y,
        mean_y_uncalibrated=mean_y,
        fit_seconds=fitted - start,
        predict_seconds=time.perf_counter() - fitted,
    )


class _FourierFeatures:
    """phi(x) = sqrt(2 / m) cos(x Omega + beta), Omega ~ N(0, 1 / bandwidth^2), beta ~ U[0, 2 pi)."""

    def __init__(self, input_dim: int, bandwidth: float, seed: int) -> None:
        stream = np.random.RandomState(seed)
        self.frequency = stream.standard_normal((input_dim, NUM_FEATURES)) / bandwidth
        self.phase = stream.uniform(0, 2 * np.pi, NUM_FEATURES)

    def __call__(self, X: np.ndarray) -> np.ndarray:
        features = X @ self.frequency
        features += self.phase
        torch.from_numpy(features).cos_()  # in place, and torch's cosine is vectorised
        features *= np.sqrt(2 / NUM_FEATURES)
        return features


def _weighted_ridge(design: np.ndarray, weight: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Solve (Phi' W Phi + RIDGE I) theta = Phi' W z.

    By conjugate gradients in float64, preconditioned with the Cholesky factor of the same matrix in float32: the
    matrix and its factor are nearly all of the work, and in float32 they take half the time. Some five steps do.
    """
    # A product of a matrix with its own transpose is symmetric: BLAS computes one triangle, in half the time.
    gram = ssyrk(1.0, np.float32(design * np.sqrt(weight)[:, None]).T, lower=True)
    gram[np.diag_indices(len(gram))] += np.float32(RIDGE)
    factor = cho_factor(gram, lower=True, overwrite_a=True)
    shape = gram.shape
    matrix = LinearOperator(shape, matvec=lambda v: design.T @ (weight * (design @ v)) + RIDGE * v, dtype=np.float64)
    inverse = LinearOperator(shape, matvec=lambda v: np.float64(cho_solve(factor, np.float32(v))), dtype=np.float64)
    solution, unsolved = cg(matrix, design.T @ (weight * z), rtol=1e-12, M=inverse)
    if unsolved:
        raise ArithmeticError(f"the ridge regression must converge, but did not in {unsolved} steps")
    return solution


def _bandwidth2(members: np.ndarray, center: np.ndarray) -> float:
    if len(members) < 2:
        return 1.0
    return float(((members - center) ** 2).sum(1).mean()) + 1e-6


def _memberships(X: np.ndarray, centers: np.ndarray, bandwidth2: np.ndarray) -> np.ndarray:
    distance2 = ((X[:, None, :] - centers) ** 2).sum(-1)
    kernel = np.exp(-distance2 / (2 * bandwidth2))
    return kernel / (kernel.sum(1, keepdims=True) + _FLOOR)
