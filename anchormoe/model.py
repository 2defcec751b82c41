"""Anchor-MoE: (features, anchor) -> a Gaussian mixture per row.

Shape suffixes: N rows, I input columns, D latent dimensions, K experts, J chosen experts (top-k), C components,
R router dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from anchormoe.config import AnchorMode, Combination, ModelConfig, RouterKind, SmoothAt
from anchormoe.mixture import GaussianMixture

_FLOOR = 1e-12
_LOG_ZERO = -1e9

Shapes = Sequence[tuple[int, ...]]


class Projection(nn.Module):
    """z = W x + b, optionally LayerNorm(z)."""

    def __init__(self, *, input_dim: int, latent_dim: int, layer_norm: bool) -> None:
        super().__init__()
        self.weight_DI = nn.Parameter(torch.empty(latent_dim, input_dim))
        self.bias_D = nn.Parameter(torch.empty(latent_dim))
        self.norm = nn.LayerNorm(latent_dim) if layer_norm else None

    def reset_parameters(self, generator: torch.Generator) -> None:
        draw_default_linear(self.weight_DI, self.bias_D, generator)  # overwritten below; the stream must move on
        nn.init.xavier_uniform_(self.weight_DI, generator=generator)
        nn.init.zeros_(self.bias_D)

    def forward(self, x_NI: Tensor) -> Tensor:
        z_ND = nn.functional.linear(x_NI, self.weight_DI, self.bias_D)
        return z_ND if self.norm is None else self.norm(z_ND)


class Window(nn.Module):
    """Locality: omega_j(z) = exp(-sum_l (z_l - c_jl)^2 / (2 s_jl^2)) + floor, log s clamped."""

    def __init__(
        self, *, num_experts: int, latent_dim: int, log_scale_min: float, log_scale_max: float, learnable: bool
    ) -> None:
        super().__init__()
        self.log_scale_min, self.log_scale_max = log_scale_min, log_scale_max
        self.center_KD = nn.Parameter(torch.empty(num_experts, latent_dim), requires_grad=learnable)
        self.log_scale_KD = nn.Parameter(torch.empty(num_experts, latent_dim), requires_grad=learnable)

    def reset_parameters(self, generator: torch.Generator) -> None:
        nn.init.normal_(self.center_KD, generator=generator)
        nn.init.zeros_(self.log_scale_KD)

    def forward(self, z_ND: Tensor) -> Tensor:
        log_scale_KD = self.log_scale_KD.clamp(self.log_scale_min, self.log_scale_max)
        half_precision_KD = 0.5 * torch.exp(-2 * log_scale_KD)
        distance_NKD = (z_ND.unsqueeze(1) - self.center_KD).square()
        return torch.exp(-(distance_NKD * half_precision_KD).sum(-1)) + _FLOOR


class Router(nn.Module):
    """logits_j = <q(z), k_j> / sqrt(d_r), or the cosine of q and k_j; the temperature divides them in AnchorMoE."""

    def __init__(self, *, num_experts: int, latent_dim: int, router_dim: int, cosine: bool) -> None:
        super().__init__()
        self.cosine = cosine
        self.query_RD = nn.Parameter(torch.empty(router_dim, latent_dim))
        self.query_bias_R = nn.Parameter(torch.empty(router_dim))
        self.key_KR = nn.Parameter(torch.empty(num_experts, router_dim))

    def reset_parameters(self, generator: torch.Generator) -> None:
        draw_default_linear(self.query_RD, self.query_bias_R, generator)
        nn.init.normal_(self.key_KR, generator=generator)

    def forward(self, z_ND: Tensor) -> Tensor:
        query_NR = nn.functional.linear(z_ND, self.query_RD, self.query_bias_R)
        if self.cosine:
            query_NR = nn.functional.normalize(query_NR, dim=-1)
            return query_NR @ nn.functional.normalize(self.key_KR, dim=-1).T
        return query_NR @ self.key_KR.T / math.sqrt(self.key_KR.shape[1])


class Experts(nn.Module):
    """K small networks I -> H ReLU -> H ReLU -> 3C: per component a logit, a mean shift and a log-scale.

    Each expert's weights are one flat parameter. An expert that no row chose gets no gradient at all, so AdamW passes
    it over entirely (no decay, no moments, no step), as in the published runs; and the optimiser has K tensors to
    visit, not 10 K.
    """

    def __init__(self, *, num_experts: int, input_dim: int, hidden_dim: int, num_components: int) -> None:
        super().__init__()
        self.shapes = _expert_shapes(input_dim, hidden_dim, 3 * num_components)
        size = sum(math.prod(shape) for shape in self.shapes)
        self.packed = nn.ParameterList([torch.empty(size) for _ in range(num_experts)])

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator) -> None:
        for packed in self.packed:
            weight1, bias1, weight2, bias2, head, head_bias = _unpack(packed, self.shapes)
            hidden = [(weight1, bias1), (weight2, bias2)]
            # The three heads are one matrix here, but were three layers when the published weights were drawn.
            layers = hidden + list(zip(head.chunk(3), head_bias.chunk(3), strict=True))
            for weight, bias in layers:
                draw_default_linear(weight, bias, generator)  # overwritten below; the stream must move on
            for weight, bias in layers:
                nn.init.xavier_uniform_(weight, generator=generator)
                nn.init.zeros_(bias)

    def forward(self, x_NI: Tensor, chosen_NJ: Tensor) -> Tensor:
        """Raw outputs (N, J, 3C) of each row's chosen experts; only those pairs are computed."""
        return _ChosenExperts.apply(x_NI, chosen_NJ, self.shapes, *self.packed)


