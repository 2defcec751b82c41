"""Which experts a row uses: projection, windows, router and gates, forward and backward, compiled by numba.

Each pair of functions is the derivative of the formula in the forward's docstring. Shapes as in model.py: N rows,
I input columns, D latent dimensions, K experts, J chosen experts, R router dimensions. The window's and the penalties'
sums over rows are kept in float64.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anchormoe.model.kernels.compiled import compiled

FLOOR = 1e-12
LAYER_NORM_FLOOR = 1e-5
NO_ROUTER, DOT_ROUTER, COSINE_ROUTER = 0, 1, 2


class GateWeights(NamedTuple):
    """Arrays, or their gradients; those of a part that a model lacks are empty."""

    projection_DI: np.ndarray
    bias_D: np.ndarray
    norm_weight_D: np.ndarray
    norm_bias_D: np.ndarray
    center_KD: np.ndarray
    log_scale_KD: np.ndarray
    query_RD: np.ndarray
    query_bias_R: np.ndarray
    key_KR: np.ndarray


class GateSettings(NamedTuple):
    router: int
    layer_norm: bool
    log_space: bool
    log_scale_min: float
    log_scale_max: float
    top_k: int
    smoothing: float
    temperature: float


@compiled
def gates_forward(x_NI, weights, settings):
    """Chosen experts and their weights (N, J), the router's p (N, K), and what the way back needs."""
    projected_ND = _linear(x_NI, weights.projection_DI, weights.bias_D)
    z_ND = projected_ND
    if settings.layer_norm:
        z_ND = layer_norm_forward(projected_ND, weights.norm_weight_D, weights.norm_bias_D)
    window_NK = window_forward(
        z_ND, weights.center_KD, weights.log_scale_KD, settings.log_scale_min, settings.log_scale_max
    )
    logit_NK = router_forward(z_ND, weights, settings)
    chosen_NJ, weight_NJ, prob_NK, combined_NK = combine_forward(
        window_NK, logit_NK, settings.router != NO_ROUTER, settings.log_space, settings.top_k, settings.smoothing
    )
    return chosen_NJ, weight_NJ, prob_NK, (projected_ND, z_ND, window_NK, combined_NK)


@compiled
def gates_backward(x_NI, weights, settings, chosen_NJ, prob_NK, kept, grad_weight_NJ, grad_prob_NK):
    projected_ND, z_ND, window_NK, combined_NK = kept
    grad_window_NK, grad_logit_NK = combine_backward(
        window_NK, settings.router != NO_ROUTER, settings.log_space, settings.smoothing,
        chosen_NJ, prob_NK, combined_NK, grad_weight_NJ, grad_prob_NK,
    )  # fmt: skip
    grad_z_ND, grad_center_KD, grad_log_scale_KD = window_backward(
        z_ND, weights.center_KD, weights.log_scale_KD, settings.log_scale_min, settings.log_scale_max,
        window_NK, grad_window_NK,
    )  # fmt: skip
    grad_query_RD, grad_query_bias_R, grad_key_KR = router_backward(z_ND, weights, settings, grad_logit_NK, grad_z_ND)
    grad_norm_weight_D, grad_norm_bias_D = weights.norm_weight_D, weights.norm_bias_D  # empty without a norm
    if settings.layer_norm:
        grad_z_ND, grad_norm_weight_D, grad_norm_bias_D = layer_norm_backward(
            projected_ND, weights.norm_weight_D, grad_z_ND
        )
    return GateWeights(
        np.dot(grad_z_ND.T, x_NI),
        grad_z_ND.sum(0),
        grad_norm_weight_D,
        grad_norm_bias_D,
        grad_center_KD,
        grad_log_scale_KD,
        grad_query_RD,
        grad_query_bias_R,
        grad_key_KR,
    )


@compiled
def _linear(x_NI, weight_OI, bias_O):
    output_NO = np.dot(x_NI, weight_OI.T)
    for n in range(output_NO.shape[0]):
        for o in range(output_NO.shape[1]):
            output_NO[n, o] += bias_O[o]
    return output_NO


@compiled
def layer_norm_forward(x_ND, weight_D, bias_D):
    """(x - mean_d x) / sqrt(var_d x + LAYER_NORM_FLOOR) * weight + bias."""
    output_ND = np.empty_like(x_ND)
    for n in range(len(x_ND)):
        inverse = 1 / np.sqrt(x_ND[n].var() + LAYER_NORM_FLOOR)
        output_ND[n] = (x_ND[n] - x_ND[n].mean()) * inverse * weight_D + bias_D
    return output_ND


