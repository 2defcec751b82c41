"""The whole network in one compiled call: an epoch of training, each row's mixture, or the mean NLL."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anchormoe.model.kernels import adamw
from anchormoe.model.kernels.compiled import compiled
from anchormoe.model.kernels.densities import nll
from anchormoe.model.kernels.experts import mixture_of_experts, score_and_gradients
from anchormoe.model.kernels.gates import (
    NO_ROUTER,
    GateSettings,
    GateWeights,
    gates_backward,
    gates_forward,
    router_penalty,
)


class Head(NamedTuple):
    """From an expert's outputs to components: mean = anchor + Delta (either may be off), scale clamped."""

    use_anchor: bool
    use_delta: bool
    sigma_min: float
    sigma_max: float


class Weights(NamedTuple):
    gates: GateWeights
    experts: tuple[np.ndarray, ...]


class Settings(NamedTuple):
    gates: GateSettings
    sizes: tuple[int, int, int]  # of an expert: input, hidden, output
    head: Head


class Objective(NamedTuple):
    use_crps: bool
    entropy_weight: float
    balance_weight: float
    delta_weight: float
    log_scale_weight: float
    dropout: float
    learn_windows: bool


@compiled
def train_epoch(x_NI, anchor_N, y_N, batch_size, weights, settings, objective, optimiser, steps_before):
    """One step on each mini-batch, rows in the order given. `optimiser` is one of (*weights.gates, *weights.experts),
    and the number of steps before these seeds the dropout."""
    for batch in range((len(y_N) + batch_size - 1) // batch_size):
        rows = slice(batch * batch_size, (batch + 1) * batch_size)
        _, gradients = objective_and_gradients(
            x_NI[rows], anchor_N[rows], y_N[rows], weights, settings, objective, steps_before + batch + 1
        )
        adamw.step(optimiser, gradients)


@compiled
def objective_and_gradients(x_NI, anchor_N, y_N, weights, settings, objective, seed):
    """The value, and the flat gradients in the order of (*weights.gates, *weights.experts).

    value = mean score, -log p(y) or the CRPS
          + delta_weight mean_nkc Delta_nkc^2   (experts a row did not choose count as 0)
          + entropy_weight mean_n sum_j p_nj log p_nj
          + balance_weight sum_j (mean_n p_nj - 1/K)^2
          + log_scale_weight mean_jl log_s_jl^2
    where p is the router's softmax over all K experts. What has no part in it (an expert nobody chose, windows that
    are not learned, a router that is not there) has an empty gradient.
    """
    chosen_NJ, weight_NJ, prob_NK, kept = gates_forward(x_NI, weights.gates, settings.gates)
    value, grad_weight_NJ, grad_experts, count_K = score_and_gradients(
        x_NI, chosen_NJ, weight_NJ, anchor_N, y_N, weights.experts, settings.sizes, settings.head,
        objective.use_crps, objective.delta_weight, objective.dropout, seed,
    )  # fmt: skip
    grad_prob_NK = np.zeros_like(prob_NK)
    if settings.gates.router != NO_ROUTER:
        penalty, grad_prob_NK = router_penalty(prob_NK, objective.entropy_weight, objective.balance_weight)
        value += penalty
    grad_gates = gates_backward(
        x_NI, weights.gates, settings.gates, chosen_NJ, prob_NK, kept, grad_weight_NJ, grad_prob_NK
    )
    log_scale_KD = weights.gates.log_scale_KD
    value += objective.log_scale_weight * (log_scale_KD * log_scale_KD).mean()
    grad_gates.log_scale_KD[:] += log_scale_KD * x_NI.dtype.type(2 * objective.log_scale_weight / log_scale_KD.size)
    nothing = np.empty(0, x_NI.dtype)
    gradients = [
        grad_gates.projection_DI.ravel(),
        grad_gates.bias_D,
        grad_gates.norm_weight_D,
        grad_gates.norm_bias_D,
        grad_gates.center_KD.ravel() if objective.learn_windows else nothing,
        grad_gates.log_scale_KD.ravel() if objective.learn_windows else nothing,
        grad_gates.query_RD.ravel(),
        grad_gates.query_bias_R,
        grad_gates.key_KR.ravel(),
    ]
    for k in range(len(count_K)):
        gradients.append(grad_experts[k] if count_K[k] > 0 else nothing)
    return value, gradients


@compiled
def mixture(x_NI, anchor_N, weights, settings):
    """Log weights, means and scales of each row's components."""
    chosen_NJ, weight_NJ, _, _ = gates_forward(x_NI, weights.gates, settings.gates)
    return mixture_of_experts(x_NI, chosen_NJ, weight_NJ, anchor_N, weights.experts, settings.sizes, settings.head)


@compiled
def mean_nll(x_NI, anchor_N, y_N, weights, settings):
    return nll(*mixture(x_NI, anchor_N, weights, settings), y_N)[0].mean()
