"""Anchor-MoE for several targets: (features, anchors) -> a mixture of multivariate Gaussians per row.

Projection, windows, router and gates are those of one target. Each component of an expert has a vector of shifts, a
vector of scales and, by the settings, the numbers that its covariance needs. It is plain torch, vectorised over
experts.

Shape suffixes beside those of network.py: T targets, S numbers of a component's covariance shape, O outputs of an
expert.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anchormoe.distributions.joint import JointMixture
from anchormoe.model.network import AnchorMoE, Gates, component_means, log_gate_weights
from anchormoe.model.settings import Covariance, ModelSettings


class JointParameters(NamedTuple):
    """p(y) = sum_m exp(log_weights_m) N(y; means_m, factors_m factors_m^T), one mixture per row; differentiable."""

    log_weights_NM: Tensor
    means_NMT: Tensor
    factors_NMTT: Tensor

    def log_prob(self, y_NT: Tensor) -> Tensor:
        """Return the log-density at y (N,)."""
        difference_NMT = y_NT[:, None, :] - self.means_NMT
        solved: list[Tensor] = []  # F^-1 (y - mean), by forward substitution
        for row in range(self.means_NMT.shape[2]):
            rest_NM = difference_NMT[..., row]
            for column, before_NM in enumerate(solved):
                rest_NM = rest_NM - self.factors_NMTT[..., row, column] * before_NM
            solved.append(rest_NM / self.factors_NMTT[..., row, row])
        error_NMT = torch.stack(solved, dim=2)
        log_determinant_NM = self.factors_NMTT.diagonal(dim1=2, dim2=3).log().sum(2)
        constant = 0.5 * len(solved) * math.log(2 * math.pi)
        log_normal_NM = -0.5 * error_NMT.square().sum(2) - log_determinant_NM - constant
        return torch.logsumexp(self.log_weights_NM + log_normal_NM, dim=1)


class JointOutputs(NamedTuple):
    """Per row, chosen expert and component: a logit, shifts of the means, log-scales and the covariance's shape."""

    logits_NJC: Tensor
    delta_NJCT: Tensor
    log_scale_NJCT: Tensor
    shape_NJCS: Tensor

    @property
    def squared_delta_NJC(self) -> Tensor:
        """The squared length of each component's shift."""
        return self.delta_NJCT.square().sum(3)


