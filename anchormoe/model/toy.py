"""The data and the reduced network of the paper's one-dimensional figures, as plain arrays for whoever draws them.

The network has no router; its target and inputs are not standardised, and there is no second phase. Where the authors'
cells leave something open or contradict the paper, the choice made here is stated at the constant or the function.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import ndtr
from sklearn.ensemble import GradientBoostingRegressor
from torch import Tensor

from anchormoe.data.splits import inner_split
from anchormoe.model.network import FLOOR, AnchorMoE, MixtureParameters
from anchormoe.model.settings import ModelSettings, RouterKind

Arrays = dict[str, np.ndarray]

SEED = 7
TRAIN_SMOOTHING = 0.1
DELTA_WEIGHT, LOG_SCALE_WEIGHT = 3e-3, 1e-4
GRID_POINTS = 300

# The x values behind the paper's second figure are not in the authors' notebook. Its picture shows about 200 points
# between -1.2 and 1.2 and targets from about -6 to 17, which evenly spaced x on [-2, 2] give.
INTERVAL_POINTS, INTERVAL_RANGE = 330, 2.0


@dataclasses.dataclass(frozen=True)
class ToyData:
    """Points (x, y) and the true mean and noise they were drawn with."""

    x: np.ndarray
    y: np.ndarray

    def sorted(self) -> ToyData:
        """Return the points in the order of x."""
        order = np.argsort(self.x, kind="stable")
        return ToyData(self.x[order], self.y[order])


def interval_data() -> ToyData:
    """Return the points of the paper's second figure: noise from the seed's stream, x as stated above."""
    x = np.linspace(-INTERVAL_RANGE, INTERVAL_RANGE, INTERVAL_POINTS)
    noise = np.random.RandomState(SEED).randn(len(x))
    scale = 0.01 + 1.2 * np.maximum(np.abs(x) - 0.1, 0) + 1.2 * np.maximum(np.abs(x) - 1.1, 0)
    return ToyData(x, plateau(x, height=2.0, slope=5.0) + scale * noise)


def dynamics_data(num_points: int = 700) -> ToyData:
    """Return the points of the paper's third and fourth figure, in the order drawn: three clusters of x."""
    stream = np.random.RandomState(SEED)
    cluster = stream.choice(3, size=num_points, p=[0.2, 0.6, 0.2])
    x = stream.normal(np.array([-1.1, 0.0, 1.1])[cluster], np.array([0.22, 0.35, 0.22])[cluster])
    x = np.clip(x.astype(np.float32), -1.5, 1.5).astype(np.float64)
    scale = 0.06 + 0.9 * np.maximum(np.abs(x) - 0.2, 0) + 0.7 * np.maximum(np.abs(x) - 1.0, 0)
    return ToyData(x, plateau(x, height=0.8, slope=3.5) + scale * stream.randn(num_points))


def plateau(x: np.ndarray, *, height: float, slope: float) -> np.ndarray:
    """Return a mean that is constant on [-0.5, 0.5] and a continuous line on either side."""
    return height + slope * (x - np.clip(x, -0.5, 0.5))


def fit_anchor(data: ToyData) -> Callable[[np.ndarray], np.ndarray]:
    """Fit boosted trees; the number of stages has the lowest error on a fifth of the points, then all are used."""
    settings = {"learning_rate": 0.03, "max_depth": 2, "random_state": SEED}
    rows = inner_split(len(data.x), SEED, calibration_fraction=0, validation_fraction=0.2)
    trial = GradientBoostingRegressor(n_estimators=2600, **settings).fit(data.x[rows.tr, None], data.y[rows.tr])
    errors = [np.mean((data.y[rows.va] - mean) ** 2) for mean in trial.staged_predict(data.x[rows.va, None])]
    final = GradientBoostingRegressor(n_estimators=int(np.argmin(errors)) + 1, **settings)
    final.fit(data.x[:, None], data.y)
    return lambda x: final.predict(x[:, None])


