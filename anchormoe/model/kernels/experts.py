"""The experts, forward and backward, and the gradients of their mixture's score, compiled by numba.

Only the chosen (row, expert) pairs are computed, grouped by expert. The loss is a sum over rows, so its gradient is
gathered over blocks of rows, each taken forward and backward while its hidden layers are still in the cache; memory
for hidden layers does not grow with the number of rows.

Shapes as in model.py: N rows (of a block, except in the two functions at the top), I input columns, H hidden units,
O = 3C expert outputs, J chosen experts; P pairs of a block in the order of their experts; M = J C components of a row.
"""

from __future__ import annotations

import numpy as np

from anchormoe.model.kernels.compiled import compiled
from anchormoe.model.kernels.densities import components, components_backward, crps, delta_penalty, nll

# With two choices per row and 128 units the hidden layers of a block take 2 MB; smaller blocks make the matrix
# products too small.
BLOCK_ROWS = 1024


@compiled
def mixture_of_experts(x_NI, chosen_NJ, weight_NJ, anchor_N, packed, sizes, head):
    """Components of each row's mixture: log weights, means, scales, all (N, M). `head` as in components."""
    N, M = len(x_NI), chosen_NJ.shape[1] * (sizes[2] // 3)
    log_weight_NM = np.empty((N, M), x_NI.dtype)
    mean_NM = np.empty((N, M), x_NI.dtype)
    scale_NM = np.empty((N, M), x_NI.dtype)
    for first in range(0, N, BLOCK_ROWS):
        last = min(first + BLOCK_ROWS, N)
        start_K, row_P, pair_NJ = _group_by_expert(chosen_NJ[first:last], len(packed))
        raw_PO, _, _ = _experts_forward(_gather(x_NI[first:last], row_P), start_K, packed, sizes, row_P, 0.0, 0)
        parts = components(weight_NJ[first:last], raw_PO, pair_NJ, anchor_N[first:last], head)
        log_weight_NM[first:last], mean_NM[first:last], scale_NM[first:last] = parts[:3]
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
        log_weight_NM, mean_NM, scale_NM, prob_NM, free_scale_NM = components(
            weight_NJ[first:last], raw_PO, pair_NJ, anchor_N[first:last], head
        )
        if use_crps:
            scored = crps(log_weight_NM, mean_NM, scale_NM, y_N[first:last])
        else:
            scored = nll(log_weight_NM, mean_NM, scale_NM, y_N[first:last])
        value += scored[0].sum() / N
        grad_raw_PO = components_backward(
            weight_NJ[first:last], pair_NJ, prob_NM, free_scale_NM, head, 1 / N, scored[1:], grad_weight_NJ[first:last]
        )
        value += delta_penalty(raw_PO, delta_weight / (N * K * C), grad_raw_PO)
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
            _through_relu(grad, hidden2, dropout, grad_bias2)
            np.dot(grad.T, hidden1, weight2_part)
            grad_weight2 += weight2_part
            grad = np.dot(grad, weight2)
            _through_relu(grad, hidden1, dropout, grad_bias1)
            weight1_part_IH[:] = 0
            _add_product(x_PI[first:last], grad, weight1_part_IH)
            grad_weight1 += weight1_part_IH.T


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
def _through_relu(grad, activation, dropout, grad_bias):
    """And through _drop: a unit that was dropped is zero like one that did not fire. Their sums go to grad_bias."""
    scale = grad.dtype.type(1 / (1 - dropout))
    total = np.zeros(grad.shape[1], grad.dtype)
    for n in range(grad.shape[0]):
        for h in range(grad.shape[1]):
            value = grad[n, h] * scale if activation[n, h] > 0 else grad.dtype.type(0)  # no branch: vectorises
            grad[n, h] = value
            total[h] += value
    grad_bias += total


@compiled
def _drop(values, row_P, dropout, seed, layer):
    """Zero a share of the units, scale up the others. The draws are a hash of (seed, layer, row, unit): no state, so
    the order in which rows are computed does not matter. A hash serves two units, with 16 bits each."""
    if dropout == 0:
        return
    scale, zero = values.dtype.type(1 / (1 - dropout)), values.dtype.type(0)
    threshold = np.uint32(dropout * 65536.0)
    num_rows, num_units = values.shape
    half = (num_units + 1) // 2
    draw = np.empty(half, np.uint32)
    for n in range(num_rows):
        start = _hash(np.uint32(seed) ^ _hash(np.uint32(row_P[n]) ^ _hash(np.uint32(layer + 1))))
        for h in range(half):
            draw[h] = _hash(start + np.uint32(h))
        for h in range(half):
            values[n, h] = values[n, h] * scale if draw[h] >> np.uint32(16) >= threshold else zero
        for h in range(num_units - half):
            kept = draw[h] & np.uint32(0xFFFF) >= threshold
            values[n, half + h] = values[n, half + h] * scale if kept else zero


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
