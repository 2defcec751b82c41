"""The loss and the two-phase fit.

Phase 1 trains on TR for a fixed number of epochs and keeps the weights of the epoch that is best on VA.
Phase 2 goes on from those weights, with a new optimiser, for as many epochs on TR and VA together.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from anchormoe import functions
from anchormoe.config import AnchorMode, Loss, TrainConfig
from anchormoe.mixture import GaussianMixture
from anchormoe.model import AnchorMoE, Prediction


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


class TrainingDiverged(RuntimeError):
    """No epoch had a finite validation NLL."""


def objective(prediction: Prediction, y: Tensor, model: AnchorMoE, config: TrainConfig, epoch: int) -> Tensor:
    """Mean score plus penalties; p is the router's softmax over all K experts.

    loss = mean score
         + c_e mean_n sum_j p_nj log p_nj      c_e = entropy_weight up to entropy_epochs, entropy_weight_after later
         + balance_weight sum_j (mean_n p_nj - 1/K)^2
         + log_scale_weight mean_jl log_s_jl^2
         + delta_weight mean_nkc Delta_nkc^2   (experts a row did not choose count as 0; only in mode delta)
    """
    mixture = prediction.mixture
    score = mixture.crps(y) if config.loss is Loss.crps else -mixture.log_prob(y)
    loss = score.mean()
    prob_NK = prediction.gates.router_prob_NK
    if prob_NK is not None:
        entropy_weight = config.entropy_weight if epoch <= config.entropy_epochs else config.entropy_weight_after
        loss = loss + functions.router_penalty(prob_NK, entropy_weight, config.balance_weight)
    loss = loss + config.log_scale_weight * model.window.log_scale_KD.square().mean()
    if model.config.anchor_mode is AnchorMode.delta:
        delta_NJC = prediction.delta_NJC
        count = delta_NJC.shape[0] * model.config.num_experts * model.config.num_components
        loss = loss + config.delta_weight * delta_NJC.square().sum() / count
    return loss


def temperature(config: TrainConfig, steps: int) -> float:
    """The router's temperature after so many steps."""
    return max(config.temperature_start * config.temperature_decay**steps, config.temperature_end)


def select_epoch(model: AnchorMoE, train: Batch, validation: Batch, config: TrainConfig) -> SelectedEpoch:
    """Phase 1. Leaves the model with the weights of the selected epoch: the first with the lowest validation NLL."""
    optimiser = _optimiser(model, config)
    best = SelectedEpoch(epoch=0, validation_nll=math.inf)
    best_weights = None
    for epoch in range(1, config.epochs + 1):
        model.temperature = temperature(config, epoch - 1)
        _step(model, optimiser, train, config, epoch)
        model.temperature = temperature(config, epoch)
        validation_nll = mean_nll(predict(model, validation), validation.y)
        if validation_nll < best.validation_nll:
            best = SelectedEpoch(epoch, validation_nll)
            best_weights = copy.deepcopy(model.state_dict())
        if config.patience is not None and epoch - best.epoch >= config.patience:
            break
    if best_weights is None:
        raise TrainingDiverged(f"no finite validation NLL in {config.epochs} epochs")
    model.load_state_dict(best_weights)
    return best


def refit(model: AnchorMoE, train: Batch, epochs: int, config: TrainConfig) -> None:
    """Phase 2. The router stays as cool as phase 1 left it, whichever epoch was selected."""
    optimiser = _optimiser(model, config)
    for epoch in range(1, epochs + 1):
        model.temperature = temperature(config, config.epochs + epoch - 1)
        _step(model, optimiser, train, config, epoch)
    model.temperature = temperature(config, config.epochs + epochs)


@torch.no_grad()
def predict(model: AnchorMoE, batch: Batch) -> GaussianMixture:
    model.eval()
    return model(batch.x, batch.anchor)


def mean_nll(mixture: GaussianMixture, y: Tensor) -> float:
    return float(-mixture.log_prob(y).mean())


def _optimiser(model: AnchorMoE, config: TrainConfig) -> torch.optim.AdamW:
    return torch.optim.AdamW(model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=True)


def _step(model: AnchorMoE, optimiser: torch.optim.AdamW, batch: Batch, config: TrainConfig, epoch: int) -> None:
    model.train()
    optimiser.zero_grad(set_to_none=True)  # a parameter without a gradient is skipped, not decayed
    prediction = model.predict(batch.x, batch.anchor)
    objective(prediction, batch.y, model, config, epoch).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm)
    optimiser.step()
