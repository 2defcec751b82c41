"""The loss and the two-phase fit.

Phase 1 trains on TR for a number of epochs and keeps the weights of the epoch that is best on VA.
Phase 2 goes on from those weights, with a new optimiser, for as many epochs on TR and VA together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from anchormoe import network_kernels
from anchormoe.adamw import AdamW
from anchormoe.config import AnchorMode, Loss, TrainConfig
from anchormoe.mixture import GaussianMixture
from anchormoe.model import AnchorMoE, arrays
from anchormoe.network_kernels import Penalties, Weights


@dataclass(frozen=True)
class Batch:
    """Standardised inputs (N, I), z-scored anchor (N) and z-scored target (N), float32."""

    x: Tensor
    anchor: Tensor
    y: Tensor


@dataclass(frozen=True)
class SelectedEpoch:
    epoch: int  # counted from 1
    validation_nll: float
    longest_wait: int = 0  # epochs from one best to the next, at most; any patience above it selects the same epoch


_BATCHES_AT_ONCE = 32


class TrainingDiverged(RuntimeError):
    """No epoch had a finite validation NLL."""


def objective(
    model: AnchorMoE,
    batch: Batch,
    config: TrainConfig,
    epoch: int,
    weights: Weights | None = None,
    dropout_seed: int = 0,
) -> tuple[float, list[np.ndarray | None]]:
    """Mean score plus penalties, and its gradients in the order of model.parameters().

    loss = mean score
         + delta_weight mean_nkc Delta_nkc^2   (experts a row did not choose count as 0; only in mode delta)
         + c_e mean_n sum_j p_nj log p_nj      c_e = entropy_weight up to entropy_epochs, entropy_weight_after later
         + balance_weight sum_j (mean_n p_nj - 1/K)^2
         + log_scale_weight mean_jl log_s_jl^2
    where p is the router's softmax over all K experts. What has no part in the loss (an expert nobody chose, windows
    that are not learned) has no gradient: None. `weights` saves taking views of the model's once more.
    """
    penalties = Penalties(
        entropy=config.entropy_weight if epoch <= config.entropy_epochs else config.entropy_weight_after,
        balance=config.balance_weight,
        delta=config.delta_weight if model.config.anchor_mode is AnchorMode.delta else 0.0,
        log_scale=config.log_scale_weight,
    )
    value, gates, experts, count_K = network_kernels.objective_and_gradients(
        *arrays(batch.x, batch.anchor, batch.y),
        weights or model.weights(),
        model.settings(),
        config.loss is Loss.crps,
        penalties,
        model.config.dropout,
        dropout_seed,
    )
    if not model.config.window_learnable:
        gates = gates._replace(center_KD=None, log_scale_KD=None)
    present = [gradient for gradient in gates if gradient is None or gradient.size]
    return value, [*present, *(gradient if n else None for gradient, n in zip(experts, count_K, strict=True))]


def temperature(config: TrainConfig, steps: int) -> float:
    """The router's temperature after so many steps."""
    return max(config.temperature_start * config.temperature_decay**steps, config.temperature_end)


def num_epochs(config: TrainConfig, num_rows: int) -> int:
    steps_per_epoch = math.ceil(num_rows / (config.batch_size or num_rows))
    return max(config.epochs, math.ceil(config.min_steps / steps_per_epoch))


def select_epoch(model: AnchorMoE, train: Batch, validation: Batch, config: TrainConfig) -> SelectedEpoch:
    """Phase 1. Leaves the model with the weights of the selected epoch: the first with the lowest validation NLL."""
    phase = Phase(model, config)
    best = SelectedEpoch(epoch=0, validation_nll=math.inf)
    best_weights = None
    for epoch in range(1, num_epochs(config, len(train.y)) + 1):
        model.temperature = temperature(config, epoch - 1)
        phase.run_epoch(train, epoch)
        model.temperature = temperature(config, epoch)
        nll = phase.mean_nll(validation)
        if nll < best.validation_nll:
            best = SelectedEpoch(epoch, nll, max(best.longest_wait, epoch - best.epoch))
            best_weights = {name: value.clone() for name, value in model.state_dict().items()}
        if config.patience is not None and epoch - best.epoch >= config.patience:
            break
    if best_weights is None:
        raise TrainingDiverged(f"no finite validation NLL in {config.epochs} epochs")
    model.load_state_dict(best_weights)
    return best


def refit(model: AnchorMoE, train: Batch, epochs: int, config: TrainConfig) -> None:
    """Phase 2. The router stays as cool as phase 1 left it, whichever epoch was selected."""
    phase = Phase(model, config)
    for epoch in range(1, epochs + 1):
        model.temperature = temperature(config, config.epochs + epoch - 1)
        phase.run_epoch(train, epoch)
    model.temperature = temperature(config, config.epochs + epochs)


class Phase:
    """A model and a new optimiser of its weights."""

    def __init__(self, model: AnchorMoE, config: TrainConfig) -> None:
        self.model, self.config, self.weights = model, config, model.weights()
        self.num_steps = 0
        self.optimiser = AdamW(
            arrays(*model.parameters()),
            learning_rate=config.learning_rate,
            weight_decay=config.weight_decay,
            clip_norm=config.clip_norm,
        )

    def run_epoch(self, batch: Batch, epoch: int) -> None:
        """One step on all rows, or one on each mini-batch of them."""
        self.model.training = True
        for part in _mini_batches(batch, self.config.batch_size, epoch):
            self.num_steps += 1
            _, gradients = objective(self.model, part, self.config, epoch, self.weights, dropout_seed=self.num_steps)
            self.optimiser.step(gradients)

    def mean_nll(self, batch: Batch) -> float:
        self.model.training = False
        data = arrays(batch.x, batch.anchor, batch.y)
        return float(network_kernels.mean_nll(*data, self.weights, self.model.settings()))


def _mini_batches(batch: Batch, size: int | None, epoch: int) -> Iterator[Batch]:
    """In an order that depends on the epoch alone. Rows are gathered for several batches at once: for one, the calls
    would take longer than the copying."""
    if size is None or size >= len(batch.y):
        yield batch
        return
    order = torch.randperm(len(batch.y), generator=torch.Generator().manual_seed(epoch))
    for rows in order.split(_BATCHES_AT_ONCE * size):
        several = batch.x[rows], batch.anchor[rows], batch.y[rows]
        for parts in zip(*(values.split(size) for values in several), strict=True):
            yield Batch(*parts)


def predict(model: AnchorMoE, batch: Batch) -> GaussianMixture:
    model.eval()
    return model(batch.x, batch.anchor)


def mean_nll(model: AnchorMoE, batch: Batch) -> float:
    return float(-predict(model, batch).log_prob(batch.y).mean())
