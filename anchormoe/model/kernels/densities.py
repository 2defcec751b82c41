"""From expert outputs to a mixture's components and its score, forward and backward, compiled by numba.

Shapes as in expert_kernels.py: N rows of a block, O = 3C expert outputs, J chosen experts; P pairs of a block in the
order of their experts; M = J C components of a row.
"""

from __future__ import annotations

import math

import numpy as np

from anchormoe.model.kernels.compiled import compiled
from anchormoe.model.kernels.gates import FLOOR

LOG_ZERO = -1e9
_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


@compiled
def components(weight_NJ, raw_PO, pair_NJ, anchor_N, head):
    """Expert outputs (logits l, Delta, log-scales t) to mixture components; head = use_anchor, use_delta, sigma range.

    log weight = log(w_j + FLOOR) + log(softmax(l)_c + FLOOR), LOG_ZERO in place of the first where w_j = 0
    mean = anchor + Delta (either part may be off);  scale = clamp(exp(t), sigma_min, sigma_max)
    Also returns softmax(l) and exp(t) for the way back.
    """
    use_anchor, use_delta, sigma_min, sigma_max = head
    N, J = weight_NJ.shape
    C = raw_PO.shape[1] // 3
    real = raw_PO.dtype.type
    log_weight_NM = np.empty((N, J * C), raw_PO.dtype)
    mean_NM = np.empty((N, J * C), raw_PO.dtype)
    scale_NM = np.empty((N, J * C), raw_PO.dtype)
    prob_NM = np.empty((N, J * C), raw_PO.dtype)
    free_scale_NM = np.empty((N, J * C), raw_PO.dtype)
    for n in range(N):
        for j in range(J):
            p = pair_NJ[n, j]
            log_weight = np.log(weight_NJ[n, j] + real(FLOOR)) if weight_NJ[n, j] > 0 else real(LOG_ZERO)
            largest = raw_PO[p, 0]
            for c in range(1, C):
                largest = max(largest, raw_PO[p, c])
            total = real(0)
            for c in range(C):
                prob_NM[n, j * C + c] = np.exp(raw_PO[p, c] - largest)
                total += prob_NM[n, j * C + c]
            for c in range(C):
                m = j * C + c
                prob_NM[n, m] /= total
                log_weight_NM[n, m] = log_weight + np.log(prob_NM[n, m] + real(FLOOR))
                anchor = anchor_N[n] if use_anchor else real(0)
                delta = raw_PO[p, C + c] if use_delta else real(0)
                mean_NM[n, m] = anchor + delta
                free_scale_NM[n, m] = np.exp(raw_PO[p, 2 * C + c])
                scale_NM[n, m] = min(max(free_scale_NM[n, m], real(sigma_min)), real(sigma_max))
    return log_weight_NM, mean_NM, scale_NM, prob_NM, free_scale_NM


@compiled
def components_backward(weight_NJ, pair_NJ, prob_NM, free_scale_NM, head, row_share, gradients, grad_weight_NJ):
    """From the gradients of a row's log weights, means and scales, times row_share, to weight_NJ and expert outputs."""
    grad_log_weight_NM, grad_mean_NM, grad_scale_NM = gradients
    _, use_delta, sigma_min, sigma_max = head
    N, J = weight_NJ.shape
    C = prob_NM.shape[1] // J
    real = weight_NJ.dtype.type
    share = real(row_share)
    grad_raw_PO = np.zeros((N * J, 3 * C), weight_NJ.dtype)
    for n in range(N):
        for j in range(J):
            p = pair_NJ[n, j]
            grad_log_weight, mean_grad = real(0), real(0)
            for c in range(C):
                m = j * C + c
                grad_log_weight += grad_log_weight_NM[n, m]
                mean_grad += grad_log_weight_NM[n, m] * prob_NM[n, m] / (prob_NM[n, m] + real(FLOOR))
            for c in range(C):
                m = j * C + c
                grad_prob = grad_log_weight_NM[n, m] / (prob_NM[n, m] + real(FLOOR))
                grad_raw_PO[p, c] = share * prob_NM[n, m] * (grad_prob - mean_grad)
                if use_delta:
                    grad_raw_PO[p, C + c] = share * grad_mean_NM[n, m]
                if real(sigma_min) <= free_scale_NM[n, m] <= real(sigma_max):
                    grad_raw_PO[p, 2 * C + c] = share * grad_scale_NM[n, m] * free_scale_NM[n, m]
            grad_weight_NJ[n, j] = 0
            if weight_NJ[n, j] > 0:
                grad_weight_NJ[n, j] = share * grad_log_weight / (weight_NJ[n, j] + real(FLOOR))
    return grad_raw_PO