class ToyNetwork:
    """The reduced network, its training and its snapshots, all drawing from one torch stream."""

    def __init__(self, generator: torch.Generator, *, anchored: bool) -> None:
        self.generator, self.anchored = generator, anchored
        settings = ModelSettings(
            num_experts=6,
            hidden_dim=64,
            router=RouterKind.none,
            log_scale_min=-2.0,
            sigma_max=1.2,
            smoothing=TRAIN_SMOOTHING,
        )
        self.model = AnchorMoE(settings, input_dim=2)
        self.model.reset_parameters(generator)
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=1e-3, weight_decay=3e-4)

    def train(self, data: ToyData, anchor: np.ndarray, epochs: int) -> None:
        """Make full-batch steps: NLL, the windows' penalty and, with an anchor, the penalty on Delta."""
        x, a, y = (torch.as_tensor(values, dtype=torch.float32) for values in (data.x, anchor, data.y))
        for _ in range(epochs):
            self.optimiser.zero_grad()
            mixture, delta_NKC = self._forward(x, a, smoothing=TRAIN_SMOOTHING)
            loss = -mixture.log_prob(y).mean()
            loss = loss + LOG_SCALE_WEIGHT * self.model.window.log_scale_KD.square().mean()
            if self.anchored:
                loss = loss + DELTA_WEIGHT * delta_NKC.square().mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 2.0)
            self.optimiser.step()

    def snapshot(self, x: np.ndarray, anchor: np.ndarray, *, smoothing: float, draws: int) -> np.ndarray:
        """Return mean, 2.5% and 97.5% quantile of every point, (3, N); the quantiles are those of random draws."""
        inputs = (torch.as_tensor(values, dtype=torch.float32) for values in (x, anchor))
        with torch.no_grad():
            mixture, _ = self._forward(*inputs, smoothing=smoothing)
        shape = (len(x), draws)
        uniform = torch.rand(shape, generator=self.generator)
        normal = torch.randn(shape, generator=self.generator)
        below_NM = mixture.log_weights_NM.exp().cumsum(1)
        component = torch.searchsorted(below_NM, uniform * below_NM[:, -1:]).clamp(max=below_NM.shape[1] - 1)
        values = mixture.means_NM.gather(1, component) + mixture.scales_NM.gather(1, component) * normal
        low, high = np.quantile(values.numpy(), [0.025, 0.975], axis=1)
        return np.stack([mixture.mean.numpy(), low, high])

    def _forward(self, x_N: Tensor, anchor_N: Tensor, *, smoothing: float) -> tuple[MixtureParameters, Tensor]:
        """Return the mixture over all experts and their shifts (N, K, C).

        Unlike the full network's, an expert that any row chose is evaluated for all rows, and a row gives those that
        it did not choose a weight of 1e-12.
        """
        model = self.model
        x_NI = torch.stack([x_N, anchor_N], dim=1)
        window_NK = model.window(model.projection(x_NI))
        combined_NK = window_NK / (window_NK.sum(1, keepdim=True) + FLOOR)
        top_k = model.config.top_k
        mask_NK = torch.zeros_like(combined_NK).scatter(1, combined_NK.detach().topk(top_k, dim=1).indices, 1.0)
        kept_NK = combined_NK * mask_NK
        weight_NK = (1 - smoothing) * kept_NK / (kept_NK.sum(1, keepdim=True) + FLOOR) + smoothing / top_k * mask_NK
        nothing = torch.zeros(len(x_N), 3 * model.config.num_components)
        outputs_NKO = torch.stack(
            [
                model.experts.expert(packed, x_NI) if mask_NK[:, number].any() else nothing
                for number, packed in enumerate(model.experts.packed)
            ],
            dim=1,
        )
        logits_NKC, delta_NKC, log_scale_NKC = outputs_NKO.split(model.config.num_components, dim=2)
        log_weight_NKC = (weight_NK + FLOOR).log()[:, :, None] + (logits_NKC.softmax(2) + FLOOR).log()
        mean_NKC = delta_NKC + anchor_N[:, None, None] if self.anchored else delta_NKC
        scale_NKC = log_scale_NKC.exp().clamp(model.config.sigma_min, model.config.sigma_max)
        mixture = MixtureParameters(log_weight_NKC.flatten(1), mean_NKC.flatten(1), scale_NKC.flatten(1))
        return mixture, delta_NKC


