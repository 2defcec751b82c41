"""Small networks side by side: M of them are trained at once, as batched matrix products.

Shape suffixes: M networks, B rows, I inputs, H hidden units, O outputs, P weights of one network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
VARIANCE_FLOOR = 1e-6  # of the target's variance
_ROWS_AT_ONCE = 1000  # bounds the memory of a prediction by many networks
_LOG_2PI = math.log(2 * math.pi)

Loss = Callable[["Layers", Tensor, Tensor], Tensor]  # layers, x_MBI, y_MB -> one loss per network (M)


class Layers(NamedTuple):
    """M networks with one hidden layer of rectified linear units and, in `further`, other learned numbers."""

    hidden_weight_MIH: Tensor
    hidden_bias_MH: Tensor
    output_weight_MHO: Tensor
    output_bias_MO: Tensor
    further: Tensor

    def __call__(self, x_MBI: Tensor, input_mask: Tensor | None = None, hidden_mask: Tensor | None = None) -> Tensor:
        """Return outputs (M, B, O); a mask multiplies what enters a layer of weights."""
        entering_MBI = x_MBI if input_mask is None else x_MBI * input_mask
        hidden_MBH = torch.baddbmm(self.hidden_bias_MH.unsqueeze(1), entering_MBI, self.hidden_weight_MIH).relu()
        if hidden_mask is not None:
            hidden_MBH = hidden_MBH * hidden_mask
        return torch.baddbmm(self.output_bias_MO.unsqueeze(1), hidden_MBH, self.output_weight_MHO)

    def squared_weights(self) -> tuple[Tensor, Tensor]:
        """Return the sums of the squared weights, without biases, of both layers: two tensors (M)."""
        return self.hidden_weight_MIH.square().sum((1, 2)), self.output_weight_MHO.square().sum((1, 2))

    def only(self, index: int) -> Layers:
        """Return one of the networks."""
        return Layers(*(tensor[index : index + 1] for tensor in self))

    def masked(self, input_mask_TI: Tensor, hidden_mask_TH: Tensor) -> Layers:
        """Return one network under T masks as T networks: a mask on a layer's input masks the rows of its weights."""
        num_masks = len(input_mask_TI)
        return Layers(
            self.hidden_weight_MIH * input_mask_TI.unsqueeze(2),
            self.hidden_bias_MH.expand(num_masks, -1),
            self.output_weight_MHO * hidden_mask_TH.unsqueeze(2),
            self.output_bias_MO.expand(num_masks, -1),
            self.further.expand(num_masks, -1),
        )

    def predict(self, X: np.ndarray) -> Tensor:
        """Return outputs (M, N, O) for standardised features (N, I), in float64 and without gradients."""
        num_members = len(self.hidden_bias_MH)
        with torch.no_grad():
            parts = [
                self(rows.expand(num_members, -1, -1)).double()
                for rows in torch.as_tensor(X, dtype=torch.float32).split(_ROWS_AT_ONCE)
            ]
        return torch.cat(parts, dim=1)


@dataclass(frozen=True)
class Architecture:
    input_dim: int
    hidden_dim: int
    output_dim: int
    further_dim: int = 0

    def initial(self, num_members: int, *, generator: torch.Generator) -> Tensor:
        """Draw weights (M, P), uniform in +-1 / sqrt(fan in), biases too; further numbers start at 0."""
        bounds = torch.cat(
            [
                torch.full((self._sizes[0] + self._sizes[1],), 1 / math.sqrt(self.input_dim)),
                torch.full((self._sizes[2] + self._sizes[3],), 1 / math.sqrt(self.hidden_dim)),
                torch.zeros(self.further_dim),
            ]
        )
        return (2 * torch.rand(num_members, len(bounds), generator=generator) - 1) * bounds

    def layers(self, weights_MP: Tensor) -> Layers:
        """Return the layers as views of the flat weights."""
        hidden, hidden_bias, output, output_bias, further = weights_MP.split(self._sizes, dim=1)
        return Layers(
            hidden.unflatten(1, (self.input_dim, self.hidden_dim)),
            hidden_bias,
            output.unflatten(1, (self.hidden_dim, self.output_dim)),
            output_bias,
            further,
        )

    @property
    def _sizes(self) -> list[int]:
        return [
            self.input_dim * self.hidden_dim,
            self.hidden_dim,
            self.hidden_dim * self.output_dim,
            self.output_dim,
            self.further_dim,
        ]


def train(
    architecture: Architecture,
    weights_MP: Tensor,
    X: np.ndarray,
    y: np.ndarray,
    loss: Loss,
    *,
    learning_rate: float | Tensor,
    steps: Sequence[int],
    batch_size: int,
    generator: torch.Generator,
) -> list[Layers]:
    """Train by mini-batch Adam on standardised features and z-scored target; every network has its own order of rows.

    learning_rate: one for all networks, or one each (M). The networks are returned as they are after each of `steps`.
    """
    features, targets = torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(y, dtype=torch.float32)
    weights_MP = weights_MP.clone().requires_grad_()
    rate = torch.as_tensor(learning_rate, dtype=torch.float32).reshape(-1, 1)
    first, second = torch.zeros_like(weights_MP), torch.zeros_like(weights_MP)
    begin, after = len(y), []
    for step in range(1, max(steps) + 1):
        if begin >= len(y):
            order_MN = torch.rand(len(weights_MP), len(y), generator=generator).argsort(dim=1)
            x_MNI, y_MN = features[order_MN], targets[order_MN]
            begin = 0
        rows = slice(begin, begin + batch_size)
        begin += batch_size
        # A network's loss does not depend on another's weights, so the sum has the gradient of each network's own loss.
        total = loss(architecture.layers(weights_MP), x_MNI[:, rows], y_MN[:, rows]).sum()
        (gradient,) = torch.autograd.grad(total, weights_MP)
        with torch.no_grad():
            first.lerp_(gradient, 1 - BETA1)
            second.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
            denominator = second.sqrt().mul_((1 - BETA2**step) ** -0.5).add_(EPSILON)
            weights_MP.sub_(first.div(denominator).mul_(rate / (1 - BETA1**step)))
        if step in steps:
            after.append(architecture.layers(weights_MP.detach().clone()))
    return after


def num_steps(num_rows: int, *, epochs: int, batch_size: int, max_steps: int | None = None) -> int:
    """Return the number of steps in `epochs` epochs, counting the last and smaller batch of each."""
    steps = epochs * math.ceil(num_rows / batch_size)
    return steps if max_steps is None else min(steps, max_steps)


def mean_and_variance(outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance of a normal distribution from two outputs (..., 2)."""
    return outputs[..., 0], torch.nn.functional.softplus(outputs[..., 1]) + VARIANCE_FLOOR


def negative_log_likelihood(mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
    """Compute -log N(y; mean, variance), elementwise."""
    return 0.5 * ((y - mean).square() / variance + variance.log() + _LOG_2PI)
