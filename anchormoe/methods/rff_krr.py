"""Random-Fourier-feature kernel-ridge mixture: the model behind the published "Anchor-MoE" row of Kin8nm.

K-means clusters the inputs; each cluster has a ridge regression on random Fourier features of its own bandwidth, with
one residual variance; soft cluster memberships mix them. No trees, no network, no validation, no calibration.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.blas import ssyrk
from scipy.sparse.linalg import LinearOperator, cg
from sklearn.cluster import KMeans

from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.methods.base import StandardisedRegressor, standardiser

NUM_CLUSTERS = 20
NUM_FEATURES = 4096
RIDGE = 1e-3
VARIANCE_FLOOR = 1e-8
_FLOOR = 1e-12


class RFFKernelRidge(StandardisedRegressor):
    def _fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> None:
        self.to_columns = standardiser(X)
        X = self.to_columns(X)
        clusters = KMeans(NUM_CLUSTERS, n_init=10, random_state=seed).fit(X)
        self.centers = clusters.cluster_centers_
        self.bandwidth2 = np.array(
            [_bandwidth2(X[clusters.labels_ == k], self.centers[k]) for k in range(NUM_CLUSTERS)]
        )
        membership = _memberships(X, self.centers, self.bandwidth2)
        self.experts, self.variances = [], np.empty(NUM_CLUSTERS)
        for k in range(NUM_CLUSTERS):
            features = _FourierFeatures(X.shape[1], np.sqrt(self.bandwidth2[k]), seed + 100 + k)
            design, weight = features(X), membership[:, k]
            coefficients = _weighted_ridge(design, weight, y)
            self.experts.append((features, coefficients))
            residual2 = (y - design @ coefficients) ** 2
            self.variances[k] = max(float(weight @ residual2 / (weight.sum() + _FLOOR)), VARIANCE_FLOOR)

    def _predict(self, X: np.ndarray) -> GaussianMixture:
        X = self.to_columns(X)
        membership = _memberships(X, self.centers, self.bandwidth2)
        means = np.column_stack([features(X) @ coefficients for features, coefficients in self.experts])
        return GaussianMixture(
            np.log(membership + _FLOOR),
            means,
            np.broadcast_to(np.sqrt(self.variances), means.shape),
        )


class _FourierFeatures:
    """The features phi(x) = sqrt(2 / m) cos(x Omega + beta), Omega ~ N(0, 1 / bandwidth^2), beta ~ U[0, 2 pi)."""

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
    """Compute theta = (B'B + RIDGE I)^-1 B't = B' (BB' + RIDGE I)^-1 t with B = W^1/2 Phi and t = W^1/2 z.

    Of the two systems the smaller is solved. The solver is conjugate gradients in float64, preconditioned with the
    Cholesky factor of the same matrix in float32. The matrix and its factor are nearly all of the work, and float32
    halves it. About five steps are enough.
    """
    root = np.sqrt(weight)
    weighted, target = design * root[:, None], root * z
    few_rows = len(z) < design.shape[1]
    side = weighted if few_rows else weighted.T
    # A product of a matrix with its own transpose is symmetric: BLAS computes one triangle, in half the time.
    gram = ssyrk(1.0, np.float32(side), lower=True)
    gram[np.diag_indices(len(gram))] += np.float32(RIDGE)
    factor = cho_factor(gram, lower=True, overwrite_a=True)
    shape = gram.shape
    matrix = LinearOperator(shape, matvec=lambda v: side @ (side.T @ v) + RIDGE * v, dtype=np.float64)
    inverse = LinearOperator(shape, matvec=lambda v: np.float64(cho_solve(factor, np.float32(v))), dtype=np.float64)
    solution, unsolved = cg(matrix, target if few_rows else side @ target, rtol=1e-12, M=inverse)
    if unsolved:
        raise ArithmeticError(f"the ridge regression must converge, but did not in {unsolved} steps")
    return side.T @ solution if few_rows else solution


def _bandwidth2(members: np.ndarray, center: np.ndarray) -> float:
    if len(members) < 2:
        return 1.0
    return float(((members - center) ** 2).sum(1).mean()) + 1e-6


def _memberships(X: np.ndarray, centers: np.ndarray, bandwidth2: np.ndarray) -> np.ndarray:
    distance2 = ((X[:, None, :] - centers) ** 2).sum(-1)
    kernel = np.exp(-distance2 / (2 * bandwidth2))
    return kernel / (kernel.sum(1, keepdims=True) + _FLOOR)
