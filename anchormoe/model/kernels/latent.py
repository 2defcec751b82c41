"""The projection to the latent space and the windows in it, forward and backward.

Each pair of functions is the derivative of the formula in the forward's docstring; a backward writes the gradients
into the arrays it is given. Shapes as in model/network.py: N rows, I input columns, D latent dimensions, K experts.
The window's sums over rows are kept in float64.
"""

from __future__ import annotations

import numpy as np

from anchormoe.model.kernels.compiled import inlined, inner

FLOOR = 1e-12
LAYER_NORM_FLOOR = 1e-5


@inlined
def product(a, b):
    """Return the matrix product a b. (np.dot with an output is fewer functions to compile than both forms of it.)"""
    out = np.empty((a.shape[0], b.shape[1]), a.dtype)
    np.dot(a, b, out)
    return out


@inner
def linear(x_NI, weight_OI, bias_O):
    """y = W x + b."""
    output_NO = product(x_NI, weight_OI.T)
    for n in range(output_NO.shape[0]):
        for o in range(output_NO.shape[1]):
            output_NO[n, o] += bias_O[o]
    return output_NO


@inner
def add(sum_NO, part_NO):
    """sum += part."""
    for n in range(part_NO.shape[0]):
        for o in range(part_NO.shape[1]):
            sum_NO[n, o] += part_NO[n, o]


@inner
def sum_rows(values_NO, sum_O):
    """Write the sum over the rows into sum_O."""
    for o in range(values_NO.shape[1]):
        sum_O[o] = 0
    for n in range(values_NO.shape[0]):
        for o in range(values_NO.shape[1]):
            sum_O[o] += values_NO[n, o]


@inner
def layer_norm_forward(x_ND, weight_D, bias_D):
    """(x - mean_d x) / sqrt(var_d x + LAYER_NORM_FLOOR) * weight + bias."""
    N, D = x_ND.shape
    output_ND = np.empty((N, D), x_ND.dtype)
    for n in range(N):
        mean, inverse = mean_and_inverse_std(x_ND, n)
        for d in range(D):
            output_ND[n, d] = (x_ND[n, d] - mean) * inverse * weight_D[d] + bias_D[d]
    return output_ND


@inner
def layer_norm_backward(x_ND, weight_D, grad_ND, grad_weight_D):
    """Turn grad_ND, the gradient of the output, into that of x."""
    N, D = x_ND.shape
    for d in range(D):
        grad_weight_D[d] = 0
    for n in range(N):
        mean, inverse = mean_and_inverse_std(x_ND, n)
        grad_sum, product_sum = x_ND.dtype.type(0), 0.0
        for d in range(D):
            normal = (x_ND[n, d] - mean) * inverse
            grad_weight_D[d] += grad_ND[n, d] * normal
            grad_ND[n, d] *= weight_D[d]
            grad_sum += grad_ND[n, d]
            product_sum += grad_ND[n, d] * normal
        mean_grad, mean_product = x_ND.dtype.type(grad_sum / D), product_sum / D
        for d in range(D):
            normal = (x_ND[n, d] - mean) * inverse
            grad_ND[n, d] = (grad_ND[n, d] - mean_grad - normal * mean_product) * inverse


@inner
def mean_and_inverse_std(x_ND, n):
    """Return row n's mean and 1 / sqrt(its variance + LAYER_NORM_FLOOR)."""
    D = x_ND.shape[1]
    total, squares = x_ND.dtype.type(0), 0.0
    for d in range(D):
        total += x_ND[n, d]
    mean = x_ND.dtype.type(total / D)
    for d in range(D):
        squares += (x_ND[n, d] - mean) * (x_ND[n, d] - mean)
    return mean, 1 / np.sqrt(squares / D + LAYER_NORM_FLOOR)


@inner
def window_forward(z_ND, center_KD, log_scale_KD, low, high):
    """omega_nk = exp(-sum_d (z_nd - c_kd)^2 / (2 s_kd^2)) + FLOOR, log s clamped to [low, high]."""
    N, D = z_ND.shape
    K = center_KD.shape[0]
    real = z_ND.dtype.type
    half_precision_KD = half_precision(log_scale_KD, low, high)
    window_NK = np.empty((N, K), z_ND.dtype)
    for n in range(N):
        for k in range(K):
            exponent = real(0)
            for d in range(D):
                difference = z_ND[n, d] - center_KD[k, d]
                exponent -= difference * difference * half_precision_KD[k, d]
            window_NK[n, k] = np.exp(exponent) + real(FLOOR)
    return window_NK


@inner
def window_backward(z_ND, center_KD, log_scale_KD, low, high, window_NK, grad_NK, grad_center_KD, grad_log_scale_KD):
    """Return the gradient of z."""
    N, D = z_ND.shape
    K = center_KD.shape[0]
    real = z_ND.dtype.type
    half_precision_KD = half_precision(log_scale_KD, low, high)
    grad_z_ND = np.zeros((N, D), z_ND.dtype)
    center_sum_KD, log_scale_sum_KD = np.zeros((K, D)), np.zeros((K, D))
    for n in range(N):
        for k in range(K):
            grad_exponent = grad_NK[n, k] * (window_NK[n, k] - real(FLOOR))
            for d in range(D):
                difference = z_ND[n, d] - center_KD[k, d]
                pull = real(2) * grad_exponent * difference * half_precision_KD[k, d]
                grad_z_ND[n, d] -= pull
                center_sum_KD[k, d] += pull
                log_scale_sum_KD[k, d] += pull * difference
    for k in range(K):
        for d in range(D):
            grad_center_KD[k, d] = center_sum_KD[k, d]
            grad_log_scale_KD[k, d] = log_scale_sum_KD[k, d] if low <= log_scale_KD[k, d] <= high else 0.0
    return grad_z_ND


@inner
def half_precision(log_scale_KD, low, high):
    """Return 1 / (2 s^2)."""
    K, D = log_scale_KD.shape
    half_precision_KD = np.empty((K, D), log_scale_KD.dtype)
    for k in range(K):
        for d in range(D):
            half_precision_KD[k, d] = 0.5 * np.exp(-2 * min(max(log_scale_KD[k, d], low), high))
    return half_precision_KD


@inner
def log_scale_penalty(log_scale_KD, weight, grad_log_scale_KD):
    """Return weight mean_kd log_s_kd^2 and add its gradient."""
    K, D = log_scale_KD.shape
    slope = log_scale_KD.dtype.type(2 * weight / log_scale_KD.size)
    added_KD = np.empty((K, D), log_scale_KD.dtype)
    value = 0.0
    for k in range(K):
        for d in range(D):
            value += log_scale_KD[k, d] * log_scale_KD[k, d]
            added_KD[k, d] = log_scale_KD[k, d] * slope
    for k in range(K):
        for d in range(D):
            grad_log_scale_KD[k, d] += added_KD[k, d]
    return weight * value / log_scale_KD.size
