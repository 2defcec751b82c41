"""The experts, forward and backward, and the gradients of their mixture's score.

Only the chosen (row, expert) pairs are computed, grouped by expert. The loss is a sum over rows, so its gradient is
gathered over blocks of rows, each taken forward and backward while its hidden layers are still in the cache; memory
for hidden layers does not grow with the number of rows. It is given as scratch_4PH, an array (4, P, H) for both
layers and their gradients that lives as long as the training: memory that is freed after every step would have to be
mapped again at the next.

Shapes as in model/network.py: N rows (of a batch, or of a block of it that starts at row `first`), I input columns,
H hidden units, O = 3C expert outputs, K experts of W weights each, J chosen experts; P pairs of a block in the order
of their experts; M = J C components of a row.
"""

from __future__ import annotations

import numpy as np

from anchormoe.model.kernels.compiled import inlined, inner
from anchormoe.model.kernels.densities import components, components_backward, crps, delta_penalty, nll
from anchormoe.model.kernels.latent import add

# With two choices per row and 128 units the hidden layers of a block take 2 MB; smaller blocks make the matrix
# products too small.
BLOCK_ROWS = 1024


@inlined
def mixture_of_experts(x_NI, chosen_NJ, weight_NJ, anchor_N, experts_KW, scratch_4PH, settings):
    """Return the components of each row's mixture: log weights, means, scales, all (N, M)."""
    N, J = chosen_NJ.shape
    C = settings.num_components
    hidden1_PH, hidden2_PH = scratch_4PH[0], scratch_4PH[1]
    log_weight_NM = np.empty((N, J * C), x_NI.dtype)
    mean_NM = np.empty((N, J * C), x_NI.dtype)
    scale_NM = np.empty((N, J * C), x_NI.dtype)
    for first in range(0, N, BLOCK_ROWS):
        last = min(first + BLOCK_ROWS, N)
        start_K, row_P, pair_NJ = group_by_expert(chosen_NJ, first, last, len(experts_KW))
        x_PI = gather(x_NI, row_P)
        raw_PO = experts_forward(x_PI, start_K, experts_KW, hidden1_PH, hidden2_PH, 3 * C, row_P, 0.0, np.int64(0))
        components(
            first, weight_NJ, raw_PO, pair_NJ, anchor_N,
            settings.use_anchor, settings.use_delta, settings.sigma_min, settings.sigma_max,
            log_weight_NM[first:last], mean_NM[first:last], scale_NM[first:last],
        )  # fmt: skip
    return log_weight_NM, mean_NM, scale_NM


@inlined
def score_and_gradients(
    x_NI, chosen_NJ, weight_NJ, anchor_N, y_N, row_weight_N, experts_KW, scratch_4PH, settings, objective, seed,
    grad_weight_NJ, gradient_KW,
):  # fmt: skip
    """mean_n row_weight_n score_n + delta_weight mean_nkc Delta_nkc^2 (over all K experts, 0 if not chosen).

    score = -log p(y), or the CRPS; a share `dropout` of the hidden units, drawn by `seed`, is left out, row by row and
    expert by expert. Writes the gradients of weight_NJ and of the experts' weights; returns the value and the number
    of rows that chose each expert.
    """
    N, J = chosen_NJ.shape
    K, C = len(experts_KW), settings.num_components
    hidden1_PH, hidden2_PH = scratch_4PH[0], scratch_4PH[1]
    value = 0.0
    fill(gradient_KW, 0)
    count_K = np.zeros(K, np.int64)
    for first in range(0, N, BLOCK_ROWS):
        last = min(first + BLOCK_ROWS, N)
        start_K, row_P, pair_NJ = group_by_expert(chosen_NJ, first, last, K)
        x_PI = gather(x_NI, row_P)
        raw_PO = experts_forward(
            x_PI, start_K, experts_KW, hidden1_PH, hidden2_PH, 3 * C, row_P, settings.dropout, seed
        )
        log_weight_NM = np.empty((last - first, J * C), x_NI.dtype)
        mean_NM = np.empty((last - first, J * C), x_NI.dtype)
        scale_NM = np.empty((last - first, J * C), x_NI.dtype)
        prob_NM, free_scale_NM = components(
            first, weight_NJ, raw_PO, pair_NJ, anchor_N,
            settings.use_anchor, settings.use_delta, settings.sigma_min, settings.sigma_max,
            log_weight_NM, mean_NM, scale_NM,
        )  # fmt: skip
        if objective.use_crps:
            score, grad_log_weight_NM, grad_mean_NM, grad_scale_NM = crps(
                first, log_weight_NM, mean_NM, scale_NM, y_N, row_weight_N
            )
        else:
            score, grad_log_weight_NM, grad_mean_NM, grad_scale_NM = nll(
                first, log_weight_NM, mean_NM, scale_NM, y_N, row_weight_N
            )
        grad_raw_PO = components_backward(
            first, weight_NJ, pair_NJ, prob_NM, free_scale_NM,
            settings.use_delta, settings.sigma_min, settings.sigma_max,
            1 / N, grad_log_weight_NM, grad_mean_NM, grad_scale_NM, grad_weight_NJ,
        )  # fmt: skip
        value += score / N + delta_penalty(raw_PO, objective.delta_weight / (N * K * C), grad_raw_PO)
        experts_backward(
            x_PI, start_K, experts_KW, hidden1_PH, hidden2_PH, scratch_4PH[2], scratch_4PH[3], grad_raw_PO,
            settings.dropout, gradient_KW,
        )  # fmt: skip
        for k in range(K):
            count_K[k] += start_K[k + 1] - start_K[k]
    return value, count_K


