"""Kernels that turn expert outputs into a mixture's components and its score, forward and backward.

Shapes as in experts.py: N rows of a block, which starts at row `first` of the batch, O = 3C expert outputs, J chosen
experts; P pairs of a block in the order of their experts; M = J C components of a row.
"""

from __future__ import annotations

import math

import numpy as np

from anchormoe.model.kernels.compiled import inner
from anchormoe.model.kernels.latent import FLOOR

LOG_ZERO = -1e9
_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


@inner
def components(
    first, weight_NJ, raw_PO, pair_NJ, anchor_N, use_anchor, use_delta, sigma_min, sigma_max,
    log_weight_NM, mean_NM, scale_NM,
):  # fmt: skip
    """Write the mixture components of expert outputs (logits l, Delta, log-scales t).

    log weight = log(w_j + FLOOR) + log(softmax(l)_c + FLOOR), LOG_ZERO in place of the first where w_j = 0
    mean = anchor + Delta (either part may be off);  scale = clamp(exp(t), sigma_min, sigma_max)
    Returns softmax(l) and exp(t), which the way back needs.
    """
    N, J = pair_NJ.shape
    C = raw_PO.shape[1] // 3
    real = raw_PO.dtype.type
    prob_NM = np.empty((N, J * C), raw_PO.dtype)
    free_scale_NM = np.empty((N, J * C), raw_PO.dtype)
    for n in range(N):
        for j in range(J):
            p = pair_NJ[n, j]
            weight = weight_NJ[first + n, j]
            log_weight = np.log(weight + real(FLOOR)) if weight > 0 else real(LOG_ZERO)
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
                anchor = anchor_N[first + n] if use_anchor else real(0)
                delta = raw_PO[p, C + c] if use_delta else real(0)
                mean_NM[n, m] = anchor + delta
                free_scale_NM[n, m] = np.exp(raw_PO[p, 2 * C + c])
                scale_NM[n, m] = min(max(free_scale_NM[n, m], real(sigma_min)), real(sigma_max))
    return prob_NM, free_scale_NM


@inner
def components_backward(
    first, weight_NJ, pair_NJ, prob_NM, free_scale_NM, use_delta, sigma_min, sigma_max, row_share,
    grad_log_weight_NM, grad_mean_NM, grad_scale_NM, grad_weight_NJ,
):  # fmt: skip
    """Take the gradients of log weights, means and scales, times row_share, to weight_NJ and to the expert outputs.

    Writes grad_weight_NJ and returns the gradient of the outputs.
    """
    N, J = pair_NJ.shape
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
            weight = weight_NJ[first + n, j]
            grad_weight = share * grad_log_weight / (weight + real(FLOOR))
            grad_weight_NJ[first + n, j] = grad_weight if weight > 0 else real(0)
    return grad_raw_PO


@inner
def delta_penalty(raw_PO, weight, grad_raw_PO):
    """Return weight sum Delta^2 and add its gradient to grad_raw_PO."""
    penalty = 0.0
    if weight > 0:
        C = raw_PO.shape[1] // 3
        for p in range(raw_PO.shape[0]):
            for c in range(C, 2 * C):
                penalty += weight * raw_PO[p, c] ** 2
                grad_raw_PO[p, c] += raw_PO.dtype.type(2 * weight) * raw_PO[p, c]
    return penalty


