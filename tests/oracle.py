"""Anchor-MoE once more: plain, dense and slow, straight from the description of the published runs.

`PlainAnchorMoE` is an ordinary torch module, one layer per weight matrix, whose gradients are autograd's; `log_prob` is
the same forward pass in numpy, row by row. The package's fast code is tested against both, and its training against
`select_epoch` and `refit` here. Nothing of the package is used but its configuration and, to copy weights, its names.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from anchormoe.config.schema import AnchorMode, Combination, ModelSettings, RouterKind, SmoothAt, TrainingSettings

FLOOR = 1e-12


class PlainExpert(nn.Module):
    def __init__(self, *, input_dim: int, hidden_dim: int, num_components: int) -> None:
        super().__init__()
        self.hidden1 = nn.Linear(input_dim, hidden_dim)
        self.hidden2 = nn.Linear(hidden_dim, hidden_dim)
        self.logits = nn.Linear(hidden_dim, num_components)
        self.delta = nn.Linear(hidden_dim, num_components)
        self.log_scale = nn.Linear(hidden_dim, num_components)
        for layer in self.children():
            xavier(layer)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = torch.relu(self.hidden2(torch.relu(self.hidden1(x))))
        return self.logits(hidden), self.delta(hidden), self.log_scale(hidden)


@dataclass(frozen=True)
class PlainOutput:
    """Dense: every expert has an entry, (rows, experts) or (rows, experts, components)."""

    weight: Tensor
    pi: Tensor
    delta: Tensor
    mean: Tensor
    sigma: Tensor
    router_prob: Tensor | None

    def nll(self, y: Tensor) -> Tensor:
        """Per row; lw_j = log(w_j + 1e-12) if w_j > 0, else -1e9."""
        used = self.weight > 0
        log_weight = torch.where(used, torch.log(torch.where(used, self.weight, 1.0) + FLOOR), -1e9)
        normal = torch.distributions.Normal(self.mean, self.sigma)
        parts = log_weight[:, :, None] + torch.log(self.pi + FLOOR) + normal.log_prob(y[:, None, None])
        return -torch.logsumexp(parts.flatten(1), dim=1)


class PlainAnchorMoE(nn.Module):
    """Weights are drawn from torch's global stream by the layers' own constructors, then by Xavier, in the order of
    the published runs."""

    def __init__(self, config: ModelSettings, *, input_dim: int) -> None:
        super().__init__()
        self.config = config
        self.temperature = 1.0
        self.projection = nn.Linear(input_dim, config.latent_dim)
        xavier(self.projection)
        self.norm = nn.LayerNorm(config.latent_dim) if config.layer_norm else None
        shape = (config.num_experts, config.latent_dim)
        self.center = nn.Parameter(torch.randn(shape), requires_grad=config.window_learnable)
        self.log_scale = nn.Parameter(torch.zeros(shape), requires_grad=config.window_learnable)
        if config.router is not RouterKind.none:
            self.query = nn.Linear(config.latent_dim, config.router_dim)
            self.key = nn.Parameter(torch.randn(config.num_experts, config.router_dim))
        self.experts = nn.ModuleList(
            PlainExpert(input_dim=input_dim, hidden_dim=config.hidden_dim, num_components=config.num_components)
            for _ in range(config.num_experts)
        )

    def forward(self, x: Tensor, anchor: Tensor) -> PlainOutput:
        config = self.config
        z = self.projection(x)
        if self.norm is not None:
            z = self.norm(z)
        log_s = self.log_scale.clamp(config.log_scale_min, config.log_scale_max)
        squares = (z[:, None, :] - self.center) ** 2 / (2 * torch.exp(2 * log_s))
        window = torch.exp(-squares.sum(-1)) + FLOOR

        logits, prob = torch.zeros_like(window), None
        if config.router is not RouterKind.none:
            logits = self.router_logits(z) / self.temperature
            prob = torch.softmax(logits, dim=1)
        if config.combination is Combination.log_space:
            normalised = window / window.sum(1, keepdim=True)
            combined = torch.softmax(torch.log(normalised.clamp(min=FLOOR)) + logits, dim=1)
        else:
            product = window if prob is None else window * prob
            combined = product / (product.sum(1, keepdim=True) + FLOOR)

        chosen = combined.topk(config.top_k, dim=1).indices
        mask = torch.zeros_like(combined).scatter(1, chosen, 1.0)
        weight = combined * mask / ((combined * mask).sum(1, keepdim=True) + FLOOR)
        if self.training or config.smooth_at is SmoothAt.always:
            weight = (1 - config.smoothing) * weight + config.smoothing / config.top_k * mask

        pi, delta, sigma = [], [], []
        neutral = x.new_zeros(len(x), config.num_components)
        for j, expert in enumerate(self.experts):
            mine = mask[:, j : j + 1] > 0
            if not mine.any():  # not evaluated at all, so its weights get no gradient
                pi.append(neutral + 1 / config.num_components)
                delta.append(neutral)
                sigma.append(neutral + 1)
                continue
            pi_logits, shift, log_sigma = expert(x)
            pi.append(torch.where(mine, torch.softmax(pi_logits, dim=1), 1 / config.num_components))
            delta.append(torch.where(mine, shift, 0.0))
            sigma.append(torch.where(mine, log_sigma.exp().clamp(config.sigma_min, config.sigma_max), 1.0))
        shifts = torch.stack(delta, 1)
        mean = torch.zeros_like(shifts)
        if config.anchor_mode is not AnchorMode.free:
            mean = mean + anchor[:, None, None]
        if config.anchor_mode is not AnchorMode.only:
            mean = mean + shifts
        return PlainOutput(weight, torch.stack(pi, 1), shifts, mean, torch.stack(sigma, 1), prob)

    def router_logits(self, z: Tensor) -> Tensor:
        query, key = self.query(z), self.key
        if self.config.router is RouterKind.cosine:
            return (query / query.norm(dim=1, keepdim=True)) @ (key / key.norm(dim=1, keepdim=True)).T
        return query @ key.T / math.sqrt(self.config.router_dim)

    def copy_weights(self, model: nn.Module) -> None:
        """Take the weights (and the temperature) of the package's model."""
        self.temperature = model.temperature
        source = dict(model.named_parameters())
        with torch.no_grad():
            for name, tensors in self._layout().items():
                flat = source[name].flatten()
                pieces = flat.split([tensor.numel() for tensor in tensors])
                for tensor, piece in zip(tensors, pieces, strict=True):
                    tensor.copy_(piece.view(tensor.shape))

    def by_package_name(self, get: Callable[[Tensor], Tensor | None]) -> dict[str, Tensor | None]:
        """get(weight) of all weights, under the names and in the shapes of the package's model."""
        result: dict[str, Tensor | None] = {}
        for name, tensors in self._layout().items():
            values = [get(tensor) for tensor in tensors]
            if len(values) == 1 or all(value is None for value in values):
                result[name] = values[0]
            else:  # one tensor there: what has no value here (the shifts, when the anchor alone is the mean) is zero
                filled = [torch.zeros_like(t) if v is None else v for t, v in zip(tensors, values, strict=True)]
                result[name] = torch.cat([value.flatten() for value in filled])
        return result

    def _layout(self) -> dict[str, list[nn.Parameter]]:
        layout = {
            "projection.weight_DI": [self.projection.weight],
            "projection.bias_D": [self.projection.bias],
            "window.center_KD": [self.center],
            "window.log_scale_KD": [self.log_scale],
        }
        if self.norm is not None:
            layout |= {"projection.norm.weight": [self.norm.weight], "projection.norm.bias": [self.norm.bias]}
        if self.config.router is not RouterKind.none:
            layout["router.query_RD"] = [self.query.weight]
            layout["router.query_bias_R"] = [self.query.bias]
            layout["router.key_KR"] = [self.key]
        for k, expert in enumerate(self.experts):
            heads = [expert.logits, expert.delta, expert.log_scale]
            layout[f"experts.packed.{k}"] = [
                *(expert.hidden1.weight, expert.hidden1.bias, expert.hidden2.weight, expert.hidden2.bias),
                *(head.weight for head in heads),
                *(head.bias for head in heads),
            ]
        return layout