def interval_figure() -> Arrays:
    """Compute the paper's second figure: points, and mean and 95% band after 350 epochs on a grid of their range."""
    data = interval_data()
    anchor = fit_anchor(data)
    network = ToyNetwork(torch.Generator().manual_seed(SEED), anchored=True)
    network.train(data, anchor(data.x), epochs=350)
    grid = np.linspace(data.x.min(), data.x.max(), GRID_POINTS)
    band = network.snapshot(grid, anchor(grid), smoothing=0.30, draws=600)
    return {"x": data.x, "y": data.y, "grid": grid, "band": band}


def dynamics_figure(epochs_between: int = 100) -> Arrays:
    """Compute the paper's fourth figure: both models after 0, 1/3, 2/3 and all of 300 epochs; band (2, 4, 3, N).

    The authors drew the first state of the model without anchor in both lines; here each line has its own.
    """
    data = dynamics_data().sorted()
    anchor = fit_anchor(data)
    grid = np.linspace(-1.5, 1.5, GRID_POINTS)
    generator = torch.Generator().manual_seed(SEED)
    bands = []
    for anchored in (False, True):
        on_data, on_grid = (anchor(x) if anchored else np.zeros_like(x) for x in (data.x, grid))
        network = ToyNetwork(generator, anchored=anchored)
        snapshots = [network.snapshot(grid, on_grid, smoothing=0.25, draws=500)]
        for _ in range(3):
            network.train(data, on_data, epochs=epochs_between)
            snapshots.append(network.snapshot(grid, on_grid, smoothing=0.25, draws=500))
        bands.append(np.stack(snapshots))
    return {"x": data.x, "y": data.y, "grid": grid, "band": np.stack(bands)}


def field_figure(points: int = 81) -> Arrays:
    """Compute the paper's third figure: the scores of one Normal for all points, and their gradients.

    The surfaces are (2, 2, S, M): without and with anchor, NLL and CRPS, over log sigma and mu (with anchor, mu is the
    shift on top of it). The arrows (2, 2, 2, ., .) are minus the gradient in (mu, log sigma) at every fourth point.
    """
    data = dynamics_data()
    mu, log_sigma = np.linspace(-3, 3, points), np.linspace(-0.5, 2, points)
    surfaces, arrows = [], []
    for centred in (data.y, data.y - fit_anchor(data)(data.x)):
        scores, slopes = zip(
            *(
                mean_score(rule, mu[None, :, None], log_sigma[:, None, None], centred)
                for rule in (normal_nll, normal_crps)
            ),
            strict=True,
        )
        surfaces.append(np.stack(scores))
        arrows.append(-np.stack(slopes)[:, :, ::4, ::4])
    return {"mu": mu, "log_sigma": log_sigma, "surface": np.stack(surfaces), "arrow": np.stack(arrows)}


Score = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]


def mean_score(rule: Score, mu: np.ndarray, log_sigma: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Average a score and its gradient (mu first) over points y, the last axis."""
    value, by_mu, by_log_sigma = rule(mu, log_sigma, y)
    return value.mean(-1), np.stack([by_mu.mean(-1), by_log_sigma.mean(-1)])


def normal_nll(mu: ArrayLike, log_sigma: ArrayLike, y: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return -log N(y; mu, sigma^2) and its derivatives by mu and log sigma."""
    sigma = np.exp(log_sigma)
    z = (np.asarray(y) - mu) / sigma
    return 0.5 * z**2 + log_sigma + 0.5 * math.log(2 * math.pi), -z / sigma, 1 - z**2


def normal_crps(mu: ArrayLike, log_sigma: ArrayLike, y: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the CRPS of N(mu, sigma^2) at y and its derivatives by mu and log sigma.

    CRPS = sigma (z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi)), and d CRPS / d sigma = 2 phi(z) - 1 / sqrt(pi). The
    authors' cell subtracts z (2 Phi(z) - 1) from the latter, so the arrows of the paper's figure are not its gradient.
    """
    sigma = np.exp(log_sigma)
    z = (np.asarray(y) - mu) / sigma
    tilt, density = 2 * ndtr(z) - 1, np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    by_sigma = 2 * density - 1 / math.sqrt(math.pi)
    return sigma * (z * tilt + by_sigma), -tilt, sigma * by_sigma