class _ChosenExperts(torch.autograd.Function):
    """The experts on their own rows, forward and backward, expert by expert; x is data and gets no gradient."""

    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, chosen_NJ: Tensor, shapes: Shapes, *packed: Tensor) -> Tensor:
        num_rows, num_chosen = chosen_NJ.shape
        chosen = chosen_NJ.reshape(-1)  # pair p is row p // J with its choice p % J
        output = x_NI.new_empty(num_rows * num_chosen, shapes[-1][0])
        ctx.shapes, ctx.packed, ctx.saved = shapes, packed, []
        for j, parameters in enumerate(packed):
            pairs = (chosen == j).nonzero().squeeze(1)
            if not len(pairs):
                ctx.saved.append(None)
                continue
            weight1, bias1, weight2, bias2, head, head_bias = _unpack(parameters, shapes)
            x = x_NI.index_select(0, pairs.div(num_chosen, rounding_mode="floor"))
            hidden1 = torch.addmm(bias1, x, weight1.T).relu_()
            hidden2 = torch.addmm(bias2, hidden1, weight2.T).relu_()
            output.index_copy_(0, pairs, torch.addmm(head_bias, hidden2, head.T))
            ctx.saved.append((pairs, x, hidden1, hidden2))
        return output.view(num_rows, num_chosen, -1)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Any:  # type: ignore[override]
        grad_output = grad_output.reshape(-1, grad_output.shape[-1])
        gradients: list[Tensor | None] = []
        for parameters, saved in zip(ctx.packed, ctx.saved, strict=True):
            if saved is None:
                gradients.append(None)
                continue
            pairs, x, hidden1, hidden2 = saved
            _, _, weight2, _, head, _ = _unpack(parameters, ctx.shapes)
            gradient = torch.empty_like(parameters)
            weight1_grad, bias1_grad, weight2_grad, bias2_grad, head_grad, head_bias_grad = _unpack(
                gradient, ctx.shapes
            )
            grad = grad_output.index_select(0, pairs)
            torch.mm(grad.T, hidden2, out=head_grad)
            torch.sum(grad, 0, out=head_bias_grad)
            grad = _through_relu(grad @ head, hidden2)
            torch.mm(grad.T, hidden1, out=weight2_grad)
            torch.sum(grad, 0, out=bias2_grad)
            grad = _through_relu(grad @ weight2, hidden1)
            torch.mm(grad.T, x, out=weight1_grad)
            torch.sum(grad, 0, out=bias1_grad)
            gradients.append(gradient)
        return None, None, None, *gradients


def _through_relu(grad: Tensor, activation: Tensor) -> Tensor:
    """Zero the gradient where the ReLU was off, in place: at these sizes a fresh buffer costs more than the sum."""
    return torch.ops.aten.threshold_backward.grad_input(grad, activation, 0, grad_input=grad)


def _expert_shapes(input_dim: int, hidden_dim: int, output_dim: int) -> Shapes:
    """Weight and bias shapes of the three layers, in the order they lie in an expert's flat parameter."""
    return [
        (hidden_dim, input_dim),
        (hidden_dim,),
        (hidden_dim, hidden_dim),
        (hidden_dim,),
        (output_dim, hidden_dim),
        (output_dim,),
    ]