@inner
def nll(first, log_weight_NM, mean_NM, scale_NM, y_N, row_weight_N):
    """-log sum_m exp(log_weight_m) N(y; mean_m, s_m^2): the weighted sum over all rows and each row's gradients.

    With e = (y - mean) / s and r_m a component's share of the density:
    d/d log_weight = -r, d/d mean = -r e / s, d/d scale = -r (e^2 - 1) / s, all times the row's weight.
    """
    N, M = mean_NM.shape
    real = mean_NM.dtype.type
    value = real(0)
    grad_log_weight_NM = np.empty((N, M), mean_NM.dtype)
    grad_mean_NM = np.empty((N, M), mean_NM.dtype)
    grad_scale_NM = np.empty((N, M), mean_NM.dtype)
    for n in range(N):
        largest = real(-np.inf)
        for m in range(M):
            e = (y_N[first + n] - mean_NM[n, m]) / scale_NM[n, m]
            log_normal = real(-0.5) * e * e - np.log(scale_NM[n, m]) - real(_LOG_SQRT_2PI)
            grad_log_weight_NM[n, m] = log_weight_NM[n, m] + log_normal
            largest = max(largest, grad_log_weight_NM[n, m])
        total = real(0)
        for m in range(M):
            grad_log_weight_NM[n, m] = np.exp(grad_log_weight_NM[n, m] - largest)
            total += grad_log_weight_NM[n, m]
        value += row_weight_N[first + n] * (-largest - np.log(total))
        for m in range(M):
            inverse_scale = real(1) / scale_NM[n, m]
            e = (y_N[first + n] - mean_NM[n, m]) * inverse_scale
            share = row_weight_N[first + n] * (grad_log_weight_NM[n, m] / total)
            grad_log_weight_NM[n, m] = -share
            grad_mean_NM[n, m] = -share * e * inverse_scale
            grad_scale_NM[n, m] = -share * (e * e - real(1)) * inverse_scale
    return value, grad_log_weight_NM, grad_mean_NM, grad_scale_NM


@inner
def crps(first, log_weight_NM, mean_NM, scale_NM, y_N, row_weight_N):
    """sum_m w_m A(y - mean_m, s_m^2) - 1/2 sum_mn w_m w_n A(mean_m - mean_n, s_m^2 + s_n^2).

    Returns the weighted sum over all rows and each row's gradients.
    A(d, v) = 2 sqrt(v) phi(d / sqrt(v)) + d (2 Phi(d / sqrt(v)) - 1);
    dA/dd = 2 Phi(d / sqrt(v)) - 1, dA/dv = phi(d / sqrt(v)) / sqrt(v).
    """
    N, M = mean_NM.shape
    real = mean_NM.dtype.type
    value = 0.0
    grad_log_weight_NM = np.zeros((N, M), mean_NM.dtype)
    grad_mean_NM = np.zeros((N, M), mean_NM.dtype)
    grad_scale_NM = np.zeros((N, M), mean_NM.dtype)
    for n in range(N):
        row_value = 0.0
        for m in range(M):
            weight, scale = np.exp(log_weight_NM[n, m]), scale_NM[n, m]
            to_y, slope, per_variance = expected_distance(y_N[first + n] - mean_NM[n, m], scale * scale)
            for i in range(M):
                other, variance = np.exp(log_weight_NM[n, i]), scale * scale + scale_NM[n, i] ** 2
                between, pair_slope, pair_per_variance = expected_distance(mean_NM[n, m] - mean_NM[n, i], variance)
                # A pair appears twice in the double sum, which the factor 1/2 cancels in a component's derivatives.
                row_value -= real(0.5) * weight * other * between
                grad_log_weight_NM[n, m] -= weight * other * between
                grad_mean_NM[n, m] -= weight * other * pair_slope
                grad_scale_NM[n, m] -= weight * other * pair_per_variance * real(2) * scale
            row_value += weight * to_y
            grad_log_weight_NM[n, m] += weight * to_y
            grad_mean_NM[n, m] -= weight * slope
            grad_scale_NM[n, m] += weight * per_variance * real(2) * scale
        value += row_weight_N[first + n] * row_value
        for m in range(M):
            grad_log_weight_NM[n, m] *= row_weight_N[first + n]
            grad_mean_NM[n, m] *= row_weight_N[first + n]
            grad_scale_NM[n, m] *= row_weight_N[first + n]
    return value, grad_log_weight_NM, grad_mean_NM, grad_scale_NM


@inner
def expected_distance(difference, variance):
    """Return A(d, v) = E|d + sqrt(v) Z| for a standard normal Z, dA/dd and dA/dv."""
    scale = np.sqrt(variance)
    ratio = difference / scale
    density = math.exp(-0.5 * ratio * ratio - _LOG_SQRT_2PI)
    slope = math.erf(ratio * math.sqrt(0.5))
    return 2 * scale * density + difference * slope, slope, density / scale
