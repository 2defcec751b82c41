"""The network: forward pass, NLL and gradients against plain re-computations, initial weights against the published."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import oracle
import pytest
import torch
from compiled_objective import objective

from anchormoe.config.schema import (
    AnchorMode,
    Combination,
    InitialWeights,
    Loss,
    ModelSettings,
    RouterKind,
    SmoothAt,
    TrainingSettings,
)
from anchormoe.model.kernels.experts import BLOCK_ROWS, _drop
from anchormoe.model.kernels.gates import layer_norm_forward
from anchormoe.model.network import AnchorMoE, initial_model
from anchormoe.model.training import Batch, refit

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


@pytest.fixture(params=OPTIONS)
def config(request: pytest.FixtureRequest) -> ModelSettings:
    return dataclasses.replace(SMALL, **OPTIONS[request.param])


@pytest.fixture
def _global_stream() -> Iterator[None]:
    """Leave torch's global generator as it was."""
    with torch.random.fork_rng():
        yield


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


def plain_copy(model: AnchorMoE) -> oracle.PlainAnchorMoE:
    plain = oracle.PlainAnchorMoE(model.config, input_dim=INPUT_DIM).to(model.projection.weight_DI.dtype)
    plain.copy_weights(model)
    return plain.train(model.training)


def random_batch(*, num_rows: int = 12, seed: int = 1, dtype: torch.dtype = torch.float64) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_rows, INPUT_DIM, generator=generator, dtype=torch.float64)
    anchor = torch.randn(num_rows, generator=generator, dtype=torch.float64)
    y = anchor + 0.5 * torch.randn(num_rows, generator=generator, dtype=torch.float64)
    return Batch(x.to(dtype), anchor.to(dtype), y.to(dtype))


# --- forward pass