def _unpack(flat: Tensor, shapes: Shapes) -> list[Tensor]:
    parts = flat.detach().split([math.prod(shape) for shape in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def draw_default_linear(weight: Tensor, bias: Tensor, generator: torch.Generator) -> None:
    """torch's default initialisation of a linear layer, weight first."""
    nn.init.kaiming_uniform_(weight, a=math.sqrt(5), generator=generator)
    bound = 1 / math.sqrt(weight.shape[1])
    nn.init.uniform_(bias, -bound, bound, generator=generator)


@dataclass(frozen=True)
class Gates:
    """Which experts a row uses: chosen_NJ (indices), weight_NJ (sum to one), and the router's softmax over all K."""

    chosen_NJ: Tensor
    weight_NJ: Tensor
    router_prob_NK: Tensor | None


@dataclass(frozen=True)
class Prediction:
    """A forward pass with the parts that the penalties need."""

    mixture: GaussianMixture
    gates: Gates
    delta_NJC: Tensor


class AnchorMoE(nn.Module):
    """The whole network. `temperature` (the router's tau) is a plain attribute that training cools."""

    def __init__(self, config: ModelConfig, *, input_dim: int) -> None:
        super().__init__()
        self.config = config
        self.temperature = 1.0
        self.projection = Projection(input_dim=input_dim, latent_dim=config.latent_dim, layer_norm=config.layer_norm)
        self.window = Window(
            num_experts=config.num_experts,
            latent_dim=config.latent_dim,
            log_scale_min=config.log_scale_min,
            log_scale_max=config.log_scale_max,
            learnable=config.window_learnable,
        )
        self.router: Router | None = None
        if config.router is not RouterKind.none:
            self.router = Router(
                num_experts=config.num_experts,
                latent_dim=config.latent_dim,
                router_dim=config.router_dim,
                cosine=config.router is RouterKind.cosine,
            )
        self.experts = Experts(
            num_experts=config.num_experts,
            input_dim=input_dim,
            hidden_dim=config.hidden_dim,
            num_components=config.num_components,
        )

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw all weights, in the order in which the published runs drew them."""
        for part in (self.projection, self.window, self.router, self.experts):
            if part is not None:
                part.reset_parameters(generator)

    def forward(self, x_NI: Tensor, anchor_N: Tensor) -> GaussianMixture:
        return self.predict(x_NI, anchor_N).mixture

    def predict(self, x_NI: Tensor, anchor_N: Tensor) -> Prediction:
        gates = self.gates(x_NI)
        raw_NJ3C = self.experts(x_NI, gates.chosen_NJ)
        logit_NJC, delta_NJC, log_scale_NJC = raw_NJ3C.chunk(3, dim=-1)
        scale_NJC = log_scale_NJC.exp().clamp(self.config.sigma_min, self.config.sigma_max)
        mean_NJC = self._component_means(anchor_N, delta_NJC)
        log_weight_NJ = torch.where(gates.weight_NJ > 0, (gates.weight_NJ + _FLOOR).log(), _LOG_ZERO)
        log_weight_NJC = log_weight_NJ.unsqueeze(-1) + (logit_NJC.softmax(-1) + _FLOOR).log()
        mixture = GaussianMixture(log_weight_NJC.flatten(1), mean_NJC.flatten(1), scale_NJC.flatten(1))
        return Prediction(mixture, gates, delta_NJC)

    def gates(self, x_NI: Tensor) -> Gates:
        z_ND = self.projection(x_NI)
        window_NK = self.window(z_ND)
        router_prob_NK = None
        combined_NK = window_NK
        if self.router is not None:
            logit_NK = self.router(z_ND) / self.temperature
            router_prob_NK = logit_NK.softmax(-1)
            if self.config.combination is Combination.log_space:
                window_NK = window_NK / window_NK.sum(-1, keepdim=True)
                combined_NK = (window_NK.clamp(min=_FLOOR).log() + logit_NK).softmax(-1)
            else:
                combined_NK = window_NK * router_prob_NK
        combined_NK = combined_NK / (combined_NK.sum(-1, keepdim=True) + _FLOOR)
        top_NJ, chosen_NJ = combined_NK.topk(self.config.top_k, dim=-1)
        weight_NJ = top_NJ / (top_NJ.sum(-1, keepdim=True) + _FLOOR)
        if self.training or self.config.smooth_at is SmoothAt.always:
            smoothing = self.config.smoothing
            weight_NJ = (1 - smoothing) * weight_NJ + smoothing / self.config.top_k
        return Gates(chosen_NJ, weight_NJ, router_prob_NK)

    def _component_means(self, anchor_N: Tensor, delta_NJC: Tensor) -> Tensor:
        mode = self.config.anchor_mode
        if mode is AnchorMode.free:
            return delta_NJC
        anchor_NJC = anchor_N[:, None, None].expand_as(delta_NJC)
        return anchor_NJC if mode is AnchorMode.only else anchor_NJC + delta_NJC
