"""The loss and the two-phase fit.

Phase 1 trains on TR for a number of epochs and keeps the weights of the epoch that is best on VA.
Phase 2 goes on from those weights, with a new optimiser, for as many epochs on TR and VA together.

A step is computed by one of two backends, which are tested to agree: torch (autograd, any parts, any device) or the
compiled kernels (the stock parts on the CPU, much faster for networks of this size).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.errors import UserError
from anchormoe.model.network import FLOOR, AnchorMoE, Experts, Projection, Router, Window
from anchormoe.model.settings import AnchorMode, Backend, Loss, TrainingSettings

PREDICTION_ROWS = 8192  # the torch backend's block of rows in evaluation; bounds the memory, not the result


@dataclass(frozen=True)
class Batch:
    """Standardised inputs (N, I), z-scored anchor (N) and z-scored target (N), float32; of several targets (N, T).

    The weights of rows (N) have mean 1 over the training rows; None means that all rows count alike.
    """

    x: Tensor
    anchor: Tensor
    y: Tensor
    weight: Tensor | None = None

    @property
    def weights(self) -> Tensor:
        """Return the weight of every row (N)."""
        return self.y.new_ones(len(self.y)) if self.weight is None else self.weight

    def rows(self, index: Tensor | slice) -> Batch:
        """Return some of the rows."""
        weight = None if self.weight is None else self.weight[index]
        return Batch(self.x[index], self.anchor[index], self.y[index], weight)

    def blocks(self, size: int) -> Iterator[Batch]:
        """Yield all rows in order, at most `size` at a time; one empty block if there are none."""
        for first in range(0, max(len(self.y), 1), size):
            yield self.rows(slice(first, first + size))

    def to(self, device: torch.device) -> Batch:
        """Return the batch on a device."""
        weight = None if self.weight is None else self.weight.to(device)
        return Batch(self.x.to(device), self.anchor.to(device), self.y.to(device), weight)


@dataclass(frozen=True)
class SelectedEpoch:
    """The epoch that phase 1 selected."""

    epoch: int  # counted from 1
    validation_nll: float
    longest_wait: int = 0  # epochs from one best to the next, at most; any patience above it selects the same epoch
    # For every epoch of phase 1: the objective on the training rows, and the validation NLL after it.
    objectives: tuple[float, ...] = field(default=(), compare=False, repr=False)
    validation_nlls: tuple[float, ...] = field(default=(), compare=False, repr=False)


class TrainingDiverged(RuntimeError):
    """No epoch had a finite validation NLL."""


def temperature(config: TrainingSettings, epochs: int) -> float:
    """Return the router's temperature after this number of epochs."""
    return max(config.temperature_start * config.temperature_decay**epochs, config.temperature_end)


def num_epochs(config: TrainingSettings, num_rows: int) -> int:
    """Return the number of epochs of phase 1."""
    steps_per_epoch = math.ceil(num_rows / (config.batch_size or num_rows))
    return max(config.epochs, math.ceil(config.min_steps / steps_per_epoch))


def select_epoch(model: AnchorMoE, train: Batch, validation: Batch, config: TrainingSettings) -> SelectedEpoch:
    """Phase 1. Leaves the model with the weights of the selected epoch: the first with the lowest validation NLL.

    After either phase the model is in evaluation mode.
    """
    phase = Phase(model, config)
    best = SelectedEpoch(epoch=0, validation_nll=math.inf)
    best_weights = None
    objectives, nlls = [], []
    for epoch in range(1, num_epochs(config, len(train.y)) + 1):
        model.temperature = temperature(config, epoch - 1)
        objectives.append(phase.run_epoch(train, epoch))
        model.temperature = temperature(config, epoch)
        nll = phase.steps.mean_nll(validation)
        nlls.append(nll)
        if nll < best.validation_nll:
            best = SelectedEpoch(epoch, nll, max(best.longest_wait, epoch - best.epoch))
            best_weights = phase.steps.weights()
        if config.patience is not None and epoch - best.epoch >= config.patience:
            break
    if best_weights is None:
        raise TrainingDiverged(f"no finite validation NLL in {config.epochs} epochs")
    phase.finish(best_weights)
    return dataclasses.replace(best, objectives=tuple(objectives), validation_nlls=tuple(nlls))


