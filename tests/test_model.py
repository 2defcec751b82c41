"""The torch module: values against NumPy, gradients against finite differences, initial weights against the runs."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import oracle
import pytest
import torch
from network_cases import (
    INPUT_DIM,
    NUM_EXPERTS,
    OPTIONS,
    PENALTIES,
    SMALL,
    random_batch,
    random_model,
    settings,
    with_idle_expert,
    with_vanishing_experts,
)
from torch import Tensor, nn

from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.model.network import AnchorMoE, ExpertOutputs, MixtureParameters, initial_model
from anchormoe.model.settings import InitialWeights, Loss, ModelSettings, RouterKind, SmoothAt
from anchormoe.model.training import objective


@pytest.fixture(params=OPTIONS)
def config(request: pytest.FixtureRequest) -> ModelSettings:
    return settings(request.param)


@pytest.fixture
def _global_stream() -> Iterator[None]:
    """Leave torch's global generator as it was."""
    with torch.random.fork_rng():
        yield


@pytest.mark.parametrize("module", ["network", "training"])
def test_importing_the_network_does_not_import_numba(module: str) -> None:
    command = f"import sys, anchormoe.model.{module}; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", command]).returncode == 0


# --- forward pass


@pytest.mark.parametrize("training", [True, False])
def test_mixtures_and_gates_equal_the_numpy_recomputation(config: ModelSettings, training: bool) -> None:
    model, batch = random_model(config).train(training), random_batch()
    mixture, gates = model(batch.x, batch.anchor), model.gates(batch.x)
    expected = oracle.rows(model, batch.x.numpy(), batch.anchor.numpy())
    close = {"rtol": 1e-10, "atol": 1e-10}
    for name, received in {
        "weight": mixture.log_weights_NM.exp(),
        "mean": mixture.means_NM,
        "scale": mixture.scales_NM,
        "chosen": gates.chosen_NJ,
        "gate": gates.weight_NJ,
    }.items():
        values = np.array([getattr(row, name) for row in expected])
        torch.testing.assert_close(received.detach(), torch.from_numpy(values), **close, msg=name)
    log_prob = oracle.log_prob(model, *(part.numpy() for part in (batch.x, batch.anchor, batch.y)))
    torch.testing.assert_close(mixture.log_prob(batch.y).detach(), torch.from_numpy(log_prob), **close)
    if config.router is RouterKind.none:
        assert gates.router_prob_NK is None
    else:
        prob = torch.from_numpy(np.array([row.router_prob for row in expected]))
        torch.testing.assert_close(gates.router_prob_NK.detach(), prob, **close)


def test_float32_forward_is_near_the_float64_recomputation(config: ModelSettings) -> None:
    model, batch = random_model(config).float().eval(), random_batch(dtype=torch.float32)
    expected = oracle.log_prob(model, *(part.numpy() for part in (batch.x, batch.anchor, batch.y)))
    received = model(batch.x, batch.anchor).log_prob(batch.y).detach()
    assert received.dtype == torch.float32
    torch.testing.assert_close(received.double(), torch.from_numpy(expected), rtol=1e-4, atol=1e-4)


def test_scores_and_mean_equal_those_of_the_numpy_mixture() -> None:
    batch = random_batch()
    parameters = random_model(SMALL)(batch.x, batch.anchor)
    mixture = GaussianMixture(*(value.detach().numpy() for value in parameters))
    y = batch.y.numpy()
    for received, expected in (
        (parameters.log_prob(batch.y), mixture.log_prob(y)),
        (parameters.mean, mixture.mean),
    ):
        np.testing.assert_allclose(received.detach().numpy(), expected, rtol=1e-9)
    np.testing.assert_allclose(parameters.crps(batch.y).detach().numpy(), mixture.crps(y), rtol=1e-8)


def test_both_ends_of_the_sigma_clamp_are_met() -> None:
    """The other tests of this file would not see the clamp otherwise."""
    scales = random_model(SMALL)(random_batch().x, random_batch().anchor).scales_NM
    assert {SMALL.sigma_min, SMALL.sigma_max} < set(scales.flatten().tolist())


def test_smoothing_is_for_training_only_unless_always() -> None:
    batch = random_batch()
    for smooth_at, equal in ((SmoothAt.train, False), (SmoothAt.always, True)):
        model = random_model(dataclasses.replace(SMALL, smooth_at=smooth_at))
        in_training = model.train().gates(batch.x).weight_NJ
        in_evaluation = model.eval().gates(batch.x).weight_NJ
        assert torch.equal(in_training, in_evaluation) is equal
        assert in_training.min() >= SMALL.smoothing / SMALL.top_k


def test_dropout_is_for_training_only() -> None:
    batch = random_batch()
    with_dropout, without = (random_model(dataclasses.replace(SMALL, dropout=rate)) for rate in (0.5, 0.0))
    expected = without.eval()(batch.x, batch.anchor).means_NM
    assert torch.equal(with_dropout.eval()(batch.x, batch.anchor).means_NM, expected)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        first, second = (with_dropout.train()(batch.x, batch.anchor).means_NM for _ in range(2))
    assert not torch.equal(first, second)


def test_a_row_far_from_every_window_still_has_a_finite_density() -> None:
    for name in ("published", "no_router", "log_space", "log_space_no_router"):
        model = random_model(settings(name)).float().eval()
        mixture = model(torch.tensor([[1e4, -1e4, 1e4]]), torch.zeros(1))
        torch.testing.assert_close(mixture.log_weights_NM.exp().sum(), torch.tensor(1.0))
        assert torch.isfinite(mixture.log_prob(torch.zeros(1))).all()


