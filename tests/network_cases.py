"""Small networks of every option, with random weights, and batches for them."""

from __future__ import annotations

import dataclasses

import torch

from anchormoe.model.network import AnchorMoE
from anchormoe.model.settings import (
    AnchorMode,
    Combination,
    ModelSettings,
    RouterKind,
    SmoothAt,
    TrainingSettings,
)
from anchormoe.model.training import Batch

INPUT_DIM = 3
NUM_EXPERTS = 4
# sigma_min is high enough that both ends of the clamp are met
SMALL = ModelSettings(
    latent_dim=2, num_experts=NUM_EXPERTS, top_k=2, hidden_dim=5, num_components=2, router_dim=3, sigma_min=0.6
)
OPTIONS = {
    "published": {},
    "cosine_router": {"router": RouterKind.cosine},
    "no_router": {"router": RouterKind.none},
    "log_space": {"combination": Combination.log_space},
    "log_space_cosine": {"combination": Combination.log_space, "router": RouterKind.cosine},
    "log_space_no_router": {"combination": Combination.log_space, "router": RouterKind.none},
    "smoothed_always": {"smooth_at": SmoothAt.always},
    "no_smoothing": {"smoothing": 0.0},
    "much_smoothing": {"smoothing": 0.6},
    "anchor_only": {"anchor_mode": AnchorMode.only},
    "free": {"anchor_mode": AnchorMode.free},
    "layer_norm": {"layer_norm": True, "latent_dim": 3},
    "fixed_windows": {"window_learnable": False},
    "one_component": {"num_components": 1},
    "as_in_the_paper": {
        "layer_norm": True,
        "combination": Combination.log_space,
        "smooth_at": SmoothAt.always,
        "window_learnable": False,
    },
    **{f"top_{k}": {"top_k": k} for k in range(1, NUM_EXPERTS + 1)},
}
# Large enough that a wrong or missing term shows in any loss or gradient.
PENALTIES = TrainingSettings(
    entropy_epochs=3,
    entropy_weight=0.3,
    entropy_weight_after=-0.2,
    log_scale_weight=0.4,
    balance_weight=0.5,
    delta_weight=0.6,
)


def settings(option: str, **changes) -> ModelSettings:
    return dataclasses.replace(SMALL, **(OPTIONS[option] | changes))


def random_model(config: ModelSettings, *, seed: int = 0) -> AnchorMoE:
    """All weights random (biases and norms too), some log-scales outside their clamp, a temperature that is not 1."""
    generator = torch.Generator().manual_seed(seed)
    model = AnchorMoE(config, input_dim=INPUT_DIM)
    model.reset_parameters(generator)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
        model.window.log_scale_KD.uniform_(-0.5, 0.8, generator=generator)
        model.window.log_scale_KD[0] = torch.linspace(-3, 2, config.latent_dim)
    model.temperature = 1.7
    return model.double()


def random_batch(*, num_rows: int = 12, seed: int = 1, dtype: torch.dtype = torch.float64) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_rows, INPUT_DIM, generator=generator, dtype=torch.float64)
    anchor = torch.randn(num_rows, generator=generator, dtype=torch.float64)
    y = anchor + 0.5 * torch.randn(num_rows, generator=generator, dtype=torch.float64)
    return Batch(x.to(dtype), anchor.to(dtype), y.to(dtype))


def with_vanishing_experts(option: str) -> tuple[AnchorMoE, Batch]:
    """Experts of weight exactly zero (a router that is certain) or with windows under the floor.

    The targets are so far out that what such an expert is given decides the density.
    """
    model = random_model(settings(option, smoothing=0.0, top_k=NUM_EXPERTS)).train()
    batch = random_batch()
    batch = dataclasses.replace(batch, y=batch.anchor + 15)
    with torch.no_grad():
        model.window.log_scale_KD.fill_(0.8)
        if model.config.combination is Combination.product:
            assert model.router is not None
            model.router.key_KR *= 1e4
        else:
            model.window.center_KD[1] = 1e3
    return model, batch


def with_idle_expert(router: RouterKind) -> tuple[AnchorMoE, Batch]:
    """Expert 2 is chosen by no row."""
    model, batch = random_model(dataclasses.replace(SMALL, router=router)).train(), random_batch(num_rows=40)
    with torch.no_grad():
        model.window.log_scale_KD[0] = 0.0
        model.window.center_KD[2] = 1e3
    assert set(model.gates(batch.x).chosen_NJ.flatten().tolist()) == {0, 1, 3}
    return model, batch