def xavier(layer: nn.Module) -> None:
    assert isinstance(layer, nn.Linear)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)


def objective(output: PlainOutput, y: Tensor, plain: PlainAnchorMoE, config: TrainingSettings, epoch: int) -> Tensor:
    """Mean NLL and all penalties, in the order of the description."""
    loss = output.nll(y).mean()
    prob = output.router_prob
    if prob is not None:
        entropy_weight = config.entropy_weight if epoch <= config.entropy_epochs else config.entropy_weight_after
        loss = loss + entropy_weight * (prob * torch.log(prob + FLOOR)).sum(1).mean()
    loss = loss + config.log_scale_weight * (plain.log_scale**2).mean()
    if prob is not None:
        loss = loss + config.balance_weight * ((prob.mean(0) - 1 / prob.shape[1]) ** 2).sum()
    if plain.config.anchor_mode is AnchorMode.delta:
        loss = loss + config.delta_weight * (output.delta**2).mean()
    return loss


# --- the two-phase fit; a batch is anything with x, anchor and y


def select_epoch(plain: PlainAnchorMoE, train, validation, config: TrainingSettings) -> tuple[int, list[float]]:
    """The selected epoch, whose weights the model is left with, and the validation NLL after every epoch."""
    optimiser = adamw(plain, config)
    plain.temperature = config.temperature_start
    nlls: list[float] = []
    best_weights = None
    for epoch in range(1, config.epochs + 1):
        step(plain, optimiser, train, config, epoch)
        plain.eval()
        with torch.no_grad():
            nll = plain(validation.x, validation.anchor).nll(validation.y).mean().item()
        if not nlls or nll < min(nlls):
            best_weights = copy.deepcopy(plain.state_dict())
        nlls.append(nll)
    assert best_weights is not None
    plain.load_state_dict(best_weights)
    return 1 + nlls.index(min(nlls)), nlls