@compiled
def layer_norm_backward(x_ND, weight_D, grad_ND):
    grad_x_ND = np.empty_like(x_ND)
    grad_weight_D = np.zeros_like(weight_D)
    for n in range(len(x_ND)):
        inverse = 1 / np.sqrt(x_ND[n].var() + LAYER_NORM_FLOOR)
        normal_D = (x_ND[n] - x_ND[n].mean()) * inverse
        grad_weight_D += grad_ND[n] * normal_D
        grad_D = grad_ND[n] * weight_D
        grad_x_ND[n] = (grad_D - grad_D.mean() - normal_D * (grad_D * normal_D).mean()) * inverse
    return grad_x_ND, grad_weight_D, grad_ND.sum(0)


@compiled
def router_forward(z_ND, weights, settings):
    """logit_nk = <q(z_n), k_k> / (sqrt(R) tau), or cos(q(z_n), k_k) / tau, with q(z) = W z + b; 0 without a router."""
    if settings.router == COSINE_ROUTER:
        query_NR = _linear(z_ND, weights.query_RD, weights.query_bias_R)
        direction_NR, _ = _unit(query_NR)
        direction_KR, _ = _unit(weights.key_KR)
        return np.dot(direction_NR, direction_KR.T) / z_ND.dtype.type(settings.temperature)
    if settings.router == DOT_ROUTER:
        # <W z + b, k> = <z, W' k> + <b, k>: the product of queries and keys first, which has no rows
        key_KR = _cooled_keys(weights, settings)
        return _linear(z_ND, np.dot(key_KR, weights.query_RD), np.dot(key_KR, weights.query_bias_R))
    return np.zeros((len(z_ND), len(weights.center_KD)), z_ND.dtype)


@compiled
def router_backward(z_ND, weights, settings, grad_logit_NK, grad_z_ND):
    """Gradients of query weight, query bias and keys; that of z is added to grad_z_ND."""
    if settings.router == COSINE_ROUTER:
        query_NR = _linear(z_ND, weights.query_RD, weights.query_bias_R)
        direction_NR, length_N = _unit(query_NR)
        direction_KR, length_K = _unit(weights.key_KR)
        grad_logit_NK = grad_logit_NK / z_ND.dtype.type(settings.temperature)
        grad_query_NR = _unit_backward(direction_NR, length_N, np.dot(grad_logit_NK, direction_KR))
        grad_key_KR = _unit_backward(direction_KR, length_K, np.dot(grad_logit_NK.T, direction_NR))
        grad_z_ND += np.dot(grad_query_NR, weights.query_RD)
        return np.dot(grad_query_NR.T, z_ND), grad_query_NR.sum(0), grad_key_KR
    if settings.router == DOT_ROUTER:
        key_KR = _cooled_keys(weights, settings)
        grad_z_ND += np.dot(grad_logit_NK, np.dot(key_KR, weights.query_RD))
        grad_slope_KD = np.dot(grad_logit_NK.T, z_ND)
        grad_offset_K = grad_logit_NK.sum(0)
        grad_key_KR = np.dot(grad_slope_KD, weights.query_RD.T) + np.outer(grad_offset_K, weights.query_bias_R)
        grad_key_KR *= z_ND.dtype.type(1 / (np.sqrt(key_KR.shape[1]) * settings.temperature))
        return np.dot(key_KR.T, grad_slope_KD), np.dot(key_KR.T, grad_offset_K), grad_key_KR
    return weights.query_RD, weights.query_bias_R, weights.key_KR  # empty


@compiled
def _cooled_keys(weights, settings):
    return weights.key_KR * weights.key_KR.dtype.type(1 / (np.sqrt(weights.key_KR.shape[1]) * settings.temperature))


@compiled
def _unit(rows):
    """Each row's direction and its length."""
    length = np.empty((len(rows), 1), rows.dtype)
    for n in range(len(rows)):
        length[n, 0] = max(np.sqrt((rows[n] * rows[n]).sum()), rows.dtype.type(FLOOR))
    return rows / length, length


@compiled
def _unit_backward(direction, length, grad):
    along = np.empty_like(length)
    for n in range(len(direction)):
        along[n, 0] = (direction[n] * grad[n]).sum()
    return (grad - direction * along) / length