@inner
def group_by_expert(chosen_NJ, first, last, num_experts):
    """Sort the pairs (row, choice) of a block by expert: expert k has the pairs start_K[k] to start_K[k + 1].

    The block has the rows first to last. Also returns each pair's row and, the other way round, the pair of each of
    the block's rows and choices.
    """
    J = chosen_NJ.shape[1]
    start_K = np.zeros(num_experts + 1, np.int64)
    for n in range(first, last):
        for j in range(J):
            start_K[chosen_NJ[n, j] + 1] += 1
    following_K = np.empty(num_experts, np.int64)
    for k in range(num_experts):
        following_K[k] = start_K[k]
        start_K[k + 1] += start_K[k]
    row_P, pair_NJ = np.empty((last - first) * J, np.int64), np.empty((last - first, J), np.int64)
    for n in range(first, last):
        for j in range(J):
            pair = following_K[chosen_NJ[n, j]]
            row_P[pair], pair_NJ[n - first, j] = n, pair
            following_K[chosen_NJ[n, j]] += 1
    return start_K, row_P, pair_NJ


@inner
def gather(rows, index):
    """Return rows[index]."""
    gathered = np.empty((len(index), rows.shape[1]), rows.dtype)
    for i in range(len(index)):
        for column in range(rows.shape[1]):
            gathered[i, column] = rows[index[i], column]
    return gathered


@inner
def experts_forward(x_PI, start_K, experts_KW, hidden1_PH, hidden2_PH, output_dim, row_P, dropout, seed):
    """Write both hidden layers of all pairs and return their outputs.

    What is dropped depends on the row, not on its block.
    """
    input_dim, hidden_dim = x_PI.shape[1], hidden1_PH.shape[1]
    raw_PO = np.empty((len(x_PI), output_dim), x_PI.dtype)
    for k in range(len(experts_KW)):
        first, last = start_K[k], start_K[k + 1]
        if first < last:
            weight1, bias1, weight2, bias2, head, head_bias = unpack(experts_KW[k], input_dim, hidden_dim, output_dim)
            hidden1, hidden2, raw = hidden1_PH[first:last], hidden2_PH[first:last], raw_PO[first:last]
            np.dot(x_PI[first:last], weight1.T, hidden1)
            bias_relu(hidden1, bias1)
            drop(hidden1, row_P, first, dropout, seed, 2 * k)
            np.dot(hidden1, weight2.T, hidden2)
            bias_relu(hidden2, bias2)
            drop(hidden2, row_P, first, dropout, seed, 2 * k + 1)
            np.dot(hidden2, head.T, raw)
            for p in range(last - first):
                for o in range(output_dim):
                    raw[p, o] += head_bias[o]
    return raw_PO


