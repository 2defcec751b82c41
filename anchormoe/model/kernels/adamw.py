"""AdamW with clipped gradients: one pass over all weights.

torch.optim.AdamW does the same; for weights as few as these most of its time goes into starting its operations.

Shapes: P weights of the whole network, S segments (parameters of the torch module) that they consist of.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anchormoe.model.kernels.compiled import inner

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


class AdamW(NamedTuple):
    """The weights, their gradients, both moments, and the number of steps that each segment has made."""

    weight_P: np.ndarray
    gradient_P: np.ndarray
    first_P: np.ndarray
    second_P: np.ndarray
    start_S: np.ndarray  # segment s is start_S[s] to start_S[s + 1]
    steps_S: np.ndarray
    learning_rate: float
    weight_decay: float
    clip_norm: float


def adamw(
    weight_P: np.ndarray,
    gradient_P: np.ndarray,
    start_S: np.ndarray,
    *,
    learning_rate: float,
    weight_decay: float,
    clip_norm: float,
) -> AdamW:
    """Return an optimiser before its first step; it will change the weights in place."""
    first_P, second_P = np.zeros_like(weight_P), np.zeros_like(weight_P)
    steps_S = np.zeros(len(start_S) - 1, np.int64)
    return AdamW(
        weight_P, gradient_P, first_P, second_P, start_S, steps_S,
        float(learning_rate), float(weight_decay), float(clip_norm),
    )  # fmt: skip


@inner
def step(optimiser, moves_S):
    """Make one step of all segments with moves_S; the others keep their weights, moments and number of steps.

    g <- g min(1, clip_norm / (|g| + 1e-6)) with the norm over all moving segments; then, with t steps of the segment,
    m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g^2
    w <- w (1 - lr decay) - lr m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)
    """
    weight_P, gradient_P, first_P, second_P, start_S, steps_S, learning_rate, weight_decay, clip_norm = optimiser
    real = weight_P.dtype.type
    squares = 0.0
    lanes = np.empty(8, weight_P.dtype)  # eight sums side by side: a single one would wait for itself
    for s in range(len(moves_S)):
        if moves_S[s]:
            gradient = gradient_P[start_S[s] : start_S[s + 1]]
            whole = len(gradient) // 8 * 8
            for lane in range(8):
                lanes[lane] = 0
            for i in range(0, whole, 8):
                for lane in range(8):
                    lanes[lane] += gradient[i + lane] * gradient[i + lane]
            for i in range(whole, len(gradient)):
                lanes[0] += gradient[i] * gradient[i]
            total = real(0)
            for lane in range(8):
                total += lanes[lane]
            squares += total
    scale = real(min(1.0, clip_norm / (np.sqrt(squares) + 1e-6)))
    kept = real(1 - learning_rate * weight_decay)
    for s in range(len(moves_S)):
        if moves_S[s]:
            first, last = start_S[s], start_S[s + 1]
            weight, gradient = weight_P[first:last], gradient_P[first:last]
            m, v = first_P[first:last], second_P[first:last]
            steps_S[s] += 1
            rate = real(learning_rate / (1 - BETA1 ** steps_S[s]))
            inverse_root = real(1 / np.sqrt(1 - BETA2 ** steps_S[s]))
            for i in range(len(weight)):
                g = gradient[i] * scale
                m[i] = real(BETA1) * m[i] + real(1 - BETA1) * g
                v[i] = real(BETA2) * v[i] + real(1 - BETA2) * g * g
                weight[i] = weight[i] * kept - rate * m[i] / (np.sqrt(v[i]) * inverse_root + real(EPSILON))
