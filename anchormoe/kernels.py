"""The inner loops of the model, forward and backward, compiled by numba: one pass over the rows, not one per operation.

Each pair of functions is the derivative of the formula in the forward's docstring; functions.py wraps them for
autograd. Shapes as in model.py: N rows, D latent dimensions, K experts, J chosen experts, C components;
M = J C components of a row's whole mixture. Sums over rows are kept in float64.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

FLOOR = 1e-12
LOG_ZERO = -1e9
_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


@njit(cache=True)
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


@njit(cache=True)
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


@njit(cache=True)
def _half_precision(log_scale_KD, low, high):
    K, D = log_scale_KD.shape
    half_precision_KD = np.empty((K, D), log_scale_KD.dtype)
    for k in range(K):
        for d in range(D):
            half_precision_KD[k, d] = 0.5 * np.exp(-2 * min(max(log_scale_KD[k, d], low), high))
    return half_precision_KD


@njit(cache=True)
def gates_forward(window_NK, logit_NK, has_router, log_space, top_k, smoothing):
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


@njit(cache=True)
def gates_backward(
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


@njit(cache=True)
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


@njit(cache=True)
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


@njit(cache=True)
def components_forward(weight_NJ, raw_NJ3C, anchor_N, use_anchor, use_delta, sigma_min, sigma_max):
    """Expert outputs (logits l, Delta, log-scales t) to mixture components.

    log weight = log(w_j + FLOOR) + log(softmax(l)_c + FLOOR), LOG_ZERO in place of the first where w_j = 0
    mean = anchor + Delta (either part may be off);  scale = clamp(exp(t), sigma_min, sigma_max)
    Also returns softmax(l) and exp(t) for the way back.
    """
    N, J, outputs = raw_NJ3C.shape
    C = outputs // 3
    real = raw_NJ3C.dtype.type
    log_weight_NM = np.empty((N, J * C), raw_NJ3C.dtype)
    mean_NM = np.empty((N, J * C), raw_NJ3C.dtype)
    scale_NM = np.empty((N, J * C), raw_NJ3C.dtype)
    prob_NM = np.empty((N, J * C), raw_NJ3C.dtype)
    free_scale_NM = np.empty((N, J * C), raw_NJ3C.dtype)
    for n in range(N):
        for j in range(J):
            log_weight = np.log(weight_NJ[n, j] + real(FLOOR)) if weight_NJ[n, j] > 0 else real(LOG_ZERO)
            largest = raw_NJ3C[n, j, 0]
            for c in range(1, C):
                largest = max(largest, raw_NJ3C[n, j, c])
            total = real(0)
            for c in range(C):
                prob_NM[n, j * C + c] = np.exp(raw_NJ3C[n, j, c] - largest)
                total += prob_NM[n, j * C + c]
            for c in range(C):
                m = j * C + c
                prob_NM[n, m] /= total
                log_weight_NM[n, m] = log_weight + np.log(prob_NM[n, m] + real(FLOOR))
                anchor = anchor_N[n] if use_anchor else real(0)
                delta = raw_NJ3C[n, j, C + c] if use_delta else real(0)
                mean_NM[n, m] = anchor + delta
                free_scale_NM[n, m] = np.exp(raw_NJ3C[n, j, 2 * C + c])
                scale_NM[n, m] = min(max(free_scale_NM[n, m], real(sigma_min)), real(sigma_max))
    return log_weight_NM, mean_NM, scale_NM, prob_NM, free_scale_NM


@njit(cache=True)
def components_backward(
    weight_NJ, prob_NM, free_scale_NM, use_delta, sigma_min, sigma_max, grad_log_weight_NM, grad_mean_NM, grad_scale_NM
):
    N, J = weight_NJ.shape
    C = prob_NM.shape[1] // J
    real = weight_NJ.dtype.type
    grad_weight_NJ = np.zeros((N, J), weight_NJ.dtype)
    grad_raw_NJ3C = np.zeros((N, J, 3 * C), weight_NJ.dtype)
    for n in range(N):
        for j in range(J):
            grad_log_weight, mean_grad = real(0), real(0)
            for c in range(C):
                m = j * C + c
                grad_log_weight += grad_log_weight_NM[n, m]
                mean_grad += grad_log_weight_NM[n, m] * prob_NM[n, m] / (prob_NM[n, m] + real(FLOOR))
            for c in range(C):
                m = j * C + c
                grad_prob = grad_log_weight_NM[n, m] / (prob_NM[n, m] + real(FLOOR))
                grad_raw_NJ3C[n, j, c] = prob_NM[n, m] * (grad_prob - mean_grad)
                if use_delta:
                    grad_raw_NJ3C[n, j, C + c] = grad_mean_NM[n, m]
                if real(sigma_min) <= free_scale_NM[n, m] <= real(sigma_max):
                    grad_raw_NJ3C[n, j, 2 * C + c] = grad_scale_NM[n, m] * free_scale_NM[n, m]
            if weight_NJ[n, j] > 0:
                grad_weight_NJ[n, j] = grad_log_weight / (weight_NJ[n, j] + real(FLOOR))
    return grad_weight_NJ, grad_raw_NJ3C


@njit(cache=True)
def log_prob_forward(log_weight_NM, mean_NM, scale_NM, y_N):
    """log sum_m exp(log_weight_m) N(y; mean_m, scale_m^2). Also returns each component's share r_m of the density."""
    N, M = mean_NM.shape
    real = mean_NM.dtype.type
    log_prob_N = np.empty(N, mean_NM.dtype)
    share_NM = np.empty((N, M), mean_NM.dtype)
    for n in range(N):
        largest = real(-np.inf)
        for m in range(M):
            standardised = (y_N[n] - mean_NM[n, m]) / scale_NM[n, m]
            log_normal = real(-0.5) * standardised * standardised - np.log(scale_NM[n, m]) - real(_LOG_SQRT_2PI)
            share_NM[n, m] = log_weight_NM[n, m] + log_normal
            largest = max(largest, share_NM[n, m])
        total = real(0)
        for m in range(M):
            share_NM[n, m] = np.exp(share_NM[n, m] - largest)
            total += share_NM[n, m]
        for m in range(M):
            share_NM[n, m] /= total
        log_prob_N[n] = largest + np.log(total)
    return log_prob_N, share_NM


