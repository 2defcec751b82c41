"""The compiled kernels as autograd functions. Data (features, anchors) gets no gradient."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function

from anchormoe import kernels


def _arrays(*tensors: Tensor) -> tuple[np.ndarray, ...]:
    """Contiguous views for the kernels."""
    return tuple(tensor.detach().contiguous().numpy() for tensor in tensors)


def _tensors(arrays: Iterable[np.ndarray]) -> tuple[Tensor, ...]:
    return tuple(map(torch.from_numpy, arrays))


class _Window(Function):
    @staticmethod
    def forward(ctx: Any, z_ND: Tensor, center_KD: Tensor, log_scale_KD: Tensor, low: float, high: float) -> Tensor:
        inputs = (*_arrays(z_ND, center_KD, log_scale_KD), low, high)
        window_NK = kernels.window_forward(*inputs)
        ctx.inputs = (*inputs, window_NK)
        return torch.from_numpy(window_NK)

    @staticmethod
    def backward(ctx: Any, grad_NK: Tensor) -> Any:  # type: ignore[override]
        return *_tensors(kernels.window_backward(*ctx.inputs, *_arrays(grad_NK))), None, None


class _Gates(Function):
    @staticmethod
    def forward(
        ctx: Any, window_NK: Tensor, logit_NK: Tensor, has_router: bool, log_space: bool, top_k: int, smoothing: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        window, logit = _arrays(window_NK, logit_NK)
        chosen, weight, prob, combined = kernels.gates_forward(window, logit, has_router, log_space, top_k, smoothing)
        ctx.inputs = (window, has_router, log_space, smoothing, chosen, prob, combined)
        weight_NJ, prob_NK, chosen_NJ = _tensors((weight, prob, chosen))
        ctx.mark_non_differentiable(chosen_NJ)  # which experts are chosen is a constant to the gradient
        return weight_NJ, prob_NK, chosen_NJ

    @staticmethod
    def backward(ctx: Any, grad_weight_NJ: Tensor, grad_prob_NK: Tensor, _: Any) -> Any:  # type: ignore[override]
        gradients = kernels.gates_backward(*ctx.inputs, *_arrays(grad_weight_NJ, grad_prob_NK))
        return *_tensors(gradients), None, None, None, None


class _RouterPenalty(Function):
    @staticmethod
    def forward(ctx: Any, prob_NK: Tensor, entropy_weight: float, balance_weight: float) -> Tensor:
        penalty, ctx.gradient = kernels.router_penalty(*_arrays(prob_NK), entropy_weight, balance_weight)
        return prob_NK.new_tensor(penalty)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        return torch.from_numpy(ctx.gradient) * grad, None, None


class _Experts(Function):
    """The experts on their own rows, one after the other."""

    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, chosen_NJ: Tensor, sizes: tuple[int, int, int], *packed: Tensor) -> Tensor:
        (x,), weights = _arrays(x_NI), _arrays(*packed)
        num_rows, num_chosen = chosen_NJ.shape
        chosen = chosen_NJ.numpy().reshape(-1)  # pair p is row p // J with its choice p % J
        output = np.empty((num_rows * num_chosen, sizes[2]), x.dtype)
        ctx.x, ctx.num_chosen, ctx.experts = x, num_chosen, []
        for k, weight in enumerate(weights):
            pairs = np.flatnonzero(chosen == k)
            hidden = kernels.expert_forward(x, pairs, num_chosen, weight, sizes[1], output) if len(pairs) else None
            ctx.experts.append((pairs, weight, hidden))
        return torch.from_numpy(output).view(num_rows, num_chosen, -1)

    @staticmethod
    def backward(ctx: Any, grad_NJ3C: Tensor) -> Any:  # type: ignore[override]
        (grad_output,) = _arrays(grad_NJ3C.reshape(-1, grad_NJ3C.shape[-1]))
        gradients = []
        for pairs, weight, hidden in ctx.experts:
            gradient = None  # of an expert nobody chose: the optimiser passes it over
            if hidden is not None:
                flat = kernels.expert_backward(ctx.x, pairs, ctx.num_chosen, weight, *hidden, grad_output)
                gradient = torch.from_numpy(flat)
            gradients.append(gradient)
        return None, None, None, *gradients


class _Components(Function):
    @staticmethod
    def forward(ctx: Any, weight_NJ: Tensor, raw_NJ3C: Tensor, anchor_N: Tensor, *settings: Any) -> tuple[Tensor, ...]:
        inputs = _arrays(weight_NJ, raw_NJ3C, anchor_N)
        *components, prob, free_scale = kernels.components_forward(*inputs, *settings)
        ctx.inputs = (inputs[0], prob, free_scale, *settings[1:])
        return _tensors(components)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # type: ignore[override]
        grads = kernels.components_backward(*ctx.inputs, *_arrays(*gradients))
        return *_tensors(grads), None, None, None, None, None


class _LogProb(Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> Tensor:
        log_weight, mean, scale, y = _arrays(*inputs)
        log_prob, share = kernels.log_prob_forward(log_weight, mean, scale, y)
        ctx.inputs = (mean, scale, y, share)
        return torch.from_numpy(log_prob)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        return _tensors(kernels.log_prob_backward(*ctx.inputs, *_arrays(grad)))


window = _Window.apply
gates = _Gates.apply
router_penalty = _RouterPenalty.apply
experts = _Experts.apply
components = _Components.apply
log_prob = _LogProb.apply
