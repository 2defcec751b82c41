"""The loss and the two-phase fit.

Phase 1 trains on TR for a number of epochs and keeps the weights of the epoch that is best on VA.
Phase 2 goes on from those weights, with a new optimiser, for as many epochs on TR and VA together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.model.kernels import network as network_kernels
from anchormoe.model.kernels.adamw import adamw
from anchormoe.model.kernels.network import Objective
from anchormoe.model.network import AnchorMoE, arrays
from anchormoe.model.settings import AnchorMode, Loss, TrainingSettings


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


class TrainingDiverged(RuntimeError):
    """No epoch had a finite validation NLL."""


def objective(model: AnchorMoE, config: TrainingSettings, epoch: int) -> Objective:
    """What the epoch's steps descend; Delta is penalised in the published mode only."""
    return Objective(
        use_crps=config.loss is Loss.crps,
        entropy_weight=config.entropy_weight if epoch <= config.entropy_epochs else config.entropy_weight_after,
        balance_weight=config.balance_weight,
        delta_weight=config.delta_weight if model.config.anchor_mode is AnchorMode.delta else 0.0,
        log_scale_weight=config.log_scale_weight,
        dropout=model.config.dropout,
        learn_windows=model.config.window_learnable,
    )


def temperature(config: TrainingSettings, steps: int) -> float:
    """The router's temperature after so many steps."""
    return max(config.temperature_start * config.temperature_decay**steps, config.temperature_end)


def num_epochs(config: TrainingSettings, num_rows: int) -> int:
    steps_per_epoch = math.ceil(num_rows / (config.batch_size or num_rows))
    return max(config.epochs, math.ceil(config.min_steps / steps_per_epoch))


def select_epoch(model: AnchorMoE, train: Batch, validation: Batch, config: TrainingSettings) -> SelectedEpoch:
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


def refit(model: AnchorMoE, train: Batch, epochs: int, config: TrainingSettings) -> None:
    """Phase 2. The router stays as cool as phase 1 left it, whichever epoch was selected."""
    phase = Phase(model, config)
    for epoch in range(1, epochs + 1):
        model.temperature = temperature(config, config.epochs + epoch - 1)
        phase.run_epoch(train, epoch)
    model.temperature = temperature(config, config.epochs + epochs)


class Phase:
    """A model and a new optimiser of its weights."""

    def __init__(self, model: AnchorMoE, config: TrainingSettings) -> None:
        self.model, self.config, self.weights = model, config, model.weights()
        self.num_steps = 0
        self.optimiser = adamw(
            (*self.weights.gates, *self.weights.experts),
            learning_rate=config.learning_rate,
            weight_decay=config.weight_decay,
            clip_norm=config.clip_norm,
        )

    def run_epoch(self, batch: Batch, epoch: int) -> None:
        """One step on all rows, or one on each mini-batch of them."""
        self.model.training = True
        num_rows = len(batch.y)
        batch_size = min(self.config.batch_size or num_rows, num_rows)
        if batch_size < num_rows:
            batch = _shuffled(batch, epoch)
        network_kernels.train_epoch(
            *arrays(batch.x, batch.anchor, batch.y),
            batch_size,
            self.weights,
            self.model.settings(),
            objective(self.model, self.config, epoch),
            self.optimiser,
            self.num_steps,
        )
        self.num_steps += math.ceil(num_rows / batch_size)

    def mean_nll(self, batch: Batch) -> float:
        self.model.training = False
        data = arrays(batch.x, batch.anchor, batch.y)
        return float(network_kernels.mean_nll(*data, self.weights, self.model.settings()))


def _shuffled(batch: Batch, epoch: int) -> Batch:
    """In an order that depends on the epoch alone."""
    order = torch.randperm(len(batch.y), generator=torch.Generator().manual_seed(epoch))
    return Batch(batch.x[order], batch.anchor[order], batch.y[order])


def predict(model: AnchorMoE, batch: Batch) -> GaussianMixture:
    model.eval()
    return model(batch.x, batch.anchor)


def mean_nll(model: AnchorMoE, batch: Batch) -> float:
    return float(-predict(model, batch).log_prob(batch.y.numpy()).mean())
