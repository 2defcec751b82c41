"""The router's logits and the penalties of its softmax, forward and backward.

Shapes as in model/network.py: N rows, D latent dimensions, K experts, R router dimensions.
"""

from __future__ import annotations

import numpy as np

from anchormoe.model.kernels.compiled import inner
from anchormoe.model.kernels.latent import FLOOR, add, linear, product, sum_rows

NO_ROUTER, DOT_ROUTER, COSINE_ROUTER = 0, 1, 2


@inner
def dot_forward(z_ND, query_RD, query_bias_R, key_KR, temperature):
    """logit_nk = <W z_n + b, k_k> / (sqrt(R) tau)."""
    # <W z + b, k> = <z, W' k> + <b, k>: the product of queries and keys first, because it has no rows
    cooled_KR = cooled(key_KR, temperature)
    offset_K = np.empty(len(key_KR), z_ND.dtype)
    np.dot(cooled_KR, query_bias_R, offset_K)
    return linear(z_ND, product(cooled_KR, query_RD), offset_K)


@inner
def dot_backward(
    z_ND, query_RD, query_bias_R, key_KR, temperature, grad_logit_NK,
    grad_z_ND, grad_query_RD, grad_query_bias_R, grad_key_KR,
):  # fmt: skip
    """Write the gradients of the router's weights and add that of z."""
    K, R = key_KR.shape
    cooled_KR = cooled(key_KR, temperature)
    add(grad_z_ND, product(grad_logit_NK, product(cooled_KR, query_RD)))
    grad_slope_KD = product(grad_logit_NK.T, z_ND)
    grad_offset_K = np.empty(K, z_ND.dtype)
    sum_rows(grad_logit_NK, grad_offset_K)
    np.dot(cooled_KR.T, grad_slope_KD, grad_query_RD)
    np.dot(cooled_KR.T, grad_offset_K, grad_query_bias_R)
    np.dot(grad_slope_KD, query_RD.T, grad_key_KR)
    bias_part_KR = np.empty((K, R), z_ND.dtype)
    for k in range(K):
        for r in range(R):
            bias_part_KR[k, r] = grad_offset_K[k] * query_bias_R[r]
    scale = z_ND.dtype.type(1 / (np.sqrt(R) * temperature))
    for k in range(K):
        for r in range(R):
            grad_key_KR[k, r] = (grad_key_KR[k, r] + bias_part_KR[k, r]) * scale


@inner
def cooled(key_KR, temperature):
    """Return k / (sqrt(R) tau)."""
    cooled_KR = np.empty(key_KR.shape, key_KR.dtype)
    scale = key_KR.dtype.type(1 / (np.sqrt(key_KR.shape[1]) * temperature))
    for k in range(key_KR.shape[0]):
        for r in range(key_KR.shape[1]):
            cooled_KR[k, r] = key_KR[k, r] * scale
    return cooled_KR


@inner
def cosine_forward(z_ND, query_RD, query_bias_R, key_KR, temperature):
    """logit_nk = cos(W z_n + b, k_k) / tau."""
    query_NR, _ = unit(linear(z_ND, query_RD, query_bias_R))
    direction_KR, _ = unit(key_KR)
    logit_NK = product(query_NR, direction_KR.T)
    for n in range(logit_NK.shape[0]):
        for k in range(logit_NK.shape[1]):
            logit_NK[n, k] /= z_ND.dtype.type(temperature)
    return logit_NK


@inner
def cosine_backward(
    z_ND, query_RD, query_bias_R, key_KR, temperature, grad_logit_NK,
    grad_z_ND, grad_query_RD, grad_query_bias_R, grad_key_KR,
):  # fmt: skip
    """Write the gradients of the router's weights and add that of z."""
    query_NR, query_length_N = unit(linear(z_ND, query_RD, query_bias_R))
    direction_KR, key_length_K = unit(key_KR)
    grad_NK = np.empty(grad_logit_NK.shape, z_ND.dtype)
    for n in range(grad_NK.shape[0]):
        for k in range(grad_NK.shape[1]):
            grad_NK[n, k] = grad_logit_NK[n, k] / z_ND.dtype.type(temperature)
    grad_query_NR = product(grad_NK, direction_KR)
    unit_backward(query_NR, query_length_N, grad_query_NR)
    np.dot(grad_NK.T, query_NR, grad_key_KR)
    unit_backward(direction_KR, key_length_K, grad_key_KR)
    add(grad_z_ND, product(grad_query_NR, query_RD))
    np.dot(grad_query_NR.T, z_ND, grad_query_RD)
    sum_rows(grad_query_NR, grad_query_bias_R)


@inner
def unit(rows):
    """Return each row's direction and its length, which is at least FLOOR."""
    direction = np.empty(rows.shape, rows.dtype)
    length = np.empty(len(rows), rows.dtype)
    for n in range(rows.shape[0]):
        square = rows.dtype.type(0)
        for r in range(rows.shape[1]):
            square += rows[n, r] * rows[n, r]
        length[n] = max(np.sqrt(square), rows.dtype.type(FLOOR))
        for r in range(rows.shape[1]):
            direction[n, r] = rows[n, r] / length[n]
    return direction, length


@inner
def unit_backward(direction, length, grad):
    """Turn the gradient of the directions into that of the rows, in place."""
    for n in range(direction.shape[0]):
        along = direction.dtype.type(0)
        for r in range(direction.shape[1]):
            along += direction[n, r] * grad[n, r]
        for r in range(direction.shape[1]):
            grad[n, r] = (grad[n, r] - direction[n, r] * along) / length[n]


@inner
def router_penalty(prob_NK, entropy_weight, balance_weight, grad_NK):
    """entropy_weight mean_n sum_k p log(p + FLOOR) + balance_weight sum_k (mean_n p - 1/K)^2; writes grad_NK."""
    N, K = prob_NK.shape
    real = prob_NK.dtype.type
    entropy, imbalance = 0.0, 0.0
    excess_K = np.empty(K)
    for k in range(K):
        excess_K[k] = -1 / K
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
    for k in range(K):
        imbalance += excess_K[k] * excess_K[k]
    return entropy_weight * entropy / N + balance_weight * imbalance
