"""The experts and the score of their mixture, forward and backward, compiled by numba.

Only the chosen (row, expert) pairs are computed, grouped by expert. The loss is a sum over rows, so its gradient is
gathered over blocks of rows, each taken forward and backward while its hidden layers are still in the cache; memory
for hidden layers does not grow with the number of rows.

Shapes as in model.py: N rows (of a block, except in the two functions at the top), I input columns, H hidden units,
O = 3C expert outputs, J chosen experts; P pairs of a block in the order of their experts; M = J C components of a row.
"""

from __future__ import annotations

import math

import numpy as np

from anchormoe.compiled import compiled
from anchormoe.gate_kernels import FLOOR

LOG_ZERO = -1e9
# With two choices per row and 128 units the hidden layers of a block take 2 MB; smaller blocks make the matrix
# products too small.
BLOCK_ROWS = 1024
_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


@compiled
def mixture_of_experts(x_NI, chosen_NJ, weight_NJ, anchor_N, packed, sizes, head):
    """Components of each row's mixture: log weights, means, scales, all (N, M). `head` as in _components."""
    N, M = len(x_NI), chosen_NJ.shape[1] * (sizes[2] // 3)
    log_weight_NM = np.empty((N, M), x_NI.dtype)
    mean_NM = np.empty((N, M), x_NI.dtype)
    scale_NM = np.empty((N, M), x_NI.dtype)
    for first in range(0, N, BLOCK_ROWS):
        last = min(first + BLOCK_ROWS, N)
        start_K, row_P, pair_NJ = _group_by_expert(chosen_NJ[first:last], len(packed))
        raw_PO, _, _ = _experts_forward(_gather(x_NI[first:last], row_P), start_K, packed, sizes, row_P, 0.0, 0)
        components = _components(weight_NJ[first:last], raw_PO, pair_NJ, anchor_N[first:last], head)
        log_weight_NM[first:last], mean_NM[first:last], scale_NM[first:last] = components[:3]
    return log_weight_NM, mean_NM, scale_NM


@compiled
def score_and_gradients(
    x_NI, chosen_NJ, weight_NJ, anchor_N, y_N, packed, sizes, head, use_crps, delta_weight, dropout, seed
):
    """mean_n score_n + delta_weight mean_nkc Delta_nkc^2 (over all K experts, those not chosen counted as zeros).

    score = -log p(y), or the CRPS; a share `dropout` of the hidden units, drawn by `seed`, is left out, row by row and
    expert by expert. Returns the value, the gradients of weight_NJ and of each expert's packed weights,
    and how many rows chose each expert.
    """
    N, J = chosen_NJ.shape
    K, C = len(packed), sizes[2] // 3
    value = 0.0
    grad_weight_NJ = np.empty((N, J), x_NI.dtype)
    gradients = np.zeros((K, len(packed[0])), x_NI.dtype)
    count_K = np.zeros(K, np.int64)
    for first in range(0, N, BLOCK_ROWS):
        last = min(first + BLOCK_ROWS, N)
        start_K, row_P, pair_NJ = _group_by_expert(chosen_NJ[first:last], K)
        x_PI = _gather(x_NI[first:last], row_P)
        raw_PO, hidden1_PH, hidden2_PH = _experts_forward(x_PI, start_K, packed, sizes, row_P + first, dropout, seed)
        log_weight_NM, mean_NM, scale_NM, prob_NM, free_scale_NM = _components(
            weight_NJ[first:last], raw_PO, pair_NJ, anchor_N[first:last], head
        )
        if use_crps:
            scored = crps(log_weight_NM, mean_NM, scale_NM, y_N[first:last])
        else:
            scored = nll(log_weight_NM, mean_NM, scale_NM, y_N[first:last])
        value += scored[0].sum() / N
        grad_raw_PO = _components_backward(
            weight_NJ[first:last], pair_NJ, prob_NM, free_scale_NM, head, 1 / N, scored[1:], grad_weight_NJ[first:last]
        )
        value += _delta_penalty(raw_PO, delta_weight / (N * K * C), grad_raw_PO)
        _experts_backward(x_PI, start_K, packed, sizes, hidden1_PH, hidden2_PH, grad_raw_PO, dropout, gradients)
        count_K += start_K[1:] - start_K[:-1]
    return value, grad_weight_NJ, gradients, count_K


@compiled
def _group_by_expert(chosen_NJ, num_experts):
    """Sort the pairs (row, choice) by expert: expert k has the pairs start_K[k] to start_K[k + 1].

    Also returns each pair's row and, the other way round, the pair of each row and choice.
    """
    N, J = chosen_NJ.shape
    start_K = np.zeros(num_experts + 1, np.int64)
    for n in range(N):
        for j in range(J):
            start_K[chosen_NJ[n, j] + 1] += 1
    start_K = np.cumsum(start_K)
    following_K = start_K.copy()
    row_P, pair_NJ = np.empty(N * J, np.int64), np.empty((N, J), np.int64)
    for n in range(N):
        for j in range(J):
            pair = following_K[chosen_NJ[n, j]]
            row_P[pair], pair_NJ[n, j] = n, pair
            following_K[chosen_NJ[n, j]] += 1
    return start_K, row_P, pair_NJ


@compiled
def _gather(rows, index):
    gathered = np.empty((len(index), rows.shape[1]), rows.dtype)
    for i in range(len(index)):
        for column in range(rows.shape[1]):
            gathered[i, column] = rows[index[i], column]
    return gathered


@compiled
def _experts_forward(x_PI, start_K, packed, sizes, row_P, dropout, seed):
    """Raw outputs and both hidden layers of all pairs; what is dropped depends on the row, not on its block."""
    P = len(x_PI)
    hidden1_PH = np.empty((P, sizes[1]), x_PI.dtype)
    hidden2_PH = np.empty((P, sizes[1]), x_PI.dtype)
    raw_PO = np.empty((P, sizes[2]), x_PI.dtype)
    for k in range(len(packed)):
        first, last = start_K[k], start_K[k + 1]
        if first < last:
            weight1, bias1, weight2, bias2, head, head_bias = unpack(packed[k], *sizes)
            np.dot(x_PI[first:last], weight1.T, hidden1_PH[first:last])
            _bias_relu(hidden1_PH[first:last], bias1)
            _drop(hidden1_PH[first:last], row_P[first:last], dropout, seed, 2 * k)
            np.dot(hidden1_PH[first:last], weight2.T, hidden2_PH[first:last])
            _bias_relu(hidden2_PH[first:last], bias2)
            _drop(hidden2_PH[first:last], row_P[first:last], dropout, seed, 2 * k + 1)
            np.dot(hidden2_PH[first:last], head.T, raw_PO[first:last])
            for p in range(first, last):
                for o in range(sizes[2]):
                    raw_PO[p, o] += head_bias[o]
    return raw_PO, hidden1_PH, hidden2_PH


@compiled
def _experts_backward(x_PI, start_K, packed, sizes, hidden1_PH, hidden2_PH, grad_raw_PO, dropout, gradients):
    """Add the gradients of the packed weights to `gradients`."""
    hidden_dim = sizes[1]
    weight1_part_IH = np.empty((sizes[0], hidden_dim), x_PI.dtype)
    weight2_part = np.empty((hidden_dim, hidden_dim), x_PI.dtype)
    for k in range(len(packed)):
        first, last = start_K[k], start_K[k + 1]
        if first < last:
            _, _, weight2, _, head, _ = unpack(packed[k], *sizes)
            grad_weight1, grad_bias1, grad_weight2, grad_bias2, grad_head, grad_head_bias = unpack(gradients[k], *sizes)
            hidden1, hidden2, grad = hidden1_PH[first:last], hidden2_PH[first:last], grad_raw_PO[first:last]
            _add_product(grad, hidden2, grad_head)
            _add_row_sums(grad, grad_head_bias)
            grad = np.dot(grad, head)
            _through_relu(grad, hidden2, dropout)
            np.dot(grad.T, hidden1, weight2_part)
            grad_weight2 += weight2_part
            _add_row_sums(grad, grad_bias2)
            grad = np.dot(grad, weight2)
            _through_relu(grad, hidden1, dropout)
            weight1_part_IH[:] = 0
            _add_product(x_PI[first:last], grad, weight1_part_IH)
            grad_weight1 += weight1_part_IH.T
            _add_row_sums(grad, grad_bias1)


@compiled
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


@compiled
def _bias_relu(values, bias):
    for n in range(values.shape[0]):
        for h in range(values.shape[1]):
            values[n, h] = max(values[n, h] + bias[h], values.dtype.type(0))


@compiled
def _through_relu(grad, activation, dropout):
    """And through _drop: a unit that was dropped is zero like one that did not fire."""
    scale = grad.dtype.type(1 / (1 - dropout))
    for n in range(grad.shape[0]):
        for h in range(grad.shape[1]):
            grad[n, h] = grad[n, h] * scale if activation[n, h] > 0 else grad.dtype.type(0)  # no branch: vectorises


@compiled
def _drop(values, row_P, dropout, seed, layer):
    """Zero a share of the units, scale up the others. The draws are a hash of (seed, layer, row, unit): no state, so
    the order in which rows are computed does not matter."""
    if dropout == 0:
        return
    scale = values.dtype.type(1 / (1 - dropout))
    threshold = np.uint32(dropout * 4294967295.0)
    for n in range(values.shape[0]):
        start = _hash(np.uint32(seed) ^ _hash(np.uint32(row_P[n]) ^ _hash(np.uint32(layer + 1))))
        for h in range(values.shape[1]):
            draw = _hash(start + np.uint32(h))
            values[n, h] = values[n, h] * scale if draw >= threshold else values.dtype.type(0)


@compiled
def _hash(value):
    """A 32-bit mixing function: every bit of the input moves every bit of the output."""
    value = np.uint32(value)
    value = np.uint32((value ^ (value >> np.uint32(16))) * np.uint32(0x7FEB352D))
    value = np.uint32((value ^ (value >> np.uint32(15))) * np.uint32(0x846CA68B))
    return np.uint32(value ^ (value >> np.uint32(16)))


@compiled
def _add_product(narrow, wide, out):
    """out += narrow' wide. For a narrow first factor this beats a BLAS, which would pack the wide one first."""
    num_rows, width = wide.shape
    whole = num_rows // 4 * 4
    for n in range(0, whole, 4):
        for i in range(narrow.shape[1]):
            a, b, c, d = narrow[n, i], narrow[n + 1, i], narrow[n + 2, i], narrow[n + 3, i]
            for j in range(width):
                out[i, j] += a * wide[n, j] + b * wide[n + 1, j] + c * wide[n + 2, j] + d * wide[n + 3, j]
    for n in range(whole, num_rows):
        for i in range(narrow.shape[1]):
            for j in range(width):
                out[i, j] += narrow[n, i] * wide[n, j]


@compiled
def _add_row_sums(values, out):
    total = np.zeros(values.shape[1], values.dtype)
    for n in range(values.shape[0]):
        for h in range(values.shape[1]):
            total[h] += values[n, h]
    for h in range(values.shape[1]):
        out[h] += total[h]


@compiled
def _components(weight_NJ, raw_PO, pair_NJ, anchor_N, head):
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
def _components_backward(weight_NJ, pair_NJ, prob_NM, free_scale_NM, head, row_share, gradients, grad_weight_NJ):
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
def _delta_penalty(raw_PO, weight, grad_raw_PO):
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
