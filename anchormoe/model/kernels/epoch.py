"""The whole network in one compiled call: an epoch of training, or each row's mixture."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anchormoe.model.kernels import adamw
from anchormoe.model.kernels.compiled import compiled, inlined
from anchormoe.model.kernels.densities import nll
from anchormoe.model.kernels.experts import mixture_of_experts, score_and_gradients
from anchormoe.model.kernels.gates import gates_backward, gates_forward
from anchormoe.model.kernels.latent import log_scale_penalty
from anchormoe.model.kernels.router import NO_ROUTER, router_penalty


class Weights(NamedTuple):
    """All weights, or their gradients; the arrays of a part that a model lacks are empty."""

    projection_DI: np.ndarray
    bias_D: np.ndarray
    norm_weight_D: np.ndarray
    norm_bias_D: np.ndarray
    center_KD: np.ndarray
    log_scale_KD: np.ndarray
    query_RD: np.ndarray
    query_bias_R: np.ndarray
    key_KR: np.ndarray
    experts_KW: np.ndarray


NUM_GATE_WEIGHTS = len(Weights._fields) - 1  # segments of the optimiser before those of the experts


class Settings(NamedTuple):
    """Numbers from the model's settings, in the mode (training or evaluation) and at the temperature it is in."""

    router: int
    layer_norm: bool
    log_space: bool
    log_scale_min: float
    log_scale_max: float
    top_k: int
    smoothing: float
    temperature: float
    num_components: int
    dropout: float
    use_anchor: bool  # component mean = anchor + Delta; either may be off
    use_delta: bool
    sigma_min: float
    sigma_max: float


@compiled
def train_epoch(
    x_NI, anchor_N, y_N, row_weight_N, batch_size, weights, gradients, optimiser, trained_S, scratch_4PH, settings,
    objective, steps_before,
):  # fmt: skip
    """Make one step on each mini-batch, rows in the order given, and return the mean value of the objective.

    `weights` and `gradients` are views of the optimiser's arrays; trained_S says which of its segments are trained.
    The number of steps before these seeds the dropout.
    """
    value = 0.0
    num_steps = (len(y_N) + batch_size - 1) // batch_size
    moves_S = np.empty(len(trained_S), np.bool_)
    for step in range(num_steps):
        rows = slice(step * batch_size, (step + 1) * batch_size)
        step_value, count_K = objective_and_gradients(
            x_NI[rows], anchor_N[rows], y_N[rows], row_weight_N[rows], weights, gradients, scratch_4PH, settings,
            objective, steps_before + step + 1,
        )  # fmt: skip
        value += step_value / num_steps
        for s in range(len(trained_S)):
            moves_S[s] = trained_S[s] and (s < NUM_GATE_WEIGHTS or count_K[s - NUM_GATE_WEIGHTS] > 0)
        adamw.step(optimiser, moves_S)
    return value


@inlined
def objective_and_gradients(
    x_NI, anchor_N, y_N, row_weight_N, weights, gradients, scratch_4PH, settings, objective, seed
):
    """Write the gradients; return the value of the objective and the number of rows that chose each expert.

    value = mean score times the row's weight, -log p(y) or the CRPS
          + delta_weight mean_nkc Delta_nkc^2   (experts a row did not choose count as 0)
          + entropy_weight mean_n sum_j p_nj log p_nj
          + balance_weight sum_j (mean_n p_nj - 1/K)^2
          + log_scale_weight mean_jl log_s_jl^2
    where p is the router's softmax over all K experts.
    """
    chosen_NJ, weight_NJ, prob_NK, kept = gates_forward(x_NI, weights, settings)
    grad_weight_NJ = np.empty(weight_NJ.shape, x_NI.dtype)
    value, count_K = score_and_gradients(
        x_NI, chosen_NJ, weight_NJ, anchor_N, y_N, row_weight_N, weights.experts_KW, scratch_4PH, settings, objective,
        seed, grad_weight_NJ, gradients.experts_KW,
    )  # fmt: skip
    grad_prob_NK = np.zeros(prob_NK.shape, x_NI.dtype)
    if settings.router != NO_ROUTER:
        value += router_penalty(prob_NK, objective.entropy_weight, objective.balance_weight, grad_prob_NK)
    gates_backward(x_NI, weights, gradients, settings, chosen_NJ, prob_NK, kept, grad_weight_NJ, grad_prob_NK)
    value += log_scale_penalty(weights.log_scale_KD, objective.log_scale_weight, gradients.log_scale_KD)
    return value, count_K


@compiled
def mixture(x_NI, anchor_N, weights, scratch_4PH, settings):
    """Return log weights, means and scales of each row's components."""
    chosen_NJ, weight_NJ, _, _ = gates_forward(x_NI, weights, settings)
    return mixture_of_experts(x_NI, chosen_NJ, weight_NJ, anchor_N, weights.experts_KW, scratch_4PH, settings)


@compiled
def mean_nll(log_weight_NM, mean_NM, scale_NM, y_N, row_weight_N):
    """Return the weighted mean of -log p(y)."""
    total_weight = 0.0
    for n in range(len(y_N)):
        total_weight += row_weight_N[n]
    value = nll(np.int64(0), log_weight_NM, mean_NM, scale_NM, y_N, row_weight_N)[0]
    return y_N.dtype.type(value / total_weight)
