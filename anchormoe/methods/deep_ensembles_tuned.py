"""Deep ensembles whose width, depth, learning rate and length of training are chosen on held-out rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.methods.base import StandardisedRegressor, hold_out, standardiser
from anchormoe.methods.batched_networks import mean_and_variance, negative_log_likelihood

_CHECK_EVERY = 100  # steps
_ROWS_AT_ONCE = 2000  # bounds the memory of a prediction


class TunedDeepEnsemble(StandardisedRegressor):
    """An ensemble of networks with mean and variance (Lakshminarayanan et al., 2017), predicted as their mixture.

    The setting and the number of steps have the lowest NLL of held-out rows; the ensemble is then trained on all rows.
    """

    def __init__(
        self,
        *,
        num_members: int = 5,
        shapes: Sequence[Sequence[int]] = ((50,), (100, 100)),
        learning_rates: Sequence[float] = (0.001, 0.005),
        steps: int = 3000,
        batch_size: int = 64,
        weight_decay: float = 1e-3,
        random_state: int = 0,
    ) -> None:
        super().__init__(random_state=random_state)
        self.num_members, self.steps = num_members, steps
        self.settings = list(itertools.product(map(tuple, shapes), learning_rates))
        self.batch_size, self.weight_decay = batch_size, weight_decay

    def _fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> None:
        self.to_columns = standardiser(X)
        train, validation = hold_out(len(y), seed)
        best = (math.inf, self.settings[0], self.steps)
        for setting in self.settings:
            _, (nll, step) = self._trained(
                X[train], y[train], setting, self.steps, seed, (X[validation], y[validation])
            )
            best = min(best, (nll, setting, step))
        _, setting, step = best
        self.diagnostics_ |= {"hidden_layers": setting[0], "learning_rate": setting[1], "step": step}
        self.layers, _ = self._trained(X, y, setting, step, seed)

    def _trained(
        self,
        X: np.ndarray,
        y: np.ndarray,
        setting: tuple[tuple[int, ...], float],
        steps: int,
        seed: int,
        held_out: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> tuple[list[tuple[Tensor, Tensor]], tuple[float, int]]:
        """Train an ensemble; return its layers with the lowest NLL of held-out rows and the step that has it."""
        hidden, learning_rate = setting
        generator = torch.Generator().manual_seed(seed)
        x, target = torch.as_tensor(self.to_columns(X), dtype=torch.float32), torch.as_tensor(y, dtype=torch.float32)
        sizes = [x.shape[1], *hidden, 2]
        layers = [self._initial(*pair, generator) for pair in itertools.pairwise(sizes)]
        parameters = [tensor for layer in layers for tensor in layer]
        optimizer = torch.optim.AdamW(parameters, lr=learning_rate, weight_decay=self.weight_decay)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - 0.95 * step / self.steps)
        lowest = (math.inf, steps)
        for step in range(1, steps + 1):
            rows_MB = torch.randint(
                len(target), (self.num_members, min(self.batch_size, len(target))), generator=generator
            )
            loss = negative_log_likelihood(*mean_and_variance(_outputs(layers, x[rows_MB])), target[rows_MB]).mean(1)
            optimizer.zero_grad()
            loss.sum().backward()
            optimizer.step()
            schedule.step()
            if held_out is not None and step % _CHECK_EVERY == 0:
                nll = float(-self._mixture(layers, held_out[0]).log_prob(held_out[1]).mean())
                lowest = min(lowest, (nll, step)) if math.isfinite(nll) else lowest
        return layers, lowest

    def _initial(self, inputs: int, outputs: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        bound = 1 / math.sqrt(inputs)
        shapes = ((self.num_members, inputs, outputs), (self.num_members, 1, outputs))
        weight, bias = ((2 * torch.rand(shape, generator=generator) - 1) * bound for shape in shapes)
        return weight.requires_grad_(), bias.requires_grad_()

    def _mixture(self, layers: list[tuple[Tensor, Tensor]], X: np.ndarray) -> GaussianMixture:
        x = torch.as_tensor(self.to_columns(X), dtype=torch.float32)
        with torch.no_grad():
            parts = [_outputs(layers, rows.expand(self.num_members, -1, -1)) for rows in x.split(_ROWS_AT_ONCE)]
        mean_MN, variance_MN = (values.double().T.numpy() for values in mean_and_variance(torch.cat(parts, dim=1)))
        return GaussianMixture.equal_weights(mean_MN, np.sqrt(variance_MN))

    def _predict(self, X: np.ndarray) -> GaussianMixture:
        return self._mixture(self.layers, X)


def _outputs(layers: list[tuple[Tensor, Tensor]], x_MBI: Tensor) -> Tensor:
    """Return the outputs (M, B, 2) of networks with rectified linear units."""
    *hidden, last = layers
    for weight, bias in hidden:
        x_MBI = torch.baddbmm(bias, x_MBI, weight).relu()
    return torch.baddbmm(last[1], x_MBI, last[0])