@compiled
def window_forward(z_ND, center_KD, log_scale_KD, low, high):
    """omega_nk = exp(-sum_d (z_nd - c_kd)^2 / (2 s_kd^2)) + FLOOR, log s clamped to [low, high]."""
    N, D = z_ND.shape
    K = center_KD.shape[0]
    real = z_ND.dtype.type
    half_precision_KD = _half_precision(log_scale_KD, low, high)
    window_NK = np.empty((N, K), z_ND.dtype)
    for n in range(N):
        for k in range(K):
            exponent = real(0)
            for d in range(D):
                difference = z_ND[n, d] - center_KD[k, d]
                exponent -= difference * difference * half_precision_KD[k, d]
            window_NK[n, k] = np.exp(exponent) + real(FLOOR)
    return window_NK


@compiled
def window_backward(z_ND, center_KD, log_scale_KD, low, high, window_NK, grad_NK):
    N, D = z_ND.shape
    K = center_KD.shape[0]
    real = z_ND.dtype.type
    half_precision_KD = _half_precision(log_scale_KD, low, high)
    grad_z_ND = np.zeros((N, D), z_ND.dtype)
    grad_center_KD = np.zeros((K, D))
    grad_log_scale_KD = np.zeros((K, D))
    for n in range(N):
        for k in range(K):
            grad_exponent = grad_NK[n, k] * (window_NK[n, k] - real(FLOOR))
            for d in range(D):
                difference = z_ND[n, d] - center_KD[k, d]
                pull = real(2) * grad_exponent * difference * half_precision_KD[k, d]
                grad_z_ND[n, d] -= pull
                grad_center_KD[k, d] += pull
                grad_log_scale_KD[k, d] += pull * difference
    for k in range(K):
        for d in range(D):
            if not low <= log_scale_KD[k, d] <= high:
                grad_log_scale_KD[k, d] = 0
    return grad_z_ND, grad_center_KD.astype(z_ND.dtype), grad_log_scale_KD.astype(z_ND.dtype)


@compiled
def _half_precision(log_scale_KD, low, high):
    K, D = log_scale_KD.shape
    half_precision_KD = np.empty((K, D), log_scale_KD.dtype)
    for k in range(K):
        for d in range(D):
            half_precision_KD[k, d] = 0.5 * np.exp(-2 * min(max(log_scale_KD[k, d], low), high))
    return half_precision_KD


@compiled
def combine_forward(window_NK, logit_NK, has_router, log_space, top_k, smoothing):
    """Combine windows omega and router logits l, keep the top k.

    p = softmax(l), or 1 without a router
    v = omega p / (sum omega p + FLOOR), or in log space softmax(log max(omega / sum omega, FLOOR) + l)
    u = v / (sum over the chosen of v + FLOOR);  w = (1 - smoothing) u + smoothing / k
    Returns chosen_NJ in order of falling v (equal ones: the first), w_NJ, p_NK, v_NK.
    """
    N, K = window_NK.shape
    real = window_NK.dtype.type
    chosen_NJ = np.empty((N, top_k), np.int64)
    weight_NJ = np.empty((N, top_k), window_NK.dtype)
    prob_NK = np.ones((N, K), window_NK.dtype)
    combined_NK = np.empty((N, K), window_NK.dtype)
    for n in range(N):
        if has_router:
            _softmax(logit_NK, prob_NK, n)
        total = real(0)
        if log_space:
            for k in range(K):
                total += window_NK[n, k]
            for k in range(K):
                combined_NK[n, k] = np.log(max(window_NK[n, k] / total, real(FLOOR))) + logit_NK[n, k]
            _softmax(combined_NK, combined_NK, n)
        else:
            for k in range(K):
                combined_NK[n, k] = window_NK[n, k] * prob_NK[n, k]
                total += combined_NK[n, k]
            total += real(FLOOR)
            for k in range(K):
                combined_NK[n, k] /= total
        chosen_total = real(FLOOR)
        for j in range(top_k):
            best = -1
            for k in range(K):
                taken = False
                for i in range(j):
                    taken = taken or chosen_NJ[n, i] == k
                if not taken and (best < 0 or combined_NK[n, k] > combined_NK[n, best]):
                    best = k
            chosen_NJ[n, j] = best
            chosen_total += combined_NK[n, best]
        for j in range(top_k):
            share = combined_NK[n, chosen_NJ[n, j]] / chosen_total
            weight_NJ[n, j] = real(1 - smoothing) * share + real(smoothing / top_k)
    return chosen_NJ, weight_NJ, prob_NK, combined_NK