@inner
def experts_backward(
    x_PI, start_K, experts_KW, hidden1_PH, hidden2_PH, grad1_PH, grad2_PH, grad_raw_PO, dropout,
    gradient_KW,
):  # fmt: skip
    """Add the gradients of the experts' weights to gradient_KW; grad1_PH and grad2_PH are overwritten."""
    input_dim, hidden_dim, output_dim = x_PI.shape[1], hidden1_PH.shape[1], grad_raw_PO.shape[1]
    weight1_part_IH = np.empty((input_dim, hidden_dim), x_PI.dtype)
    weight2_part_HH = np.empty((hidden_dim, hidden_dim), x_PI.dtype)
    for k in range(len(experts_KW)):
        first, last = start_K[k], start_K[k + 1]
        if first < last:
            _, _, weight2, _, head, _ = unpack(experts_KW[k], input_dim, hidden_dim, output_dim)
            grad_weight1, grad_bias1, grad_weight2, grad_bias2, grad_head, grad_head_bias = unpack(
                gradient_KW[k], input_dim, hidden_dim, output_dim
            )
            hidden1, hidden2, grad_raw = hidden1_PH[first:last], hidden2_PH[first:last], grad_raw_PO[first:last]
            # the same memory for every expert, because it is still in the cache
            grad1, grad2 = grad1_PH[: last - first], grad2_PH[: last - first]
            add_product(grad_raw, hidden2, grad_head)
            add_row_sums(grad_raw, grad_head_bias)
            np.dot(grad_raw, head, grad2)
            relu_backward(grad2, hidden2, dropout, grad_bias2)
            np.dot(grad2.T, hidden1, weight2_part_HH)
            add(grad_weight2, weight2_part_HH)
            np.dot(grad2, weight2, grad1)
            relu_backward(grad1, hidden1, dropout, grad_bias1)
            fill(weight1_part_IH, 0)
            add_product(x_PI[first:last], grad1, weight1_part_IH)
            for h in range(hidden_dim):
                for i in range(input_dim):
                    grad_weight1[h, i] += weight1_part_IH[i, h]


@inner
def fill(values, number):
    """Set every entry to the number."""
    for n in range(values.shape[0]):
        for h in range(values.shape[1]):
            values[n, h] = number


@inner
def unpack(packed, input_dim, hidden_dim, output_dim):
    """Return views of one expert's flat weights: weight and bias of two hidden layers and of the three heads as one."""
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


@inner
def bias_relu(values, bias):
    """values <- max(values + bias, 0)."""
    for n in range(values.shape[0]):
        for h in range(values.shape[1]):
            values[n, h] = max(values[n, h] + bias[h], values.dtype.type(0))


@inner
def relu_backward(grad, activation, dropout, grad_bias):
    """Turn the gradient of a layer's activation into that of its sums, in place, and add the latter to grad_bias.

    A unit that was dropped is zero like one that did not fire, so this is the way back through `drop`, too.
    """
    scale = grad.dtype.type(1 / (1 - dropout))
    total = np.zeros(grad.shape[1], grad.dtype)
    for n in range(grad.shape[0]):
        for h in range(grad.shape[1]):
            value = grad[n, h] * scale if activation[n, h] > 0 else grad.dtype.type(0)  # no branch: vectorises
            grad[n, h] = value
            total[h] += value
    for h in range(grad.shape[1]):
        grad_bias[h] += total[h]


@inner
def drop(values, row_P, first, dropout, seed, layer):
    """Zero a share of the units and scale up the others; the values are those of the pairs from `first` on.

    The draws are a hash of (seed, layer, row, unit): they have no state, so the order in which rows are computed does
    not matter. One hash serves two units, with 16 bits each.
    """
    if dropout == 0:
        return
    scale, zero = values.dtype.type(1 / (1 - dropout)), values.dtype.type(0)
    threshold = np.uint32(dropout * 65536.0)
    num_rows, num_units = values.shape
    half = (num_units + 1) // 2
    draw = np.empty(half, np.uint32)
    for n in range(num_rows):
        start = mix(np.uint32(seed) ^ mix(np.uint32(row_P[first + n]) ^ mix(np.uint64(layer + 1))))
        for h in range(half):
            draw[h] = mix(start + np.uint32(h))
        for h in range(half):
            values[n, h] = values[n, h] * scale if draw[h] >> np.uint32(16) >= threshold else zero
        for h in range(num_units - half):
            kept = draw[h] & np.uint32(0xFFFF) >= threshold
            values[n, half + h] = values[n, half + h] * scale if kept else zero


@inner
def mix(value):
    """Return a 32-bit hash: every bit of the input moves every bit of the output."""
    value = np.uint32(value)
    value = np.uint32((value ^ (value >> np.uint32(16))) * np.uint32(0x7FEB352D))
    value = np.uint32((value ^ (value >> np.uint32(15))) * np.uint32(0x846CA68B))
    return np.uint32(value ^ (value >> np.uint32(16)))


@inner
def add_product(narrow, wide, out):
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


@inner
def add_row_sums(values, out):
    """out += the sum over the rows."""
    total = np.zeros(values.shape[1], values.dtype)
    for n in range(values.shape[0]):
        for h in range(values.shape[1]):
            total[h] += values[n, h]
    for h in range(values.shape[1]):
        out[h] += total[h]
