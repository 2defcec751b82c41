"""Anchor-MoE: (features, anchor) -> a Gaussian mixture per row.

Shape suffixes: N rows, I input columns, D latent dimensions, K experts, J chosen experts (top-k), C components,
R router dimensions.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.model.kernels import experts as expert_kernels
from anchormoe.model.kernels import gates as gate_kernels
from anchormoe.model.kernels import network as network_kernels
from anchormoe.model.kernels.gates import GateSettings, GateWeights, gates_forward
from anchormoe.model.kernels.network import Head, Settings, Weights
from anchormoe.model.settings import AnchorMode, Combination, InitialWeights, ModelSettings, RouterKind, SmoothAt


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


class Window(nn.Module):
    """Locality: omega_j(z) = exp(-sum_l (z_l - c_jl)^2 / (2 s_jl^2)) + floor, log s clamped."""

    def __init__(self, *, num_experts: int, latent_dim: int, learnable: bool) -> None:
        super().__init__()
        self.center_KD = nn.Parameter(torch.empty(num_experts, latent_dim), requires_grad=learnable)
        self.log_scale_KD = nn.Parameter(torch.empty(num_experts, latent_dim), requires_grad=learnable)

    def reset_parameters(self, generator: torch.Generator) -> None:
        nn.init.normal_(self.center_KD, generator=generator)
        nn.init.zeros_(self.log_scale_KD)


class Router(nn.Module):
    """logits_j = <q(z), k_j> / sqrt(d_r), or the cosine of q and k_j, over the temperature; q(z) = W z + b."""

    def __init__(self, *, num_experts: int, latent_dim: int, router_dim: int) -> None:
        super().__init__()
        self.query_RD = nn.Parameter(torch.empty(router_dim, latent_dim))
        self.query_bias_R = nn.Parameter(torch.empty(router_dim))
        self.key_KR = nn.Parameter(torch.empty(num_experts, router_dim))

    def reset_parameters(self, generator: torch.Generator) -> None:
        draw_default_linear(self.query_RD, self.query_bias_R, generator)
        nn.init.normal_(self.key_KR, generator=generator)


class Experts(nn.Module):
    """K small networks I -> H ReLU -> H ReLU -> 3C: per component a logit, a mean shift and a log-scale.

    Each expert's weights are one flat parameter. An expert that no row chose gets no gradient at all, so AdamW passes
    it over entirely (no decay, no moments, no step), as in the published runs.
    """

    def __init__(self, *, num_experts: int, input_dim: int, hidden_dim: int, num_components: int) -> None:
        super().__init__()
        self.sizes = (input_dim, hidden_dim, 3 * num_components)
        size = hidden_dim * (input_dim + 1) + hidden_dim * (hidden_dim + 1) + 3 * num_components * (hidden_dim + 1)
        self.packed = nn.ParameterList([torch.empty(size) for _ in range(num_experts)])

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator) -> None:
        for packed in self.packed:
            views = expert_kernels.unpack(packed.detach().numpy(), *self.sizes)
            weight1, bias1, weight2, bias2, head, head_bias = map(torch.from_numpy, views)
            hidden = [(weight1, bias1), (weight2, bias2)]
            # The three heads are one matrix here, but were three layers when the published weights were drawn.
            layers = hidden + list(zip(head.chunk(3), head_bias.chunk(3), strict=True))
            for weight, bias in layers:
                draw_default_linear(weight, bias, generator)  # overwritten below; the stream must move on
            for weight, bias in layers:
                nn.init.xavier_uniform_(weight, generator=generator)
                nn.init.zeros_(bias)


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


class AnchorMoE(nn.Module):
    """The whole network. `temperature` (the router's tau) is a plain attribute that training cools.

    The modules hold the weights; the maths, gradients included, is in gate_kernels and expert_kernels.
    """

    def __init__(self, config: ModelSettings, *, input_dim: int) -> None:
        super().__init__()
        self.config = config
        self.temperature = 1.0
        self.projection = Projection(input_dim=input_dim, latent_dim=config.latent_dim, layer_norm=config.layer_norm)
        self.window = Window(
            num_experts=config.num_experts, latent_dim=config.latent_dim, learnable=config.window_learnable
        )
        self.router: Router | None = None
        if config.router is not RouterKind.none:
            self.router = Router(
                num_experts=config.num_experts, latent_dim=config.latent_dim, router_dim=config.router_dim
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
        components = network_kernels.mixture(*arrays(x_NI, anchor_N), self.weights(), self.settings())
        return GaussianMixture(*components)

    def gates(self, x_NI: Tensor) -> Gates:
        gates = gates_forward(*arrays(x_NI), self.weights().gates, self.settings().gates)
        chosen_NJ, weight_NJ, prob_NK = map(torch.from_numpy, gates[:3])
        return Gates(chosen_NJ, weight_NJ, None if self.router is None else prob_NK)

    def weights(self) -> Weights:
        """Views of all weights: what changes the parameters in place changes these."""
        projection, window, router, norm = self.projection, self.window, self.router, self.projection.norm
        absent_norm, absent_router = _absent(projection.bias_D, 1, 1), _absent(projection.bias_D, 2, 1, 2)
        gates = GateWeights(
            *arrays(projection.weight_DI, projection.bias_D),
            *(absent_norm if norm is None else arrays(norm.weight, norm.bias)),
            *arrays(window.center_KD, window.log_scale_KD),
            *(absent_router if router is None else arrays(router.query_RD, router.query_bias_R, router.key_KR)),
        )
        return Weights(gates, arrays(*self.experts.packed))

    def settings(self) -> Settings:
        """Of the mode (training or evaluation) and at the temperature the model is in."""
        config, mode = self.config, self.config.anchor_mode
        smoothed = self.training or config.smooth_at is SmoothAt.always
        gates = GateSettings(
            router=_ROUTERS[config.router],
            layer_norm=config.layer_norm,
            log_space=config.combination is Combination.log_space,
            log_scale_min=config.log_scale_min,
            log_scale_max=config.log_scale_max,
            top_k=config.top_k,
            smoothing=config.smoothing if smoothed else 0.0,
            temperature=self.temperature,
        )
        head = Head(mode is not AnchorMode.free, mode is not AnchorMode.only, config.sigma_min, config.sigma_max)
        return Settings(gates, self.experts.sizes, head)


def initial_model(
    config: ModelSettings, *, input_dim: int, seed: int, number: int, initial_weights: InitialWeights
) -> AnchorMoE:
    """The model of the number-th split, with the weights it would have had in a run of all splits in order.

    One stream feeds the models of all splits one after the other, so earlier models are drawn and overwritten. With
    shared weights the full model is drawn and an ablated router removed afterwards: all other weights stay equal.
    """
    drawn = config
    if initial_weights is InitialWeights.shared and config.router is RouterKind.none:
        drawn = dataclasses.replace(config, router=RouterKind.dot)
    model = AnchorMoE(drawn, input_dim=input_dim)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(number):
        model.reset_parameters(generator)
    if drawn is not config:
        model.router, model.config = None, config
    return model


_ROUTERS = {
    RouterKind.none: gate_kernels.NO_ROUTER,
    RouterKind.dot: gate_kernels.DOT_ROUTER,
    RouterKind.cosine: gate_kernels.COSINE_ROUTER,
}


def arrays(*tensors: Tensor) -> tuple[np.ndarray, ...]:
    """Contiguous views for the kernels."""
    return tuple(tensor.detach().contiguous().numpy() for tensor in tensors)


def _absent(like: Tensor, *dimensions: int) -> tuple[np.ndarray, ...]:
    return tuple(np.empty((0,) * number, arrays(like)[0].dtype) for number in dimensions)