def refit(model: AnchorMoE, train: Batch, epochs: int, config: TrainingSettings) -> None:
    """Phase 2. The router stays as cool as phase 1 left it, whichever epoch was selected."""
    phase = Phase(model, config)
    for epoch in range(1, epochs + 1):
        model.temperature = temperature(config, config.epochs + epoch - 1)
        phase.run_epoch(train, epoch)
    model.temperature = temperature(config, config.epochs + epochs)
    phase.finish(phase.steps.weights())


class Phase:
    """A model and a new optimiser of its weights."""

    def __init__(self, model: AnchorMoE, config: TrainingSettings) -> None:
        self.model, self.config = model, config
        self.steps = make_steps(model, config)

    def run_epoch(self, batch: Batch, epoch: int) -> float:
        """Make one step on all rows, or one on each mini-batch of them; return the mean value of the objective."""
        num_rows = len(batch.y)
        batch_size = min(self.config.batch_size or num_rows, num_rows)
        if batch_size < num_rows:  # in an order that depends on the epoch alone
            batch = batch.rows(torch.randperm(num_rows, generator=torch.Generator().manual_seed(epoch)))
        return self.steps.run(batch, batch_size, objective(self.model, self.config, epoch))

    def finish(self, weights: Any) -> None:
        """Give the model the weights that were chosen."""
        self.steps.store(weights)
        self.model.eval()


class Objective(NamedTuple):
    """The function that the steps of an epoch minimise, in either backend.

    mean score (-log p(y), or the CRPS) times the row's weight
    + delta_weight mean_njc Delta_njc^2   (over all K experts; those that a row did not choose count as 0)
    + entropy_weight mean_n sum_j p_nj log p_nj
    + balance_weight sum_j (mean_n p_nj - 1/K)^2
    + log_scale_weight mean_jl log_s_jl^2
    where p is the router's softmax over all K experts, and s are the windows' scales.
    """

    use_crps: bool
    entropy_weight: float
    balance_weight: float
    delta_weight: float
    log_scale_weight: float

    def __call__(self, model: AnchorMoE, batch: Batch) -> Tensor:
        """Return the value on a batch, differentiable. Parts of your own may lack what a penalty is about."""
        gates = model.gates(batch.x)
        outputs = model.experts(batch.x, gates.chosen_NJ)
        mixture = model.mixture(gates, outputs, batch.anchor)
        value = (batch.weights * (mixture.crps(batch.y) if self.use_crps else -mixture.log_prob(batch.y))).mean()
        if self.delta_weight > 0:
            share = model.config.top_k / model.config.num_experts  # of the experts that a row chose
            value = value + self.delta_weight * share * outputs.squared_delta_NJC.mean()
        if gates.router_prob_NK is not None:
            prob_NK = gates.router_prob_NK
            value = value + self.entropy_weight * (prob_NK * (prob_NK + FLOOR).log()).sum(1).mean()
            value = value + self.balance_weight * (prob_NK.mean(0) - 1 / prob_NK.shape[1]).square().sum()
        if isinstance(model.window, Window):
            value = value + self.log_scale_weight * model.window.log_scale_KD.square().mean()
        return value


def objective(model: AnchorMoE, config: TrainingSettings, epoch: int) -> Objective:
    """Return the objective of an epoch; Delta is penalised where the mean is anchor + Delta."""
    return Objective(
        use_crps=config.loss is Loss.crps,
        entropy_weight=float(config.entropy_weight if epoch <= config.entropy_epochs else config.entropy_weight_after),
        balance_weight=float(config.balance_weight),
        delta_weight=float(config.delta_weight) if model.config.anchor_mode is AnchorMode.delta else 0.0,
        log_scale_weight=float(config.log_scale_weight),
    )


class Steps(Protocol):
    """Steps of a new optimiser on a model's weights, by one of the backends."""

    def run(self, batch: Batch, batch_size: int, objective: Objective) -> float:
        """Make one step on each mini-batch, rows in the order given; return the mean value of the objective."""

    def mean_nll(self, batch: Batch) -> float:
        """Return the mean NLL in evaluation mode."""

    def weights(self) -> Any:
        """Return a copy of the weights as they are now."""

    def store(self, weights: Any) -> None:
        """Give the model these weights."""


