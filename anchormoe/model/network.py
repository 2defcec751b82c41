"""Anchor-MoE: (features, anchor) -> a Gaussian mixture per row, as an ordinary torch module.

    loss = -model(x, anchor).log_prob(y).mean()
    loss.backward()

The parts are attributes, and each can be replaced by a module of your own with the same `forward`:

    model.projection(x_NI) -> z_ND                      the latent code of each row
    model.window(z_ND) -> window_NK                     how near a row is to each expert, positive
    model.router(z_ND, temperature) -> logits_NK        what a row asks for; None: windows alone choose the experts
    model.experts(x_NI, chosen_NJ) -> ExpertOutputs     components of each row from each expert it chose

On the CPU the stock parts are trained and predicted with by compiled code (model/kernels), which computes the same.

Shape suffixes: N rows, I input columns, D latent dimensions, K experts, J chosen experts (top-k), C components of an
expert, M = J C components of a row, R router dimensions, H hidden units, P (row, chosen expert) pairs.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.model.settings import AnchorMode, Combination, InitialWeights, ModelSettings, RouterKind, SmoothAt

FLOOR = 1e-12
LOG_ZERO = -1e9


class MixtureParameters(NamedTuple):
    """p(y) = sum_m exp(log_weights_m) N(y; means_m, scales_m^2), one mixture per row; differentiable."""

    log_weights_NM: Tensor
    means_NM: Tensor
    scales_NM: Tensor

    def log_prob(self, y_N: Tensor) -> Tensor:
        """Return the log-density at y (N,)."""
        error_NM = (y_N[:, None] - self.means_NM) / self.scales_NM
        log_normal_NM = -0.5 * error_NM.square() - self.scales_NM.log() - 0.5 * math.log(2 * math.pi)
        return torch.logsumexp(self.log_weights_NM + log_normal_NM, dim=1)

    def crps(self, y_N: Tensor) -> Tensor:
        """Return the continuous ranked probability score at y (N,).

        sum_m w_m A(y - mu_m, s_m^2) - 1/2 sum_mn w_m w_n A(mu_m - mu_n, s_m^2 + s_n^2), A(d, v) = E|d + sqrt(v) Z|
        """
        weight_NM, mean_NM, variance_NM = self.log_weights_NM.exp(), self.means_NM, self.scales_NM.square()
        to_y_NM = _expected_distance(y_N[:, None] - mean_NM, variance_NM)
        between_NMM = _expected_distance(
            mean_NM[:, :, None] - mean_NM[:, None, :], variance_NM[:, :, None] + variance_NM[:, None, :]
        )
        pair_NMM = weight_NM[:, :, None] * weight_NM[:, None, :]
        return (weight_NM * to_y_NM).sum(1) - 0.5 * (pair_NMM * between_NMM).sum((1, 2))

    @property
    def mean(self) -> Tensor:
        """The mean of each row (N,)."""
        return (self.log_weights_NM.exp() * self.means_NM).sum(1)


def _expected_distance(difference: Tensor, variance: Tensor) -> Tensor:
    """A(d, v) = E|d + sqrt(v) Z| = 2 sqrt(v) phi(d / sqrt(v)) + d (2 Phi(d / sqrt(v)) - 1) for a standard normal Z."""
    scale = variance.sqrt()
    ratio = difference / scale
    density = torch.exp(-0.5 * ratio.square()) / math.sqrt(2 * math.pi)
    return 2 * scale * density + difference * torch.erf(ratio * math.sqrt(0.5))


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
        z_ND = F.linear(x_NI, self.weight_DI, self.bias_D)
        return z_ND if self.norm is None else self.norm(z_ND)


class Window(nn.Module):
    """Locality: omega_j(z) = exp(-sum_l (z_l - c_jl)^2 / (2 s_jl^2)) + FLOOR, log s clamped."""

    def __init__(
        self, *, num_experts: int, latent_dim: int, learnable: bool, log_scale_min: float, log_scale_max: float
    ) -> None:
        super().__init__()
        self.log_scale_min, self.log_scale_max = log_scale_min, log_scale_max
        self.center_KD = nn.Parameter(torch.empty(num_experts, latent_dim), requires_grad=learnable)
        self.log_scale_KD = nn.Parameter(torch.empty(num_experts, latent_dim), requires_grad=learnable)

    def reset_parameters(self, generator: torch.Generator) -> None:
        nn.init.normal_(self.center_KD, generator=generator)
        nn.init.zeros_(self.log_scale_KD)

    def forward(self, z_ND: Tensor) -> Tensor:
        scale_KD = self.log_scale_KD.clamp(self.log_scale_min, self.log_scale_max).exp()
        distance_NKD = (z_ND[:, None, :] - self.center_KD) / scale_KD
        return torch.exp(-0.5 * distance_NKD.square().sum(2)) + FLOOR


class Router(nn.Module):
    """logits_j = <q(z), k_j> / sqrt(R), or the cosine of q and k_j, over the temperature; q(z) = W z + b."""

    def __init__(self, *, num_experts: int, latent_dim: int, router_dim: int, cosine: bool) -> None:
        super().__init__()
        self.cosine = cosine
        self.query_RD = nn.Parameter(torch.empty(router_dim, latent_dim))
        self.query_bias_R = nn.Parameter(torch.empty(router_dim))
        self.key_KR = nn.Parameter(torch.empty(num_experts, router_dim))

    def reset_parameters(self, generator: torch.Generator) -> None:
        draw_default_linear(self.query_RD, self.query_bias_R, generator)
        nn.init.normal_(self.key_KR, generator=generator)

    def forward(self, z_ND: Tensor, temperature: float) -> Tensor:
        query_NR, key_KR = F.linear(z_ND, self.query_RD, self.query_bias_R), self.key_KR
        if self.cosine:
            logits_NK = F.normalize(query_NR, eps=FLOOR) @ F.normalize(key_KR, eps=FLOOR).T
        else:
            logits_NK = query_NR @ key_KR.T / math.sqrt(key_KR.shape[1])
        return logits_NK / temperature


class ExpertOutputs(NamedTuple):
    """Per row, chosen expert and component: a logit, a shift of the mean and a log-scale."""

    logits_NJC: Tensor
    delta_NJC: Tensor
    log_scale_NJC: Tensor

    @property
    def squared_delta_NJC(self) -> Tensor:
        """The square of each component's shift."""
        return self.delta_NJC.square()