def refit(plain: PlainAnchorMoE, train, epochs: int, config: TrainingSettings) -> None:
    optimiser = adamw(plain, config)
    for epoch in range(1, epochs + 1):
        step(plain, optimiser, train, config, epoch)
    plain.eval()


def adamw(plain: PlainAnchorMoE, config: TrainingSettings) -> torch.optim.AdamW:
    return torch.optim.AdamW(
        plain.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, betas=(0.9, 0.999), eps=1e-8
    )


def step(plain: PlainAnchorMoE, optimiser: torch.optim.Optimizer, batch, config: TrainingSettings, epoch: int) -> None:
    plain.train()
    for parameter in plain.parameters():
        parameter.grad = None
    objective(plain(batch.x, batch.anchor), batch.y, plain, config, epoch).backward()
    nn.utils.clip_grad_norm_(plain.parameters(), config.clip_norm)
    optimiser.step()
    plain.temperature = max(config.temperature_decay * plain.temperature, config.temperature_end)


# --- the forward pass in numpy, one row and one expert at a time


def log_prob(plain: PlainAnchorMoE, x: np.ndarray, anchor: np.ndarray, y: np.ndarray) -> np.ndarray:
    """log p(y) of every row, in float64, in the mode (training or evaluation) that the module is in."""
    weights = {name: tensor.detach().double().numpy() for name, tensor in plain.named_parameters()}
    rows = zip(x.astype(np.float64), anchor.astype(np.float64), y.astype(np.float64), strict=True)
    return np.array([_row_log_prob(plain, weights, *row) for row in rows])


def _row_log_prob(plain: PlainAnchorMoE, weights: dict[str, np.ndarray], x: np.ndarray, anchor: float, y: float):
    config = plain.config
    z = weights["projection.weight"] @ x + weights["projection.bias"]
    if config.layer_norm:
        z = (z - z.mean()) / np.sqrt(z.var() + 1e-5) * weights["norm.weight"] + weights["norm.bias"]
    log_s = np.clip(weights["log_scale"], config.log_scale_min, config.log_scale_max)
    window = np.exp(-((z - weights["center"]) ** 2 / (2 * np.exp(2 * log_s))).sum(1)) + FLOOR
    logits = np.zeros(config.num_experts)
    if config.router is not RouterKind.none:
        query, key = weights["query.weight"] @ z + weights["query.bias"], weights["key"]
        logits = key @ query / np.sqrt(config.router_dim)
        if config.router is RouterKind.cosine:
            logits = key @ query / (np.linalg.norm(key, axis=1) * np.linalg.norm(query))
        logits = logits / plain.temperature
    # Window times softmax of the logits, normalised; in log space it is the window that has the floor.
    if config.combination is Combination.log_space:
        gate = np.maximum(window / window.sum(), FLOOR) * np.exp(logits)
        gate /= gate.sum()
    else:
        gate = window * (1 if config.router is RouterKind.none else np.exp(logits) / np.exp(logits).sum())
        gate /= gate.sum() + FLOOR
    chosen = np.argsort(-gate)[: config.top_k]
    share = gate[chosen] / (gate[chosen].sum() + FLOOR)
    if plain.training or config.smooth_at is SmoothAt.always:
        share = (1 - config.smoothing) * share + config.smoothing / config.top_k

    density = 0.0
    for j, w in zip(chosen, share, strict=True):
        hidden = x
        for layer in ("hidden1", "hidden2"):
            hidden = np.maximum(_linear(weights, f"experts.{j}.{layer}", hidden), 0)
        pi = np.exp(_linear(weights, f"experts.{j}.logits", hidden))
        pi /= pi.sum()
        delta = _linear(weights, f"experts.{j}.delta", hidden)
        sigma = np.clip(np.exp(_linear(weights, f"experts.{j}.log_scale", hidden)), config.sigma_min, config.sigma_max)
        mean = {AnchorMode.delta: anchor + delta, AnchorMode.only: anchor, AnchorMode.free: delta}[config.anchor_mode]
        normal = np.exp(-0.5 * ((y - mean) / sigma) ** 2) / (sigma * np.sqrt(2 * np.pi))
        density += (w + FLOOR) * ((pi + FLOOR) * normal).sum()
    return np.log(density)


def _linear(weights: dict[str, np.ndarray], name: str, x: np.ndarray) -> np.ndarray:
    return weights[f"{name}.weight"] @ x + weights[f"{name}.bias"]