class TorchSteps:
    """Autograd and torch.optim.AdamW."""

    def __init__(self, model: AnchorMoE, config: TrainingSettings) -> None:
        self.model, self.clip_norm = model, config.clip_norm
        self.device = next(model.parameters()).device
        self.optimiser = torch.optim.AdamW(
            model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        self.num_steps = 0

    def run(self, batch: Batch, batch_size: int, objective: Objective) -> float:
        values = []
        self.model.train()
        on_cpu = self.device.type == "cpu"
        with torch.random.fork_rng([] if on_cpu else [self.device], device_type="cuda" if on_cpu else self.device.type):
            torch.manual_seed(self.num_steps)  # dropout does not depend on what else draws random numbers
            for rows in batch.to(self.device).blocks(batch_size):
                self.optimiser.zero_grad()
                value = objective(self.model, rows)
                value.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_norm)
                self.optimiser.step()
                self.num_steps += 1
                values.append(value.item())
        return sum(values) / len(values)

    def mean_nll(self, batch: Batch) -> float:
        self.model.eval()
        with torch.no_grad():
            total = sum(
                -(rows.weights * self.model(rows.x, rows.anchor).log_prob(rows.y)).sum().item()
                for rows in batch.to(self.device).blocks(PREDICTION_ROWS)
            )
        return total / batch.weights.sum().item()

    def weights(self) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in self.model.state_dict().items()}

    def store(self, weights: dict[str, Tensor]) -> None:
        self.model.load_state_dict(weights)


def make_steps(model: AnchorMoE, config: TrainingSettings) -> Steps:
    """Return new steps of the backend that the settings ask for."""
    if use_compiled(model, config.backend):
        from anchormoe.model.kernels.interface import CompiledSteps  # compiles, so not before it is needed

        return CompiledSteps(model, config)
    return TorchSteps(model, config)


def use_compiled(model: AnchorMoE, backend: Backend) -> bool:
    """Decide between the compiled kernels and torch; the kernels asked for where they cannot be is an error."""
    if backend is Backend.torch:
        return False
    reason = foreign_part(model)
    if backend is Backend.compiled and reason is not None:
        raise UserError(
            f"train.backend=compiled needs the stock parts on the CPU, received {reason}: use auto or torch"
        )
    return reason is None


def foreign_part(model: AnchorMoE) -> str | None:
    """Say what the compiled kernels do not know about a model; None if they know all of it."""
    if type(model) is not AnchorMoE:
        return f"{type(model).__name__} in place of AnchorMoE"
    parts: dict[type, nn.Module | None] = {
        Projection: model.projection,
        nn.LayerNorm: model.projection.norm if type(model.projection) is Projection else None,
        Window: model.window,
        Router: model.router,
        Experts: model.experts,
    }
    for stock, part in parts.items():
        if part is not None and type(part) is not stock:
            return f"{type(part).__name__} in place of {stock.__name__}"
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    if any(getattr(module, kind) for module in model.modules() for kind in hooks):
        return "a module with a hook"
    kinds = {(parameter.device.type, parameter.dtype) for parameter in model.parameters()}
    if kinds not in ({("cpu", torch.float32)}, {("cpu", torch.float64)}):
        return " and ".join(sorted(f"{dtype} on {device}" for device, dtype in kinds))
    return None


def predict(model: AnchorMoE, batch: Batch, backend: Backend = Backend.auto) -> GaussianMixture:
    """Return each row's mixture, in the units of the batch's target; leaves the model in evaluation mode."""
    model.eval()
    if use_compiled(model, backend):
        from anchormoe.model.kernels.interface import predict_compiled

        return GaussianMixture(*predict_compiled(model, batch))
    device = next(model.parameters()).device
    with torch.no_grad():
        blocks = [model(rows.x, rows.anchor) for rows in batch.to(device).blocks(PREDICTION_ROWS)]
    return model.distributions(blocks)