@njit(cache=True)
def log_prob_backward(mean_NM, scale_NM, y_N, share_NM, grad_N):
    """d/d log_weight = r, d/d mean = r e / s, d/d scale = r (e^2 - 1) / s, with e = (y - mean) / s."""
    N, M = mean_NM.shape
    real = mean_NM.dtype.type
    grad_log_weight_NM = np.empty((N, M), mean_NM.dtype)
    grad_mean_NM = np.empty((N, M), mean_NM.dtype)
    grad_scale_NM = np.empty((N, M), mean_NM.dtype)
    grad_y_N = np.zeros(N, mean_NM.dtype)
    for n in range(N):
        for m in range(M):
            inverse_scale = real(1) / scale_NM[n, m]
            standardised = (y_N[n] - mean_NM[n, m]) * inverse_scale
            grad = grad_N[n] * share_NM[n, m]
            grad_log_weight_NM[n, m] = grad
            grad_mean_NM[n, m] = grad * standardised * inverse_scale
            grad_scale_NM[n, m] = grad * (standardised * standardised - real(1)) * inverse_scale
            grad_y_N[n] -= grad_mean_NM[n, m]
    return grad_log_weight_NM, grad_mean_NM, grad_scale_NM, grad_y_N


@njit(cache=True)
def expert_forward(x_NI, pairs, num_chosen, packed, hidden_dim, output):
    """Evaluate one expert on its (row, choice) pairs; pair p is row p // num_chosen. Writes output[pairs]."""
    weight1, bias1, weight2, bias2, head, head_bias = unpack(packed, x_NI.shape[1], hidden_dim, output.shape[1])
    hidden1 = np.dot(_gather(x_NI, pairs, num_chosen), weight1.T)
    _bias_relu(hidden1, bias1)
    hidden2 = np.dot(hidden1, weight2.T)
    _bias_relu(hidden2, bias2)
    raw = np.dot(hidden2, head.T)
    for i in range(len(pairs)):
        for o in range(raw.shape[1]):
            output[pairs[i], o] = raw[i, o] + head_bias[o]
    return hidden1, hidden2


@njit(cache=True)
def expert_backward(x_NI, pairs, num_chosen, packed, hidden1, hidden2, grad_output):
    """Gradient of one expert's packed weights."""
    input_dim, hidden_dim, output_dim = x_NI.shape[1], hidden1.shape[1], grad_output.shape[1]
    _, _, weight2, _, head, _ = unpack(packed, input_dim, hidden_dim, output_dim)
    gradient = np.empty_like(packed)
    weight1_grad, bias1_grad, weight2_grad, bias2_grad, head_grad, head_bias_grad = unpack(
        gradient, input_dim, hidden_dim, output_dim
    )
    grad = _gather(grad_output, pairs, 1)
    np.dot(grad.T, hidden2, head_grad)
    _sum_rows(grad, head_bias_grad)
    grad = np.dot(grad, head)
    _through_relu(grad, hidden2)
    np.dot(grad.T, hidden1, weight2_grad)
    _sum_rows(grad, bias2_grad)
    grad = np.dot(grad, weight2)
    _through_relu(grad, hidden1)
    np.dot(grad.T, _gather(x_NI, pairs, num_chosen), weight1_grad)
    _sum_rows(grad, bias1_grad)
    return gradient


@njit(cache=True)
def unpack(packed, input_dim, hidden_dim, output_dim):
    """Views of one expert's flat parameter: weight and bias of two hidden layers and of the three heads as one."""
    a = hidden_dim * input_dim
    b = a + hidden_dim
    c = b + hidden_dim * hidden_dim
    d = c + hidden_dim
    e = d + output_dim * hidden_dim
    return (
        packed[:a].reshape(hidden_dim, input_dim),
        packed[a:b],
        packed[b:c].reshape(hidden_dim, hidden_dim),
        packed[c:d],
        packed[d:e].reshape(output_dim, hidden_dim),
        packed[e : e + output_dim],
    )


@njit(cache=True)
def _gather(rows, pairs, num_chosen):
    gathered = np.empty((len(pairs), rows.shape[1]), rows.dtype)
    for i in range(len(pairs)):
        gathered[i] = rows[pairs[i] // num_chosen]
    return gathered


@njit(cache=True)
def _bias_relu(values, bias):
    for n in range(values.shape[0]):
        for h in range(values.shape[1]):
            values[n, h] = max(values[n, h] + bias[h], values.dtype.type(0))


@njit(cache=True)
def _through_relu(grad, activation):
    for n in range(grad.shape[0]):
        for h in range(grad.shape[1]):
            grad[n, h] = grad[n, h] if activation[n, h] > 0 else grad.dtype.type(0)  # no branch: vectorises


@njit(cache=True)
def _sum_rows(values, out):
    total = np.zeros(values.shape[1], np.float64)
    for n in range(values.shape[0]):
        for h in range(values.shape[1]):
            total[h] += values[n, h]
    for h in range(values.shape[1]):
        out[h] = total[h]