@pytest.mark.parametrize("training", [True, False])
def test_log_prob_equals_the_numpy_recomputation(config: ModelSettings, training: bool) -> None:
    model, batch = random_model(config).train(training), random_batch()
    expected = oracle.log_prob(plain_copy(model), batch.x.numpy(), batch.anchor.numpy(), batch.y.numpy())
    received = model(batch.x, batch.anchor).log_prob(batch.y).detach()
    torch.testing.assert_close(received, torch.as_tensor(expected), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("training", [True, False])
def test_gates_components_and_moments_equal_the_dense_recomputation(config: ModelSettings, training: bool) -> None:
    model, batch = random_model(config).train(training), random_batch()
    gates, mixture = model.gates(batch.x), model(batch.x, batch.anchor)
    plain = plain_copy(model)(batch.x, batch.anchor)
    dense = torch.zeros_like(plain.weight).scatter(1, gates.chosen_NJ, gates.weight_NJ)
    torch.testing.assert_close(dense, plain.weight, rtol=1e-10, atol=1e-10)
    if config.router is RouterKind.none:
        assert gates.router_prob_NK is None
    else:
        torch.testing.assert_close(gates.router_prob_NK, plain.router_prob, rtol=1e-10, atol=1e-10)
    weights = plain.weight[:, :, None] * plain.pi
    mean = (weights * plain.mean).sum((1, 2))
    variance = (weights * (plain.sigma**2 + plain.mean**2)).sum((1, 2)) - mean**2
    torch.testing.assert_close(mixture.mean, mean, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(mixture.variance, variance, rtol=1e-9, atol=1e-9)
    assert mixture.scales.min() >= config.sigma_min
    assert mixture.scales.max() <= config.sigma_max


def test_float32_forward_is_near_the_float64_recomputation(config: ModelSettings) -> None:
    model, batch = random_model(config).float().eval(), random_batch(dtype=torch.float32)
    expected = oracle.log_prob(plain_copy(model), batch.x.numpy(), batch.anchor.numpy(), batch.y.numpy())
    received = model(batch.x, batch.anchor).log_prob(batch.y)
    assert received.dtype == torch.float32
    torch.testing.assert_close(received.double(), torch.as_tensor(expected), rtol=1e-4, atol=1e-4)


def test_both_ends_of_the_sigma_clamp_are_met() -> None:
    """The other tests of this file would not see the clamp otherwise."""
    scales = random_model(SMALL)(random_batch().x, random_batch().anchor).scales
    assert {SMALL.sigma_min, SMALL.sigma_max} < set(scales.flatten().tolist())


def test_smoothing_is_for_training_only_unless_always() -> None:
    batch = random_batch()
    for smooth_at, equal in ((SmoothAt.train, False), (SmoothAt.always, True)):
        model = random_model(dataclasses.replace(SMALL, smooth_at=smooth_at))
        in_training = model.train().gates(batch.x).weight_NJ
        in_evaluation = model.eval().gates(batch.x).weight_NJ
        assert torch.equal(in_training, in_evaluation) is equal
        assert in_training.min() >= SMALL.smoothing / SMALL.top_k


def test_a_row_far_from_every_window_still_has_a_finite_density() -> None:
    for name in ("published", "no_router", "log_space", "log_space_no_router"):
        model = random_model(dataclasses.replace(SMALL, **OPTIONS[name])).float().eval()
        x = torch.tensor([[1e4, -1e4, 1e4]])
        mixture = model(x, torch.zeros(1))
        torch.testing.assert_close(mixture.weights.sum(), torch.tensor(1.0))
        assert torch.isfinite(mixture.log_prob(torch.zeros(1))).all()


def test_layer_norm_collapses_a_latent_of_two_dimensions_to_two_points() -> None:
    model = AnchorMoE(ModelSettings(layer_norm=True), input_dim=INPUT_DIM)
    model.reset_parameters(torch.Generator().manual_seed(1))
    gate_weights = model.weights().gates
    x = 100 * random_batch(num_rows=200, dtype=torch.float32).x.numpy()
    z = layer_norm_forward(x @ gate_weights.projection_DI.T, gate_weights.norm_weight_D, gate_weights.norm_bias_D)
    assert {tuple(row) for row in z.round(2).tolist()} == {(1.0, -1.0), (-1.0, 1.0)}


# --- objective and gradients


def assert_equal_to_dense(model: AnchorMoE, batch: Batch, *, epoch: int) -> None:
    """The objective and its gradients equal autograd's on the dense form."""
    plain = plain_copy(model)
    value, gradients = objective(model, batch, PENALTIES, epoch)
    loss = oracle.objective(plain(batch.x, batch.anchor), batch.y, plain, PENALTIES, epoch)
    assert value == pytest.approx(loss.item(), rel=1e-10, abs=1e-10)
    loss.backward()
    expected = plain.by_package_name(lambda weight: weight.grad)
    assert expected.keys() == dict(model.named_parameters()).keys()
    for (name, _), gradient in zip(model.named_parameters(), gradients, strict=True):
        received = None if gradient is None else torch.from_numpy(gradient)
        torch.testing.assert_close(received, expected[name], rtol=1e-8, atol=1e-10, msg=name)


@pytest.mark.parametrize("epoch", [3, 4])
def test_objective_and_all_gradients_equal_autograd_on_the_dense_form(config: ModelSettings, epoch: int) -> None:
    assert_equal_to_dense(random_model(config).train(), random_batch(), epoch=epoch)


@pytest.mark.parametrize("score", list(Loss))
def test_gradients_equal_finite_differences(config: ModelSettings, score: Loss) -> None:
    """Along random directions of one parameter at a time: a wrong entry shows in every one of them."""
    model, batch = random_model(config).train(), random_batch(num_rows=6)
    train_config = dataclasses.replace(PENALTIES, loss=score)
    generator = torch.Generator().manual_seed(2)

    def loss() -> float:
        return objective(model, batch, train_config, epoch=1)[0]

    _, gradients = objective(model, batch, train_config, epoch=1)
    step = 1e-6
    for (name, parameter), gradient in zip(model.named_parameters(), gradients, strict=True):
        if not parameter.requires_grad:
            continue
        slope = torch.zeros_like(parameter) if gradient is None else torch.from_numpy(gradient)
        for _ in range(2):
            direction = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            kept = parameter.detach().clone()
            with torch.no_grad():
                parameter.copy_(kept + step * direction)
                above = loss()
                parameter.copy_(kept - step * direction)
                below = loss()
                parameter.copy_(kept)
            numerical = (above - below) / (2 * step)
            assert (slope * direction).sum().item() == pytest.approx(numerical, rel=1e-5, abs=1e-7), name


def test_blocks_of_rows_change_nothing(config: ModelSettings) -> None:
    """More rows than fit a block, the last block a short one."""
    batch = random_batch(num_rows=2 * BLOCK_ROWS + 7)
    model = random_model(config).train()
    assert_equal_to_dense(model, batch, epoch=1)
    expected = plain_copy(model)(batch.x, batch.anchor).nll(batch.y)
    torch.testing.assert_close(-model(batch.x, batch.anchor).log_prob(batch.y), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["published", "log_space"])
def test_experts_of_vanishing_weight_count_as_the_dense_form_counts_them(name: str) -> None:
    """Weights of exactly zero (a router that is certain) and windows under the floor, for targets so far out that what
    such an expert is given decides the density."""
    model = random_model(dataclasses.replace(SMALL, **OPTIONS[name], smoothing=0.0, top_k=NUM_EXPERTS)).train()
    batch = random_batch()
    batch = dataclasses.replace(batch, y=batch.anchor + 15)
    with torch.no_grad():
        model.window.log_scale_KD.fill_(0.8)
        if name == "published":
            assert model.router is not None
            model.router.key_KR *= 1e4
        else:
            model.window.center_KD[1] = 1e3
    weights = model.gates(batch.x).weight_NJ
    assert (weights == 0).any() if name == "published" else (weights < 1e-10).any()
    assert_equal_to_dense(model, batch, epoch=1)


def test_gradients_through_dropout_equal_finite_differences() -> None:
    """The same units are left out at every evaluation: what is dropped depends on the seed, not on the weights."""
    model, batch = random_model(dataclasses.replace(SMALL, dropout=0.4)).train(), random_batch(num_rows=6)
    value, gradients = objective(model, batch, PENALTIES, epoch=1, dropout_seed=3)
    assert value != objective(model, batch, PENALTIES, epoch=1, dropout_seed=4)[0]
    generator, step = torch.Generator().manual_seed(2), 1e-6
    for (name, parameter), gradient in zip(model.named_parameters(), gradients, strict=True):
        slope = torch.zeros_like(parameter) if gradient is None else torch.from_numpy(gradient)
        direction = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                parameter += sign * step * direction
                values.append(objective(model, batch, PENALTIES, epoch=1, dropout_seed=3)[0])
                parameter -= sign * step * direction
        numerical = (values[0] - values[1]) / (2 * step)
        assert (slope * direction).sum().item() == pytest.approx(numerical, rel=1e-5, abs=1e-7), name


def test_dropout_leaves_out_its_share_and_keeps_the_expectation() -> None:
    units = np.ones((400, 50))
    _drop(units, np.arange(400), 0.3, 7, 1)
    assert (units == 0).mean() == pytest.approx(0.3, abs=0.01)
    assert units.mean() == pytest.approx(1.0, abs=0.02)
    many = np.ones((40_000, 51))
    _drop(many, np.arange(len(many)), 0.3, 7, 1)
    between_units = np.corrcoef(many.T) - np.eye(51)
    assert np.abs(between_units).max() < 0.025, "units must be dropped independently: five standard errors"
    other_seed, other_layer, part = np.ones((400, 50)), np.ones((400, 50)), np.ones((10, 50))
    _drop(other_seed, np.arange(400), 0.3, 8, 1)
    _drop(other_layer, np.arange(400), 0.3, 7, 2)
    _drop(part, np.arange(200, 210), 0.3, 7, 1)
    for other in (other_seed, other_layer):
        assert (other == units).mean() == pytest.approx(0.58, abs=0.02)  # 0.7^2 + 0.3^2: independent
    assert np.array_equal(part, units[200:210]), "a row's draws must not depend on its block"


def test_dropout_is_for_training_only() -> None:
    batch = random_batch()
    with_dropout, without = (random_model(dataclasses.replace(SMALL, dropout=rate)).eval() for rate in (0.5, 0.0))
    assert torch.equal(with_dropout(batch.x, batch.anchor).means, without(batch.x, batch.anchor).means)


def test_fixed_windows_get_no_gradient_and_do_not_move() -> None:
    model, batch = random_model(dataclasses.replace(SMALL, window_learnable=False)), random_batch()
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    refit(model, batch, 2, PENALTIES)
    moved = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert not moved & {"window.center_KD", "window.log_scale_KD"}
    assert "projection.weight_DI" in moved


@pytest.mark.parametrize("router", [RouterKind.dot, RouterKind.none])
def test_an_expert_nobody_chose_has_no_gradient_and_keeps_its_weights_bit_for_bit(router: RouterKind) -> None:
    model, batch = random_model(dataclasses.replace(SMALL, router=router)).train(), random_batch(num_rows=40)
    with torch.no_grad():
        model.window.log_scale_KD[0] = 0.0
        model.window.center_KD[2] = 1e3
    assert set(model.gates(batch.x).chosen_NJ.flatten().tolist()) == {0, 1, 3}
    _, gradients = objective(model, batch, PENALTIES, epoch=1)
    assert [gradient is None for gradient in gradients[-NUM_EXPERTS:]] == [False, False, True, False]

    before = [packed.detach().clone() for packed in model.experts.packed]
    refit(model, batch, 3, PENALTIES)
    unmoved = [torch.equal(packed, old) for packed, old in zip(model.experts.packed, before, strict=True)]
    assert unmoved == [False, False, True, False]


# --- initial weights

FULL = ModelSettings()


def published_model(
    number: int, config: ModelSettings = FULL, weights: InitialWeights = InitialWeights.own
) -> AnchorMoE:
    return initial_model(config, input_dim=14, seed=1, number=number, initial_weights=weights)


def test_first_model_has_the_published_check_values() -> None:
    model = published_model(1)
    plain = oracle.PlainAnchorMoE(FULL, input_dim=14)
    plain.copy_weights(model)
    values = [
        (plain.projection.weight[0, :3], [0.171075, 0.580869, 0.404202]),
        (plain.center[0], [-1.803364, -1.308321]),
        (plain.key[0, :2], [-0.453066, -0.126017]),
        (plain.experts[0].hidden1.weight[0, :2], [-0.145024, 0.171720]),
        (plain.experts[7].log_scale.weight[0, :2], [-0.095868, -0.056458]),
    ]
    for received, expected in values:
        torch.testing.assert_close(received.detach(), torch.tensor(expected), rtol=0, atol=1e-6)
    assert sum(parameter.numel() for parameter in model.parameters()) == 157510


@pytest.mark.usefixtures("_global_stream")
@pytest.mark.parametrize("router", [RouterKind.dot, RouterKind.none])
def test_each_model_of_a_run_equals_the_one_ordinary_layers_draw(router: RouterKind) -> None:
    config = ModelSettings(router=router)
    torch.manual_seed(1)
    for number in (1, 2, 3):
        expected = oracle.PlainAnchorMoE(config, input_dim=14).by_package_name(lambda weight: weight.detach())
        model = published_model(number, config)
        received = dict(model.named_parameters())
        assert received.keys() == expected.keys()
        for name, value in expected.items():
            assert torch.equal(received[name], value), f"model {number}: {name}"


def test_drawing_a_model_leaves_the_global_stream_alone() -> None:
    before = torch.get_rng_state()
    published_model(2)
    assert torch.equal(torch.get_rng_state(), before)


def test_shared_weights_of_no_router_are_those_of_the_full_model() -> None:
    no_router = ModelSettings(router=RouterKind.none)
    full = published_model(2, weights=InitialWeights.shared).state_dict()
    shared = published_model(2, no_router, InitialWeights.shared)
    own = published_model(2, no_router, InitialWeights.own).state_dict()
    weights = shared.state_dict()
    assert full.keys() - weights.keys() == {"router.query_RD", "router.query_bias_R", "router.key_KR"}
    assert all(torch.equal(weights[name], full[name]) for name in weights)
    assert not torch.equal(own["experts.packed.0"], full["experts.packed.0"])
    batch = Batch(torch.randn(5, 14, generator=torch.Generator().manual_seed(0)), torch.zeros(5), torch.zeros(5))
    assert shared.gates(batch.x).router_prob_NK is None