def test_no_rows_have_no_mixtures() -> None:
    mixture = random_model(SMALL)(torch.empty(0, INPUT_DIM, dtype=torch.float64), torch.empty(0, dtype=torch.float64))
    assert mixture.means_NM.shape == (0, SMALL.top_k * SMALL.num_components)


def test_layer_norm_collapses_a_latent_of_two_dimensions_to_two_points() -> None:
    model = AnchorMoE(ModelSettings(layer_norm=True), input_dim=INPUT_DIM)
    model.reset_parameters(torch.Generator().manual_seed(1))
    z = model.projection(100 * random_batch(num_rows=200, dtype=torch.float32).x).detach().numpy()
    assert {tuple(row) for row in z.round(2).tolist()} == {(1.0, -1.0), (-1.0, 1.0)}


# --- objective and gradients


@pytest.mark.parametrize("epoch", [3, 4])
def test_objective_equals_the_numpy_recomputation(config: ModelSettings, epoch: int) -> None:
    model, batch = random_model(config).train(), random_batch()
    value = objective(model, PENALTIES, epoch)(model, batch).item()
    assert value == pytest.approx(oracle.objective(model, batch, PENALTIES, epoch), rel=1e-10)


@pytest.mark.parametrize("loss", list(Loss))
def test_gradients_equal_finite_differences(config: ModelSettings, loss: Loss) -> None:
    """Along random directions of one parameter at a time: a wrong entry shows in every one of them."""
    model, batch = random_model(config).train(), random_batch(num_rows=6)
    function = objective(model, dataclasses.replace(PENALTIES, loss=loss), epoch=1)
    function(model, batch).backward()
    generator, step = torch.Generator().manual_seed(2), 1e-6
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            assert parameter.grad is None
            continue
        slope = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for _ in range(2):
            direction = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            kept, values = parameter.detach().clone(), []
            with torch.no_grad():
                for sign in (1, -1):
                    parameter.copy_(kept + sign * step * direction)
                    values.append(function(model, batch).item())
                parameter.copy_(kept)
            numerical = (values[0] - values[1]) / (2 * step)
            assert (slope * direction).sum().item() == pytest.approx(numerical, rel=1e-5, abs=1e-7), name


@pytest.mark.parametrize("option", ["published", "log_space"])
def test_experts_of_vanishing_weight_count_as_in_numpy_and_leave_gradients_finite(option: str) -> None:
    model, batch = with_vanishing_experts(option)
    weights = model.gates(batch.x).weight_NJ
    assert (weights == 0).any() if option == "published" else (weights < 1e-10).any()
    received = model(batch.x, batch.anchor).log_prob(batch.y)
    expected = oracle.log_prob(model, *(part.numpy() for part in (batch.x, batch.anchor, batch.y)))
    torch.testing.assert_close(received.detach(), torch.from_numpy(expected), rtol=1e-10, atol=1e-10)
    received.sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters() if parameter.grad is not None)


@pytest.mark.parametrize("router", [RouterKind.dot, RouterKind.none])
def test_an_expert_nobody_chose_has_no_gradient(router: RouterKind) -> None:
    model, batch = with_idle_expert(router)
    (-model(batch.x, batch.anchor).log_prob(batch.y).mean()).backward()
    assert [packed.grad is None for packed in model.experts.packed] == [False, False, True, False]


# --- parts of one's own


class LinearExperts(nn.Module):
    """One linear map per expert: the smallest module with the experts' interface."""

    def __init__(self) -> None:
        super().__init__()
        self.maps = nn.Linear(INPUT_DIM, NUM_EXPERTS * 6)

    def forward(self, x_NI: Tensor, chosen_NJ: Tensor) -> ExpertOutputs:
        raw_NKO = self.maps(x_NI).view(len(x_NI), NUM_EXPERTS, 6)
        raw_NJO = raw_NKO.gather(1, chosen_NJ[:, :, None].expand(-1, -1, 6))
        return ExpertOutputs(*raw_NJO.split(2, dim=2))


def test_experts_can_be_replaced_and_trained_by_hand() -> None:
    model, batch = random_model(SMALL), random_batch(num_rows=50)
    model.experts = LinearExperts().double()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for _ in range(30):
        optimiser.zero_grad()
        mixture = model(batch.x, batch.anchor)
        assert isinstance(mixture, MixtureParameters)
        loss = -mixture.log_prob(batch.y).mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.1


# --- initial weights

FULL = ModelSettings()


def published_model(
    number: int, config: ModelSettings = FULL, weights: InitialWeights = InitialWeights.own
) -> AnchorMoE:
    return initial_model(config, input_dim=14, seed=1, number=number, initial_weights=weights)


def test_first_model_has_the_published_check_values() -> None:
    model = published_model(1)
    assert model.router is not None
    values = [
        (model.projection.weight_DI[0, :3], [0.171075, 0.580869, 0.404202]),
        (model.window.center_KD[0], [-1.803364, -1.308321]),
        (model.router.key_KR[0, :2], [-0.453066, -0.126017]),
        (model.experts.packed[0][:2], [-0.145024, 0.171720]),  # first hidden layer, first unit
        (model.experts.layers(model.experts.packed[7])[4][6, :2], [-0.095868, -0.056458]),  # first log-scale
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
        expected = oracle.weights_of_ordinary_layers(config, input_dim=14)
        received = dict(published_model(number, config).named_parameters())
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
    assert shared.gates(torch.zeros(5, 14)).router_prob_NK is None
