"""The whole network in one compiled call: the objective and all gradients, each row's mixture, or the mean NLL."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anchormoe.compiled import compiled
from anchormoe.density_kernels import nll
from anchormoe.expert_kernels import mixture_of_experts, score_and_gradients
from anchormoe.gate_kernels import (
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


class Penalties(NamedTuple):
    entropy: float
    balance: float
    delta: float
    log_scale: float


@compiled
def objective_and_gradients(x_NI, anchor_N, y_N, weights, settings, use_crps, penalties, dropout, seed):
    """The value, GateWeights of gradients, the experts' gradients (K, size of one), and how many rows chose each."""
    chosen_NJ, weight_NJ, prob_NK, kept = gates_forward(x_NI, weights.gates, settings.gates)
    value, grad_weight_NJ, grad_experts, count_K = score_and_gradients(
        x_NI, chosen_NJ, weight_NJ, anchor_N, y_N,
        weights.experts, settings.sizes, settings.head, use_crps, penalties.delta, dropout, seed,
    )  # fmt: skip
    grad_prob_NK = np.zeros_like(prob_NK)
    if settings.gates.router != NO_ROUTER:
        penalty, grad_prob_NK = router_penalty(prob_NK, penalties.entropy, penalties.balance)
        value += penalty
    grad_gates = gates_backward(
        x_NI, weights.gates, settings.gates, chosen_NJ, prob_NK, kept, grad_weight_NJ, grad_prob_NK
    )
    log_scale_KD = weights.gates.log_scale_KD
    value += penalties.log_scale * (log_scale_KD * log_scale_KD).mean()
    grad_gates.log_scale_KD[:] += log_scale_KD * x_NI.dtype.type(2 * penalties.log_scale / log_scale_KD.size)
    return value, grad_gates, grad_experts, count_K


@compiled
def mixture(x_NI, anchor_N, weights, settings):
    """Log weights, means and scales of each row's components."""
    chosen_NJ, weight_NJ, _, _ = gates_forward(x_NI, weights.gates, settings.gates)
    return mixture_of_experts(x_NI, chosen_NJ, weight_NJ, anchor_N, weights.experts, settings.sizes, settings.head)


@compiled
def mean_nll(x_NI, anchor_N, y_N, weights, settings):
    return nll(*mixture(x_NI, anchor_N, weights, settings), y_N)[0].mean()
