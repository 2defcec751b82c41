"""Anchor-MoE: (features, anchor) -> a Gaussian mixture per row.

Shape suffixes: N rows, I input columns, D latent dimensions, K experts, J chosen experts (top-k), C components,
R router dimensions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from anchormoe import functions, kernels
from anchormoe.config import AnchorMode, Combination, ModelConfig, RouterKind, SmoothAt
from anchormoe.mixture import GaussianMixture


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
        return functions.window(z_ND, self.center_KD, self.log_scale_KD, self.log_scale_min, self.log_scale_max)


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
        if self.cosine:
            query_NR = nn.functional.linear(z_ND, self.query_RD, self.query_bias_R)
            return nn.functional.normalize(query_NR, dim=-1) @ nn.functional.normalize(self.key_KR, dim=-1).T
        # <W z + b, k_j> = <z, W' k_j> + <b, k_j>: the product of queries and keys first, which has no rows
        key_KR = self.key_KR / math.sqrt(self.key_KR.shape[1])
        return nn.functional.linear(z_ND, key_KR @ self.query_RD, key_KR @ self.query_bias_R)


class Experts(nn.Module):
    """K small networks I -> H ReLU -> H ReLU -> 3C: per component a logit, a mean shift and a log-scale.

    Each expert's weights are one flat parameter. An expert that no row chose gets no gradient at all, so AdamW passes
    it over entirely (no decay, no moments, no step), as in the published runs; and the optimiser has K tensors to
    visit, not 10 K.
    """

    def __init__(self, *, num_experts: int, input_dim: int, hidden_dim: int, num_components: int) -> None:
        super().__init__()
        self.sizes = (input_dim, hidden_dim, 3 * num_components)
        size = hidden_dim * (input_dim + 1) + hidden_dim * (hidden_dim + 1) + 3 * num_components * (hidden_dim + 1)
        self.packed = nn.ParameterList([torch.empty(size) for _ in range(num_experts)])

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator) -> None:
        for packed in self.packed:
            views = kernels.unpack(packed.detach().numpy(), *self.sizes)
            weight1, bias1, weight2, bias2, head, head_bias = map(torch.from_numpy, views)
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
        return functions.experts(x_NI, chosen_NJ, self.sizes, *self.packed)


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
        mode = self.config.anchor_mode
        parts = functions.components(
            gates.weight_NJ,
            raw_NJ3C,
            anchor_N,
            mode is not AnchorMode.free,
            mode is not AnchorMode.only,
            self.config.sigma_min,
            self.config.sigma_max,
        )
        _, delta_NJC, _ = raw_NJ3C.chunk(3, dim=-1)
        return Prediction(GaussianMixture(*parts), gates, delta_NJC)

    def gates(self, x_NI: Tensor) -> Gates:
        z_ND = self.projection(x_NI)
        window_NK = self.window(z_ND)
        logit_NK = torch.zeros_like(window_NK) if self.router is None else self.router(z_ND) / self.temperature
        smoothed = self.training or self.config.smooth_at is SmoothAt.always
        weight_NJ, prob_NK, chosen_NJ = functions.gates(
            window_NK,
            logit_NK,
            self.router is not None,
            self.config.combination is Combination.log_space,
            self.config.top_k,
            self.config.smoothing if smoothed else 0.0,
        )
        return Gates(chosen_NJ, weight_NJ, None if self.router is None else prob_NK)