class JointExperts(nn.Module):
    """K small networks I -> H ReLU -> H ReLU -> C (1 + 2 T + S), all evaluated on all rows at once.

    An expert that no row chose gets a gradient of zero. Dropout draws from a stream of its own, which depends on the
    number of the step alone: networks of several folds are trained in threads.
    """

    def __init__(
        self,
        *,
        num_experts: int,
        input_dim: int,
        hidden_dim: int,
        num_components: int,
        num_targets: int,
        num_shape: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.input_dim, self.num_components, self.dropout = input_dim, num_components, dropout
        self.num_steps = 0  # of training, so far
        self.widths = (1, num_targets, num_targets, num_shape)  # of the heads, for each component
        outputs = num_components * sum(self.widths)
        self.weight1_KIH = nn.Parameter(torch.empty(num_experts, input_dim, hidden_dim))
        self.bias1_KH = nn.Parameter(torch.empty(num_experts, hidden_dim))
        self.weight2_KHH = nn.Parameter(torch.empty(num_experts, hidden_dim, hidden_dim))
        self.bias2_KH = nn.Parameter(torch.empty(num_experts, hidden_dim))
        self.head_KHO = nn.Parameter(torch.empty(num_experts, hidden_dim, outputs))
        self.head_bias_KO = nn.Parameter(torch.empty(num_experts, outputs))

    def reset_parameters(self, generator: torch.Generator) -> None:
        for number in range(len(self.weight1_KIH)):
            heads = self.head_KHO.detach()[number].split([self.num_components * width for width in self.widths], dim=1)
            for weight in (self.weight1_KIH.detach()[number], self.weight2_KHH.detach()[number], *heads):
                if weight.numel():
                    nn.init.xavier_uniform_(weight, generator=generator)
        for bias in (self.bias1_KH, self.bias2_KH, self.head_bias_KO):
            nn.init.zeros_(bias)

    def forward(self, x_NI: Tensor, chosen_NJ: Tensor) -> JointOutputs:
        x_KNI = x_NI.expand(len(self.weight1_KIH), *x_NI.shape)
        hidden_KNH = F.relu(torch.baddbmm(self.bias1_KH[:, None], x_KNI, self.weight1_KIH))
        kept_2KNH = self._kept(hidden_KNH)
        hidden_KNH = hidden_KNH if kept_2KNH is None else hidden_KNH * kept_2KNH[0]
        hidden_KNH = F.relu(torch.baddbmm(self.bias2_KH[:, None], hidden_KNH, self.weight2_KHH))
        hidden_KNH = hidden_KNH if kept_2KNH is None else hidden_KNH * kept_2KNH[1]
        raw_KNO = torch.baddbmm(self.head_bias_KO[:, None], hidden_KNH, self.head_KHO)
        raw_NJO = raw_KNO[chosen_NJ, torch.arange(len(x_NI), device=x_NI.device)[:, None]]
        logits, *others = raw_NJO.split([self.num_components * width for width in self.widths], dim=2)
        shape = (*chosen_NJ.shape, self.num_components)
        delta, log_scale, rest = (
            part.reshape(*shape, width) for part, width in zip(others, self.widths[1:], strict=True)
        )
        return JointOutputs(logits, delta, log_scale, rest)

    def _kept(self, hidden_KNH: Tensor) -> Tensor | None:
        """Draw the factors of both layers' hidden units at a training step: 0, or 1 / (1 - dropout)."""
        if not (self.training and self.dropout > 0):
            return None
        generator = torch.Generator(hidden_KNH.device).manual_seed(self.num_steps)
        self.num_steps += 1
        drawn = torch.rand(2, *hidden_KNH.shape, generator=generator, device=hidden_KNH.device)
        return (drawn >= self.dropout).to(hidden_KNH.dtype) / (1 - self.dropout)


class JointAnchorMoE(AnchorMoE):
    """The network of several targets. Its covariance is F F^T with F = diag(s) G, by the settings:

    diagonal:  G = I
    full:      G = I + (entries below the diagonal)
    low_rank:  G G^T = I + V V^T for V of `rank` columns, so that F F^T = diag(s)^2 + U U^T with U = diag(s) V
    """

    sigma_min_T: Tensor
    sigma_max_T: Tensor

    def __init__(self, config: ModelSettings, *, input_dim: int, num_targets: int) -> None:
        super().__init__(config, input_dim=input_dim)
        self.num_targets = num_targets
        num_shape = {
            Covariance.diagonal: 0,
            Covariance.low_rank: num_targets * config.rank,
            Covariance.full: num_targets * (num_targets - 1) // 2,
        }[config.covariance]
        self.experts = JointExperts(  # type: ignore[assignment]
            num_experts=config.num_experts,
            input_dim=input_dim,
            hidden_dim=config.width,
            num_components=config.num_components,
            num_targets=num_targets,
            num_shape=num_shape,
            dropout=config.dropout,
        )
        self.register_buffer("sigma_min_T", torch.full((num_targets,), float(config.sigma_min)))
        self.register_buffer("sigma_max_T", torch.full((num_targets,), float(config.sigma_max)))

    def mixture(self, gates: Gates, outputs: JointOutputs, anchor_NT: Tensor) -> JointParameters:  # type: ignore[override]
        """Turn expert outputs into the components of each row; weights and means are those of one target."""
        log_weight_NJC = log_gate_weights(gates.weight_NJ, outputs.logits_NJC)
        mean_NJCT = component_means(self.config.anchor_mode, anchor_NT[:, None, None, :], outputs.delta_NJCT)
        scale_NJCT = torch.minimum(torch.maximum(outputs.log_scale_NJCT.exp(), self.sigma_min_T), self.sigma_max_T)
        factor_NJCTT = scale_NJCT[..., None] * self.shape_factor(outputs.shape_NJCS)
        return JointParameters(log_weight_NJC.flatten(1), mean_NJCT.flatten(1, 2), factor_NJCTT.flatten(1, 2))

    def shape_factor(self, shape_NJCS: Tensor) -> Tensor:
        """Return the lower-triangular G of each component (N, J, C, T, T)."""
        identity = torch.eye(self.num_targets, dtype=shape_NJCS.dtype, device=shape_NJCS.device)
        if self.config.covariance is Covariance.diagonal:
            return identity
        if self.config.covariance is Covariance.full:
            rows_S, columns_S = torch.tril_indices(self.num_targets, self.num_targets, -1, device=shape_NJCS.device)
            empty = shape_NJCS.new_zeros(*shape_NJCS.shape[:-1], identity.numel())
            below = empty.index_copy(-1, rows_S * self.num_targets + columns_S, shape_NJCS)
            return identity + below.unflatten(-1, identity.shape)
        v_NJCTR = shape_NJCS.unflatten(-1, (self.num_targets, self.config.rank))
        return torch.linalg.cholesky(identity + v_NJCTR @ v_NJCTR.mT)

    def distributions(self, parameters: list[JointParameters]) -> JointMixture:  # type: ignore[override]
        """Return what blocks of rows were predicted as one distribution."""
        log_weights, means, factors = (torch.cat(parts).numpy(force=True) for parts in zip(*parameters, strict=True))
        return JointMixture(log_weights, means, factors)


def initial_joint_model(
    config: ModelSettings, *, input_dim: int, sigma_min: np.ndarray, sigma_max: np.ndarray, seed: int
) -> JointAnchorMoE:
    """Make the network of several targets with random weights; the limits of the scales are one per target (T,)."""
    model = JointAnchorMoE(config, input_dim=input_dim, num_targets=len(sigma_min))
    model.reset_parameters(torch.Generator().manual_seed(seed))
    model.sigma_min_T.copy_(torch.as_tensor(sigma_min))
    model.sigma_max_T.copy_(torch.as_tensor(sigma_max))
    return model
