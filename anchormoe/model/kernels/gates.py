"""Which experts a row uses: windows and router combined, forward and backward.

Shapes as in model/network.py: N rows, I input columns, D latent dimensions, K experts, J chosen experts.
"""

from __future__ import annotations

import numpy as np

from anchormoe.model.kernels.compiled import inlined, inner
from anchormoe.model.kernels.latent import (
    FLOOR,
    layer_norm_backward,
    layer_norm_forward,
    linear,
    sum_rows,
    window_backward,
    window_forward,
)
from anchormoe.model.kernels.router import (
    COSINE_ROUTER,
    DOT_ROUTER,
    NO_ROUTER,
    cosine_backward,
    cosine_forward,
    dot_backward,
    dot_forward,
)


@inlined
def gates_forward(x_NI, weights, settings):
    """Return chosen experts and their weights (N, J), the router's p (N, K), and what the way back needs."""
    projected_ND = linear(x_NI, weights.projection_DI, weights.bias_D)
    z_ND = projected_ND
    if settings.layer_norm:
        z_ND = layer_norm_forward(projected_ND, weights.norm_weight_D, weights.norm_bias_D)
    window_NK = window_forward(
        z_ND, weights.center_KD, weights.log_scale_KD, settings.log_scale_min, settings.log_scale_max
    )
    if settings.router == DOT_ROUTER:
        logit_NK = dot_forward(z_ND, weights.query_RD, weights.query_bias_R, weights.key_KR, settings.temperature)
    elif settings.router == COSINE_ROUTER:
        logit_NK = cosine_forward(z_ND, weights.query_RD, weights.query_bias_R, weights.key_KR, settings.temperature)
    else:
        logit_NK = np.zeros(window_NK.shape, x_NI.dtype)
    chosen_NJ, weight_NJ, prob_NK, combined_NK = combine_forward(
        window_NK, logit_NK, settings.router != NO_ROUTER, settings.log_space, settings.top_k, settings.smoothing
    )
    return chosen_NJ, weight_NJ, prob_NK, (projected_ND, z_ND, window_NK, combined_NK)


@inlined
def gates_backward(x_NI, weights, gradients, settings, chosen_NJ, prob_NK, kept, grad_weight_NJ, grad_prob_NK):
    """Write the gradients of all weights but the experts' into `gradients`."""
    projected_ND, z_ND, window_NK, combined_NK = kept
    grad_window_NK, grad_logit_NK = combine_backward(
        window_NK, settings.router != NO_ROUTER, settings.log_space, settings.smoothing,
        chosen_NJ, prob_NK, combined_NK, grad_weight_NJ, grad_prob_NK,
    )  # fmt: skip
    grad_z_ND = window_backward(
        z_ND, weights.center_KD, weights.log_scale_KD, settings.log_scale_min, settings.log_scale_max,
        window_NK, grad_window_NK, gradients.center_KD, gradients.log_scale_KD,
    )  # fmt: skip
    if settings.router == DOT_ROUTER:
        dot_backward(
            z_ND, weights.query_RD, weights.query_bias_R, weights.key_KR, settings.temperature, grad_logit_NK,
            grad_z_ND, gradients.query_RD, gradients.query_bias_R, gradients.key_KR,
        )  # fmt: skip
    elif settings.router == COSINE_ROUTER:
        cosine_backward(
            z_ND, weights.query_RD, weights.query_bias_R, weights.key_KR, settings.temperature, grad_logit_NK,
            grad_z_ND, gradients.query_RD, gradients.query_bias_R, gradients.key_KR,
        )  # fmt: skip
    if settings.layer_norm:
        sum_rows(grad_z_ND, gradients.norm_bias_D)
        layer_norm_backward(projected_ND, weights.norm_weight_D, grad_z_ND, gradients.norm_weight_D)
    np.dot(grad_z_ND.T, x_NI, gradients.projection_DI)
    sum_rows(grad_z_ND, gradients.bias_D)


@inner
def combine_forward(window_NK, logit_NK, has_router, log_space, top_k, smoothing):
    """Combine windows omega and router logits l, and keep the top k.

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
            softmax(logit_NK, prob_NK, n)
        total = real(0)
        if log_space:
            for k in range(K):
                total += window_NK[n, k]
            for k in range(K):
                combined_NK[n, k] = np.log(max(window_NK[n, k] / total, real(FLOOR))) + logit_NK[n, k]
            softmax(combined_NK, combined_NK, n)
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


@inner
def combine_backward(
    window_NK, has_router, log_space, smoothing, chosen_NJ, prob_NK, combined_NK, grad_weight_NJ, grad_prob_NK
):
    """Return the gradients of windows and logits from those of the chosen experts' weights and of p."""
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


@inner
def softmax(logits, out, n):
    """out[n] = softmax(logits[n]). Rows are indexed, not sliced: a slice in an inner loop costs more than its work."""
    largest = logits[n, 0]
    for k in range(1, logits.shape[1]):
        largest = max(largest, logits[n, k])
    total = logits.dtype.type(0)
    for k in range(logits.shape[1]):
        out[n, k] = np.exp(logits[n, k] - largest)
        total += out[n, k]
    for k in range(logits.shape[1]):
        out[n, k] /= total