@compiled
def delta_penalty(raw_PO, weight, grad_raw_PO):
    """weight sum Delta^2; its gradient is added to grad_raw_PO."""
    penalty = 0.0
    if weight > 0:
        C = raw_PO.shape[1] // 3
        for p in range(raw_PO.shape[0]):
            for c in range(C, 2 * C):
                penalty += weight * raw_PO[p, c] ** 2
                grad_raw_PO[p, c] += raw_PO.dtype.type(2 * weight) * raw_PO[p, c]
    return penalty


@compiled
def nll(log_weight_NM, mean_NM, scale_NM, y_N):
    """-log sum_m exp(log_weight_m) N(y; mean_m, s_m^2), and its gradients.

    With e = (y - mean) / s and r_m a component's share of the density:
    d/d log_weight = -r, d/d mean = -r e / s, d/d scale = -r (e^2 - 1) / s.
    """
    N, M = mean_NM.shape
    real = mean_NM.dtype.type
    nll_N = np.empty(N, mean_NM.dtype)
    grad_log_weight_NM = np.empty((N, M), mean_NM.dtype)
    grad_mean_NM = np.empty((N, M), mean_NM.dtype)
    grad_scale_NM = np.empty((N, M), mean_NM.dtype)
    for n in range(N):
        largest = real(-np.inf)
        for m in range(M):
            e = (y_N[n] - mean_NM[n, m]) / scale_NM[n, m]
            log_normal = real(-0.5) * e * e - np.log(scale_NM[n, m]) - real(_LOG_SQRT_2PI)
            grad_log_weight_NM[n, m] = log_weight_NM[n, m] + log_normal
            largest = max(largest, grad_log_weight_NM[n, m])
        total = real(0)
        for m in range(M):
            grad_log_weight_NM[n, m] = np.exp(grad_log_weight_NM[n, m] - largest)
            total += grad_log_weight_NM[n, m]
        nll_N[n] = -largest - np.log(total)
        for m in range(M):
            inverse_scale = real(1) / scale_NM[n, m]
            e = (y_N[n] - mean_NM[n, m]) * inverse_scale
            share = grad_log_weight_NM[n, m] / total
            grad_log_weight_NM[n, m] = -share
            grad_mean_NM[n, m] = -share * e * inverse_scale
            grad_scale_NM[n, m] = -share * (e * e - real(1)) * inverse_scale
    return nll_N, grad_log_weight_NM, grad_mean_NM, grad_scale_NM


@compiled
def crps(log_weight_NM, mean_NM, scale_NM, y_N):
    """sum_m w_m A(y - mean_m, s_m^2) - 1/2 sum_mn w_m w_n A(mean_m - mean_n, s_m^2 + s_n^2), and its gradients.

    A(d, v) = 2 sqrt(v) phi(d / sqrt(v)) + d (2 Phi(d / sqrt(v)) - 1);
    dA/dd = 2 Phi(d / sqrt(v)) - 1, dA/dv = phi(d / sqrt(v)) / sqrt(v).
    """
    N, M = mean_NM.shape
    real = mean_NM.dtype.type
    crps_N = np.zeros(N, mean_NM.dtype)
    grad_log_weight_NM = np.zeros((N, M), mean_NM.dtype)
    grad_mean_NM = np.zeros((N, M), mean_NM.dtype)
    grad_scale_NM = np.zeros((N, M), mean_NM.dtype)
    for n in range(N):
        for m in range(M):
            weight, scale = np.exp(log_weight_NM[n, m]), scale_NM[n, m]
            to_y, slope, per_variance = _expected_distance(y_N[n] - mean_NM[n, m], scale * scale)
            for i in range(M):
                other, variance = np.exp(log_weight_NM[n, i]), scale * scale + scale_NM[n, i] ** 2
                between, pair_slope, pair_per_variance = _expected_distance(mean_NM[n, m] - mean_NM[n, i], variance)
                # A pair appears twice in the double sum, which the factor 1/2 cancels in a component's derivatives.
                crps_N[n] -= real(0.5) * weight * other * between
                grad_log_weight_NM[n, m] -= weight * other * between
                grad_mean_NM[n, m] -= weight * other * pair_slope
                grad_scale_NM[n, m] -= weight * other * pair_per_variance * real(2) * scale
            crps_N[n] += weight * to_y
            grad_log_weight_NM[n, m] += weight * to_y
            grad_mean_NM[n, m] -= weight * slope
            grad_scale_NM[n, m] += weight * per_variance * real(2) * scale
    return crps_N, grad_log_weight_NM, grad_mean_NM, grad_scale_NM


@compiled
def _expected_distance(difference, variance):
    """A(d, v) = E|d + sqrt(v) Z| for a standard normal Z, dA/dd, dA/dv."""
    scale = np.sqrt(variance)
    ratio = difference / scale
    density = math.exp(-0.5 * ratio * ratio - _LOG_SQRT_2PI)
    slope = math.erf(ratio * math.sqrt(0.5))
    return 2 * scale * density + difference * slope, slope, density / scale
