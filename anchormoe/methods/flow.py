"""A conditional spline flow of the target, by the zuko library (neural spline flows, Durkan et al., 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
import zuko
from scipy.special import ndtr, ndtri

from anchormoe.distributions.base import Distribution
from anchormoe.methods.base import StandardisedRegressor, hold_out, standardiser

_LEVELS = (np.arange(200) + 0.5) / 200  # quantiles that represent a distribution where it has no formula
_CHECK_EVERY = 100  # steps


class SplineFlow(StandardisedRegressor):
    """One monotone spline whose knots are outputs of a network of the standardised features.

    Width of the network, weight decay and number of steps are those with the lowest NLL of held-out rows; the flow is
    then trained on all rows.
    """

    def __init__(
        self,
        *,
        widths: Sequence[int] = (32, 128),
        weight_decays: Sequence[float] = (1e-4, 1e-2),
        steps: int = 4000,
        batch_size: int = 128,
        learning_rate: float = 1e-3,
        bins: int = 8,
        random_state: int = 0,
    ) -> None:
        super().__init__(random_state=random_state)
        self.widths, self.weight_decays = tuple(widths), tuple(weight_decays)
        self.steps, self.batch_size, self.learning_rate, self.bins = steps, batch_size, learning_rate, bins

    def _fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> None:
        self.to_columns = standardiser(X)
        train, validation = hold_out(len(y), seed)
        best = (np.inf, self.widths[0], self.weight_decays[0], self.steps)
        for width in self.widths:
            for weight_decay in self.weight_decays:
                settings = (width, weight_decay, self.steps)
                _, (nll, step) = self._trained(X[train], y[train], *settings, seed, (X[validation], y[validation]))
                best = min(best, (nll, width, weight_decay, step))
        _, width, weight_decay, step = best
        self.diagnostics_ |= {"width": width, "weight_decay": weight_decay, "step": step}
        self.flow, _ = self._trained(X, y, width, weight_decay, step, seed)

    def _trained(
        self,
        X: np.ndarray,
        y: np.ndarray,
        width: int,
        weight_decay: float,
        steps: int,
        seed: int,
        held_out: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> tuple[zuko.flows.NSF, tuple[float, int]]:
        """Train a flow; return it with the lowest NLL of held-out rows and the step that has it."""
        x, target = self._tensors(X, y)
        lowest = (np.inf, steps)
        with torch.random.fork_rng(devices=[]):  # the library draws its initial weights from the global stream
            torch.manual_seed(seed)
            flow = zuko.flows.NSF(1, x.shape[1], bins=self.bins, transforms=1, hidden_features=(width, width))
            optimizer = torch.optim.AdamW(flow.parameters(), lr=self.learning_rate, weight_decay=weight_decay)
            batches: list[torch.Tensor] = []
            for step in range(1, steps + 1):
                batches = batches or list(torch.randperm(len(target)).split(self.batch_size))
                rows = batches.pop()
                loss = -flow(x[rows]).log_prob(target[rows]).mean()
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
                optimizer.step()
                if held_out is not None and step % _CHECK_EVERY == 0:
                    held_out_x, held_out_y = self._tensors(*held_out)
                    with torch.no_grad():
                        nll = float(-flow(held_out_x).log_prob(held_out_y).mean())
                    lowest = min(lowest, (nll, step))
        return flow, lowest

    def _tensors(self, X: np.ndarray, y: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.as_tensor(self.to_columns(X), dtype=torch.float32)
        return x, torch.as_tensor(y, dtype=torch.float32).unsqueeze(1)

    def _predict(self, X: np.ndarray) -> Distribution:
        return FlowDistribution(self.flow.double(), torch.as_tensor(self.to_columns(X)))


@dataclass(frozen=True, eq=False)
class FlowDistribution(Distribution):
    """Distributions of a flow in one dimension: F(z) = Phi(T(z)) with the monotone transformation T of a row."""

    flow: zuko.flows.NSF
    context: torch.Tensor
    center: float = 0.0
    scale: float = 1.0
    reported_mean: np.ndarray | None = None
    mean_before_calibration: np.ndarray | None = None

    @property
    def num_rows(self) -> int:
        return len(self.context)

    @cached_property
    def _of_rows(self) -> Any:
        with torch.no_grad():
            return self.flow(self.context)

    @cached_property
    def _quantiles(self) -> np.ndarray:
        return np.stack([self._quantile(np.full(self.num_rows, level)) for level in _LEVELS])

    def _mean(self) -> np.ndarray:
        return self._quantiles.mean(0)

    def _std(self) -> np.ndarray:
        return self._quantiles.std(0)

    def _log_prob(self, z: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return self._of_rows.log_prob(torch.as_tensor(np.array(z)).unsqueeze(1)).numpy()

    def _transformed(self, z: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return self._of_rows.transform(torch.as_tensor(np.array(z)).unsqueeze(1)).squeeze(1).numpy()

    def _cdf(self, z: np.ndarray) -> np.ndarray:
        return ndtr(self._transformed(z))

    def _prob(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        a, b = self._transformed(low), self._transformed(high)
        return np.where(a > 0, ndtr(-a) - ndtr(-b), ndtr(b) - ndtr(a))

    def _quantile(self, level: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            normal = torch.as_tensor(ndtri(level)).unsqueeze(1)
            return self._of_rows.transform.inv(normal).squeeze(1).numpy()

    def _crps(self, z: np.ndarray) -> np.ndarray:
        """Return twice the mean over levels p of the quantile loss (1[z < q_p] - p) (q_p - z)."""
        quantiles = self._quantiles
        return 2 * (((z < quantiles) - _LEVELS[:, None]) * (quantiles - z)).mean(0)
