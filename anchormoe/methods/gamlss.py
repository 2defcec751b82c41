"""Location and log-scale of a Normal as additive smooth functions of the features (Rigby and Stasinopoulos, 2005)."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import block_diag, cho_factor, cho_solve
from sklearn.preprocessing import SplineTransformer

from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.methods.base import SCALE_FLOOR, StandardisedRegressor, hold_out, standardiser

# From smooth to rough: each fit starts where the one before it ended.
PENALTIES = (10000.0, 1000.0, 100.0, 10.0, 1.0, 0.1)
RIDGE = 1e-1  # share of the smoothness penalty; it decides what the data and the curvature leave open
JITTER = 1e-6  # share of a row's weight; needed because a spline basis sums to one, as the intercept does
MAX_LEVERAGE = 0.95
TOLERANCE = 1e-4  # nats per row


class GAMLSS(StandardisedRegressor):
    """Penalised cubic splines for both parameters, with the two penalties that have the lowest held-out NLL."""

    def __init__(
        self, *, num_knots: int = 8, rounds: int = 30, penalties: tuple[float, ...] = PENALTIES, random_state: int = 0
    ) -> None:
        super().__init__(random_state=random_state)
        self.num_knots, self.rounds, self.penalties = num_knots, rounds, penalties

    def _fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> None:
        train, validation = hold_out(len(y), seed)
        basis = _Basis(X[train], num_knots=self.num_knots)
        rows, held_out = basis(X[train]), basis(X[validation])
        lowest, model = math.inf, None
        for penalties in itertools.product(self.penalties, repeat=2):
            model = _fit(rows, y[train], basis.penalty, penalties, rounds=self.rounds, start=model)
            location, log_scale = model(held_out)
            loss = _loss((y[validation] - location) ** 2, log_scale)
            if loss < lowest:
                lowest, self.penalty = loss, penalties
        self.basis = _Basis(X, num_knots=self.num_knots)
        self.model = _fit(self.basis(X), y, self.basis.penalty, self.penalty, rounds=self.rounds)

    def _predict(self, X: np.ndarray) -> GaussianMixture:
        location, log_scale = self.model(self.basis(X))
        return GaussianMixture.normal(location, np.exp(log_scale))


class _Basis:
    """A column of ones and a B-spline basis for each feature that varies, with the penalty on the coefficients."""

    def __init__(self, X: np.ndarray, *, num_knots: int) -> None:
        self.standardise = standardiser(X)
        Z = self.standardise(X)
        self.splines: dict[int, SplineTransformer] = {}
        blocks = [np.zeros((1, 1))]
        for column in range(Z.shape[1]):
            # Knots are at quantiles of the rows; a feature with few values has few distinct knots.
            knots = np.unique(np.quantile(Z[:, column], np.linspace(0, 1, num_knots)))
            if len(knots) < 2:
                continue
            spline = SplineTransformer(degree=3, knots=knots[:, None], extrapolation="linear").fit(Z[:, [column]])
            self.splines[column] = spline
            differences = np.diff(np.eye(spline.n_features_out_), n=2, axis=0)
            blocks.append(differences.T @ differences + RIDGE * np.eye(spline.n_features_out_))
        self.penalty = block_diag(*blocks)

    def __call__(self, X: np.ndarray) -> np.ndarray:
        Z = self.standardise(X)
        smooth = [spline.transform(Z[:, [column]]) for column, spline in self.splines.items()]
        return np.hstack([np.ones((len(Z), 1)), *smooth])


@dataclass(frozen=True)
class _Model:
    location: np.ndarray  # coefficients of the basis
    log_scale: np.ndarray
    bounds: tuple[float, float]  # range of the log-scale on the training rows; outside it would be extrapolated

    def __call__(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return rows @ self.location, np.clip(rows @ self.log_scale, *self.bounds)


def _fit(
    rows: np.ndarray,
    y: np.ndarray,
    penalty: np.ndarray,
    strengths: tuple[float, ...],
    *,
    rounds: int,
    start: _Model | None = None,
) -> _Model:
    """Minimise sum_i NLL_i + 1/2 sum_k strengths_k beta_k' penalty beta_k over location and log-scale in turn."""
    location_penalty, scale_penalty = (strength * penalty for strength in strengths)
    if start is None:
        location, log_scale = np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
        location[0], log_scale[0] = y.mean(), math.log(max(float(y.std()), SCALE_FLOOR))
    else:
        location, log_scale = start.location, start.log_scale
    # The expected curvature in the log-scale is 2 in every row, whatever the fit.
    curvature = cho_factor(2 * rows.T @ rows + scale_penalty + JITTER * np.eye(rows.shape[1]))

    def objective(candidate: np.ndarray) -> float:
        return len(y) * _loss(squared, rows @ candidate) + 0.5 * candidate @ scale_penalty @ candidate

    before = math.inf
    for _ in range(rounds):
        weights = np.exp(-2 * _bounded(rows @ log_scale))
        weighted = rows * weights[:, None]
        jitter = JITTER * weights.mean() * np.eye(rows.shape[1])
        inverse = np.linalg.inv(weighted.T @ rows + location_penalty + jitter)
        location = inverse @ (weighted.T @ y)
        # A row pulls the location towards itself; without this correction its residual understates the scale.
        leverage = np.clip(((rows @ inverse) * weighted).sum(1), 0, MAX_LEVERAGE)
        squared = (y - rows @ location) ** 2 / (1 - leverage)

        gradient = rows.T @ (squared * weights - 1) - scale_penalty @ log_scale
        step = cho_solve(curvature, gradient)
        # The quadratic approximation overshoots where rows are far from their location.
        current = objective(log_scale)
        while (after := objective(log_scale + step)) > current and np.abs(step).max() > 1e-6:
            step = step / 2
        log_scale = log_scale + step
        after += 0.5 * location @ location_penalty @ location
        if before - after < TOLERANCE * len(y):
            break
        before = after
    on_rows = _bounded(rows @ log_scale)
    return _Model(location, log_scale, (float(on_rows.min()), float(on_rows.max())))


def _bounded(log_scale: np.ndarray) -> np.ndarray:
    return np.clip(log_scale, math.log(SCALE_FLOOR), -math.log(SCALE_FLOOR))


def _loss(squared_error: np.ndarray, log_scale: np.ndarray) -> float:
    """Return the mean NLL in nats, without its constant."""
    log_scale = _bounded(log_scale)
    return float(np.mean(0.5 * squared_error * np.exp(-2 * log_scale) + log_scale))