@compiled
def combine_backward(
    window_NK, has_router, log_space, smoothing, chosen_NJ, prob_NK, combined_NK, grad_weight_NJ, grad_prob_NK
):
    N, K = window_NK.shape
    J = chosen_NJ.shape[1]
    real = window_NK.dtype.type
    grad_window_NK = np.zeros((N, K), window_NK.dtype)
    grad_logit_NK = np.zeros((N, K), window_NK.dtype)
    grad_combined_K = np.empty(K, window_NK.dtype)
    for n in range(N):
        # through the normalisation over the chosen experts
        chosen_total = real(FLOOR)
        for j in range(J):
            chosen_total += combined_NK[n, chosen_NJ[n, j]]
        mean_grad = real(0)
        for j in range(J):
            share = combined_NK[n, chosen_NJ[n, j]] / chosen_total
            mean_grad += real(1 - smoothing) * grad_weight_NJ[n, j] * share
        for k in range(K):
            grad_combined_K[k] = 0
        for j in range(J):
            grad_share = real(1 - smoothing) * grad_weight_NJ[n, j]
            grad_combined_K[chosen_NJ[n, j]] = (grad_share - mean_grad) / chosen_total
        # through the combination of window and router
        mean_grad, total = real(0), real(0)
        for k in range(K):
            mean_grad += grad_combined_K[k] * combined_NK[n, k]
            total += window_NK[n, k] * (real(1) if log_space else prob_NK[n, k])
        if log_space:
            grad_total = real(0)
            for k in range(K):
                grad_logit = combined_NK[n, k] * (grad_combined_K[k] - mean_grad)
                grad_logit_NK[n, k] = grad_logit
                grad_combined_K[k] = grad_prob_NK[n, k]
                if window_NK[n, k] > real(FLOOR) * total:
                    grad_window_NK[n, k] = grad_logit / window_NK[n, k]
                    grad_total += grad_logit
            for k in range(K):
                grad_window_NK[n, k] -= grad_total / total
        else:
            total += real(FLOOR)
            for k in range(K):
                grad_product = (grad_combined_K[k] - mean_grad) / total
                grad_window_NK[n, k] = grad_product * prob_NK[n, k]
                grad_combined_K[k] = grad_product * window_NK[n, k] + grad_prob_NK[n, k]
        # grad_combined_K now holds the gradient of the router's p
        if has_router:
            mean_grad = real(0)
            for k in range(K):
                mean_grad += prob_NK[n, k] * grad_combined_K[k]
            for k in range(K):
                grad_logit_NK[n, k] += prob_NK[n, k] * (grad_combined_K[k] - mean_grad)
    return grad_window_NK, grad_logit_NK


@compiled
def _softmax(logits, out, n):
    """out[n] = softmax(logits[n]); rows are indexed, not sliced: a slice in an inner loop costs more than its work."""
    largest = logits[n, 0]
    for k in range(1, logits.shape[1]):
        largest = max(largest, logits[n, k])
    total = logits.dtype.type(0)
    for k in range(logits.shape[1]):
        out[n, k] = np.exp(logits[n, k] - largest)
        total += out[n, k]
    for k in range(logits.shape[1]):
        out[n, k] /= total


@compiled
def router_penalty(prob_NK, entropy_weight, balance_weight):
    """entropy_weight mean_n sum_k p log(p + FLOOR) + balance_weight sum_k (mean_n p - 1/K)^2, and its gradient."""
    N, K = prob_NK.shape
    real = prob_NK.dtype.type
    entropy = 0.0
    excess_K = np.full(K, -1 / K)
    grad_NK = np.empty((N, K), prob_NK.dtype)
    for n in range(N):
        for k in range(K):
            p = prob_NK[n, k]
            log_p = np.log(p + real(FLOOR))
            entropy += p * log_p
            excess_K[k] += p / N
            grad_NK[n, k] = real(entropy_weight / N) * (log_p + p / (p + real(FLOOR)))
    for n in range(N):
        for k in range(K):
            grad_NK[n, k] += real(2 * balance_weight / N * excess_K[k])
    return entropy_weight * entropy / N + balance_weight * (excess_K**2).sum(), grad_NK
