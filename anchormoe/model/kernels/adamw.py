"""AdamW with clipped gradients, compiled: one pass over all weights.

torch.optim.AdamW does the same; for weights as few as these most of its time goes into starting its operations.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from anchormoe.model.kernels.compiled import compiled

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


class AdamW(NamedTuple):
    """Flat views of the weights, and what the optimiser remembers of each: both moments and the number of steps."""

    weights: tuple[np.ndarray, ...]
    first: tuple[np.ndarray, ...]
    second: tuple[np.ndarray, ...]
    steps: np.ndarray
    learning_rate: float
    weight_decay: float
    clip_norm: float


def adamw(weights: Iterable[np.ndarray], *, learning_rate: float, weight_decay: float, clip_norm: float) -> AdamW:
    """Before the first step. The weights, contiguous arrays, will be changed in place."""
    flat = tuple(weight.reshape(-1) for weight in weights)
    first, second = (tuple(np.zeros_like(weight) for weight in flat) for _ in range(2))
    return AdamW(flat, first, second, np.zeros(len(flat), np.int64), learning_rate, weight_decay, clip_norm)


@compiled
def step(optimiser, gradients):
    """g <- g min(1, clip_norm / (|g| + 1e-6)) with the norm over all arrays; then, array by array with its own t,

    m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g^2
    w <- w (1 - lr decay) - lr m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)

    Gradients are flat. An array whose gradient is empty is passed over: no decay, no moments, no step.
    """
    weights, first, second, steps, learning_rate, weight_decay, clip_norm = optimiser
    real = weights[0].dtype.type
    squares = 0.0
    for gradient in gradients:
        part = np.zeros(8, gradient.dtype)  # eight sums side by side: one would wait for itself
        whole = len(gradient) // 8 * 8
        for i in range(0, whole, 8):
            for lane in range(8):
                part[lane] += gradient[i + lane] * gradient[i + lane]
        for i in range(whole, len(gradient)):
            part[0] += gradient[i] * gradient[i]
        squares += part.sum()
    scale = real(min(1.0, clip_norm / (np.sqrt(squares) + 1e-6)))
    for index in range(len(weights)):
        weight, gradient, m, v = weights[index], gradients[index], first[index], second[index]
        if len(gradient) == 0:
            continue
        steps[index] += 1
        rate = real(learning_rate / (1 - BETA1 ** steps[index]))
        inverse_root = real(1 / np.sqrt(1 - BETA2 ** steps[index]))
        kept = real(1 - learning_rate * weight_decay)
        for i in range(len(weight)):
            g = gradient[i] * scale
            m[i] = real(BETA1) * m[i] + real(1 - BETA1) * g
            v[i] = real(BETA2) * v[i] + real(1 - BETA2) * g * g
            weight[i] = weight[i] * kept - rate * m[i] / (np.sqrt(v[i]) * inverse_root + real(EPSILON))