class Experts(nn.Module):
    """K small networks I -> H ReLU -> H ReLU -> 3C, each evaluated on the rows that chose it.

    Each expert's weights are one flat parameter. An expert that no row chose gets no gradient at all, so AdamW passes
    it over entirely (no decay, no moments, no step), as in the published runs.
    """

    def __init__(
        self, *, num_experts: int, input_dim: int, hidden_dim: int, num_components: int, dropout: float
    ) -> None:
        super().__init__()
        self.input_dim, self.hidden_dim, self.num_components = input_dim, hidden_dim, num_components
        self.dropout = dropout
        self.shapes = (
            *((hidden_dim, input_dim), (hidden_dim,)),
            *((hidden_dim, hidden_dim), (hidden_dim,)),
            *((3 * num_components, hidden_dim), (3 * num_components,)),
        )
        size = sum(math.prod(shape) for shape in self.shapes)
        self.packed = nn.ParameterList([torch.empty(size) for _ in range(num_experts)])

    def layers(self, packed: Tensor) -> list[Tensor]:
        """Return views of one expert's weights: weight and bias of two hidden layers and of the three heads as one."""
        pieces = packed.split([math.prod(shape) for shape in self.shapes])
        return [piece.view(shape) for piece, shape in zip(pieces, self.shapes, strict=True)]

    def reset_parameters(self, generator: torch.Generator) -> None:
        for packed in self.packed:
            weight1, bias1, weight2, bias2, head, head_bias = self.layers(packed.detach())
            hidden = [(weight1, bias1), (weight2, bias2)]
            # The three heads are one matrix here, but were three layers when the published weights were drawn.
            layers = hidden + list(zip(head.chunk(3), head_bias.chunk(3), strict=True))
            for weight, bias in layers:
                draw_default_linear(weight, bias, generator)  # overwritten below; the stream must move on
            for weight, bias in layers:
                nn.init.xavier_uniform_(weight, generator=generator)
                nn.init.zeros_(bias)

    def forward(self, x_NI: Tensor, chosen_NJ: Tensor) -> ExpertOutputs:
        order_P = chosen_NJ.flatten().argsort(stable=True)  # pairs (row, choice), grouped by expert
        counts = chosen_NJ.flatten().bincount(minlength=len(self.packed)).tolist()
        x_PI = x_NI[order_P // chosen_NJ.shape[1]]
        outputs = [
            self.expert(packed, x_rows)
            for packed, x_rows in zip(self.packed, x_PI.split(counts), strict=True)
            if len(x_rows) > 0
        ]
        raw_PO = torch.cat([x_NI.new_empty(0, 3 * self.num_components), *outputs])  # also if there are no rows
        raw_NJO = raw_PO[order_P.argsort()].view(*chosen_NJ.shape, raw_PO.shape[1])  # back in the order of the rows
        return ExpertOutputs(*raw_NJO.split(self.num_components, dim=2))

    def expert(self, packed: Tensor, x_NI: Tensor) -> Tensor:
        """Return one expert's 3C outputs for its rows."""
        weight1, bias1, weight2, bias2, head, head_bias = self.layers(packed)
        hidden_NH = F.dropout(F.relu(F.linear(x_NI, weight1, bias1)), self.dropout, self.training)
        hidden_NH = F.dropout(F.relu(F.linear(hidden_NH, weight2, bias2)), self.dropout, self.training)
        return F.linear(hidden_NH, head, head_bias)


def draw_default_linear(weight: Tensor, bias: Tensor, generator: torch.Generator) -> None:
    """Draw torch's default initial weights of a linear layer, weight first."""
    nn.init.kaiming_uniform_(weight, a=math.sqrt(5), generator=generator)
    bound = 1 / math.sqrt(weight.shape[1])
    nn.init.uniform_(bias, -bound, bound, generator=generator)


class Gates(NamedTuple):
    """Which experts a row uses: indices, weights that sum to one, and the router's softmax over all K experts."""

    chosen_NJ: Tensor
    weight_NJ: Tensor
    router_prob_NK: Tensor | None


class AnchorMoE(nn.Module):
    """The whole network. `temperature` (the router's tau) is a plain attribute that training cools."""

    def __init__(self, config: ModelSettings, *, input_dim: int) -> None:
        super().__init__()
        self.config = config
        self.temperature = 1.0
        self.projection = Projection(input_dim=input_dim, latent_dim=config.latent_dim, layer_norm=config.layer_norm)
        self.window = Window(
            num_experts=config.num_experts,
            latent_dim=config.latent_dim,
            learnable=config.window_learnable,
            log_scale_min=config.log_scale_min,
            log_scale_max=config.log_scale_max,
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
            hidden_dim=config.width,
            num_components=config.num_components,
            dropout=config.dropout,
        )

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw all weights, in the order in which the published runs drew them."""
        for part in (self.projection, self.window, self.router, self.experts):
            if part is not None:
                part.reset_parameters(generator)

    def forward(self, x_NI: Tensor, anchor_N: Tensor) -> MixtureParameters:
        gates = self.gates(x_NI)
        return self.mixture(gates, self.experts(x_NI, gates.chosen_NJ), anchor_N)

    def gates(self, x_NI: Tensor) -> Gates:
        """Combine windows omega and router logits l, and keep the top k.

        p = softmax(l), or 1 without a router
        v = omega p / (sum omega p + FLOOR), or in log space softmax(log max(omega / sum omega, FLOOR) + l)
        u = v / (sum over the chosen of v + FLOOR);  w = (1 - smoothing) u + smoothing / k
        """
        z_ND = self.projection(x_NI)
        window_NK = self.window(z_ND)
        logits_NK = None if self.router is None else self.router(z_ND, self.temperature)
        prob_NK = None if logits_NK is None else logits_NK.softmax(1)
        if self.config.combination is Combination.log_space:
            log_window_NK = (window_NK / window_NK.sum(1, keepdim=True)).clamp(min=FLOOR).log()
            combined_NK = (log_window_NK if logits_NK is None else log_window_NK + logits_NK).softmax(1)
        else:
            product_NK = window_NK if prob_NK is None else window_NK * prob_NK
            combined_NK = product_NK / (product_NK.sum(1, keepdim=True) + FLOOR)

        # in order of falling v, equal ones in the order of the experts
        chosen_NJ = combined_NK.detach().sort(dim=1, descending=True, stable=True).indices[:, : self.config.top_k]
        combined_NJ = combined_NK.gather(1, chosen_NJ)
        weight_NJ = combined_NJ / (combined_NJ.sum(1, keepdim=True) + FLOOR)
        if self.training or self.config.smooth_at is SmoothAt.always:
            smoothing = self.config.smoothing
            weight_NJ = (1 - smoothing) * weight_NJ + smoothing / self.config.top_k
        return Gates(chosen_NJ, weight_NJ, prob_NK)

    def mixture(self, gates: Gates, outputs: ExpertOutputs, anchor_N: Tensor) -> MixtureParameters:
        """Turn expert outputs (logits l, Delta, log-scales t) into the components of each row.

        log weight = log(w_j + FLOOR) + log(softmax(l)_c + FLOOR), LOG_ZERO in place of the first where w_j = 0
        mean = anchor + Delta (either may be off);  scale = clamp(exp(t), sigma_min, sigma_max)
        """
        config = self.config
        log_weight_NJC = log_gate_weights(gates.weight_NJ, outputs.logits_NJC)
        mean_NJC = component_means(config.anchor_mode, anchor_N[:, None, None], outputs.delta_NJC)
        scale_NJC = outputs.log_scale_NJC.exp().clamp(config.sigma_min, config.sigma_max)
        return MixtureParameters(log_weight_NJC.flatten(1), mean_NJC.flatten(1), scale_NJC.flatten(1))

    def distributions(self, parameters: list[MixtureParameters]) -> GaussianMixture:
        """Return what blocks of rows were predicted as one distribution."""
        log_weights, means, scales = (torch.cat(parts).numpy(force=True) for parts in zip(*parameters, strict=True))
        return GaussianMixture(log_weights, means, scales)


def log_gate_weights(weight_NJ: Tensor, logits_NJC: Tensor) -> Tensor:
    """Return the log-weights of all components: those of the gates plus those within each expert."""
    used_NJ = weight_NJ > 0
    log_weight_NJ = torch.where(used_NJ, torch.where(used_NJ, weight_NJ + FLOOR, 1.0).log(), LOG_ZERO)
    return log_weight_NJ[:, :, None] + (logits_NJC.softmax(2) + FLOOR).log()


def component_means(mode: AnchorMode, anchor: Tensor, delta: Tensor) -> Tensor:
    """Return the components' means: anchor + Delta, or one of them alone."""
    mean = torch.zeros_like(delta)
    if mode is not AnchorMode.free:
        mean = mean + anchor
    if mode is not AnchorMode.only:
        mean = mean + delta
    return mean


def initial_model(
    config: ModelSettings, *, input_dim: int, seed: int, number: int, initial_weights: InitialWeights
) -> AnchorMoE:
    """Make the model of the number-th split, with the weights it would have had in a run of all splits in order.

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
