"""Anchor-MoE once more: in NumPy and float64, one row and one expert at a time, from the description of the runs.

The torch module is tested against `components` and `objective`, the compiled kernels against the torch module. Nothing
of the package is used but its settings and the names of its weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from anchormoe.model.settings import AnchorMode, Combination, ModelSettings, RouterKind, SmoothAt, TrainingSettings

FLOOR = 1e-12


@dataclass(frozen=True)
class Row:
    """One row's mixture: weight, mean and scale of its k C components; the rest is what penalties are about."""

    weight: np.ndarray
    mean: np.ndarray
    scale: np.ndarray
    delta: np.ndarray
    chosen: np.ndarray
    gate: np.ndarray  # of the chosen experts
    router_prob: np.ndarray | None

    def log_prob(self, y: float) -> float:
        normal = np.exp(-0.5 * ((y - self.mean) / self.scale) ** 2) / (self.scale * np.sqrt(2 * np.pi))
        return float(np.log((self.weight * normal).sum()))


def rows(model: nn.Module, x: np.ndarray, anchor: np.ndarray) -> list[Row]:
    """Return every row's mixture in the mode (training or evaluation) that the module is in, without dropout."""
    weights = {name: tensor.detach().double().numpy() for name, tensor in model.named_parameters()}
    return [_row(model, weights, *row) for row in zip(x.astype(np.float64), anchor.astype(np.float64), strict=True)]


def log_prob(model: nn.Module, x: np.ndarray, anchor: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return log p(y) of every row."""
    return np.array([row.log_prob(target) for row, target in zip(rows(model, x, anchor), y, strict=True)])


def objective(model: nn.Module, batch, config: TrainingSettings, epoch: int) -> float:
    """Return the mean NLL and all penalties, in the order of the description."""
    found = rows(model, batch.x.numpy(), batch.anchor.numpy())
    loss = -np.mean([row.log_prob(y) for row, y in zip(found, batch.y.numpy(), strict=True)])
    if model.config.router is not RouterKind.none:
        prob = np.array([row.router_prob for row in found])
        entropy_weight = config.entropy_weight if epoch <= config.entropy_epochs else config.entropy_weight_after
        loss += entropy_weight * (prob * np.log(prob + FLOOR)).sum(1).mean()
        loss += config.balance_weight * ((prob.mean(0) - 1 / prob.shape[1]) ** 2).sum()
    loss += config.log_scale_weight * (model.window.log_scale_KD.detach().numpy() ** 2).mean()
    if model.config.anchor_mode is AnchorMode.delta:
        num_entries = len(found) * model.config.num_experts * model.config.num_components
        loss += config.delta_weight * sum((row.delta**2).sum() for row in found) / num_entries
    return float(loss)


def _row(model: nn.Module, weights: dict[str, np.ndarray], x: np.ndarray, anchor: float) -> Row:
    config = model.config
    z = weights["projection.weight_DI"] @ x + weights["projection.bias_D"]
    if config.layer_norm:
        z = (z - z.mean()) / np.sqrt(z.var() + 1e-5) * weights["projection.norm.weight"]
        z = z + weights["projection.norm.bias"]
    log_s = np.clip(weights["window.log_scale_KD"], config.log_scale_min, config.log_scale_max)
    window = np.exp(-((z - weights["window.center_KD"]) ** 2 / (2 * np.exp(2 * log_s))).sum(1)) + FLOOR
    logits, prob = np.zeros(config.num_experts), None
    if config.router is not RouterKind.none:
        query, key = weights["router.query_RD"] @ z + weights["router.query_bias_R"], weights["router.key_KR"]
        logits = key @ query / np.sqrt(config.router_dim)
        if config.router is RouterKind.cosine:
            logits = key @ query / (np.linalg.norm(key, axis=1) * np.linalg.norm(query))
        logits = logits / model.temperature
        prob = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    # Window times softmax of the logits, normalised; in log space it is the window that has the floor.
    if config.combination is Combination.log_space:
        gate = np.maximum(window / window.sum(), FLOOR) * np.exp(logits)
        gate /= gate.sum()
    else:
        gate = window if prob is None else window * prob
        gate = gate / (gate.sum() + FLOOR)
    chosen = np.argsort(-gate, kind="stable")[: config.top_k]
    share = gate[chosen] / (gate[chosen].sum() + FLOOR)
    if model.training or config.smooth_at is SmoothAt.always:
        share = (1 - config.smoothing) * share + config.smoothing / config.top_k

    parts = []
    for expert, w in zip(chosen, share, strict=True):
        pi, delta, scale = _expert(config, weights[f"experts.packed.{expert}"], x)
        mean = {AnchorMode.delta: anchor + delta, AnchorMode.only: anchor + 0 * delta, AnchorMode.free: delta}
        weight = (w + FLOOR if w > 0 else 0.0) * (pi + FLOOR)
        parts.append((weight, mean[config.anchor_mode], scale, delta))
    weight, mean, scale, delta = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Row(weight, mean, scale, delta, chosen, share, prob)


def _expert(config: ModelSettings, packed: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return probabilities, shifts and scales of one expert's components."""
    hidden = x
    for width in (config.hidden_dim, config.hidden_dim):
        weight, packed = packed[: width * len(hidden)].reshape(width, len(hidden)), packed[width * len(hidden) :]
        bias, packed = packed[:width], packed[width:]
        hidden = np.maximum(weight @ hidden + bias, 0)
    num_outputs = 3 * config.num_components
    weight, bias = packed[:-num_outputs].reshape(num_outputs, len(hidden)), packed[-num_outputs:]
    logits, delta, log_scale = np.split(weight @ hidden + bias, 3)
    pi = np.exp(logits) / np.exp(logits).sum()
    return pi, delta, np.clip(np.exp(log_scale), config.sigma_min, config.sigma_max)


def weights_of_ordinary_layers(config: ModelSettings, *, input_dim: int) -> dict[str, torch.Tensor]:
    """Draw a model's weights from torch's global stream as the published runs did, under the package's names.

    Every layer is made by its own constructor, and then gets Xavier's weights and no bias.
    """
    projection = xavier(nn.Linear(input_dim, config.latent_dim))
    weights = {"projection.weight_DI": projection.weight, "projection.bias_D": projection.bias}
    weights["window.center_KD"] = torch.randn(config.num_experts, config.latent_dim)
    weights["window.log_scale_KD"] = torch.zeros(config.num_experts, config.latent_dim)
    if config.router is not RouterKind.none:
        query = nn.Linear(config.latent_dim, config.router_dim)
        weights |= {"router.query_RD": query.weight, "router.query_bias_R": query.bias}
        weights["router.key_KR"] = torch.randn(config.num_experts, config.router_dim)
    for k in range(config.num_experts):
        hidden = nn.Linear(input_dim, config.hidden_dim), nn.Linear(config.hidden_dim, config.hidden_dim)
        heads = [nn.Linear(config.hidden_dim, config.num_components) for _ in range(3)]
        for layer in (*hidden, *heads):
            xavier(layer)
        pieces = [tensor for layer in hidden for tensor in (layer.weight, layer.bias)]
        pieces += [head.weight for head in heads] + [head.bias for head in heads]
        weights[f"experts.packed.{k}"] = torch.cat([piece.flatten() for piece in pieces])
    return {name: value.detach() for name, value in weights.items()}


def xavier(layer: nn.Linear) -> nn.Linear:
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
