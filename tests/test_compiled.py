"""The compiled kernels against the torch module, and the clock that fits are timed by."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest
import torch
from compiled_objective import objective
from network_cases import (
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
from numba import njit
from numba.core import event

from anchormoe.model import training
from anchormoe.model.kernels import experts
from anchormoe.model.kernels.clock import clock
from anchormoe.model.kernels.experts import BLOCK_ROWS
from anchormoe.model.network import AnchorMoE
from anchormoe.model.settings import Backend, Loss, ModelSettings, RouterKind, TrainingSettings
from anchormoe.model.training import Batch, predict, refit


@pytest.fixture(params=OPTIONS)
def config(request: pytest.FixtureRequest) -> ModelSettings:
    return settings(request.param)


# --- objective and gradients


def assert_equal_to_autograd(
    model: AnchorMoE, batch: Batch, config: TrainingSettings = PENALTIES, *, epoch: int
) -> None:
    """The kernels' value and gradients equal those of the torch module."""
    value, gradients = objective(model, batch, config, epoch)
    model.zero_grad()
    loss = training.objective(model, config, epoch)(model.train(), batch)
    loss.backward()
    assert value == pytest.approx(loss.item(), rel=1e-10, abs=1e-10)
    expected = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert gradients.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-8, atol=1e-10, msg=name)


@pytest.mark.parametrize("loss", list(Loss))
@pytest.mark.parametrize("epoch", [3, 4])
def test_objective_and_all_gradients_equal_autograd(config: ModelSettings, epoch: int, loss: Loss) -> None:
    assert_equal_to_autograd(
        random_model(config), random_batch(), dataclasses.replace(PENALTIES, loss=loss), epoch=epoch
    )


@pytest.mark.parametrize("option", ["published", "cosine_router", "log_space_no_router", "as_in_the_paper", "top_4"])
def test_blocks_of_rows_change_nothing(option: str) -> None:
    """More rows than fit a block, the last block a short one."""
    batch, model = random_batch(num_rows=2 * BLOCK_ROWS + 7), random_model(settings(option))
    assert_equal_to_autograd(model, batch, epoch=1)
    assert_equal_predictions(model, batch)


@pytest.mark.parametrize("option", ["published", "log_space"])
def test_experts_of_vanishing_weight_count_as_in_torch(option: str) -> None:
    model, batch = with_vanishing_experts(option)
    assert_equal_to_autograd(model, batch, epoch=1)


def test_equally_near_experts_are_chosen_in_their_order() -> None:
    """A row far from all windows: every window is the floor."""
    model, batch = random_model(settings("no_router")), random_batch(num_rows=3)
    assert_equal_predictions(model, dataclasses.replace(batch, x=1e4 * batch.x))
    assert model.gates(1e4 * batch.x).chosen_NJ.tolist() == [[0, 1]] * 3


@pytest.mark.parametrize("router", [RouterKind.dot, RouterKind.none])
def test_an_expert_nobody_chose_keeps_its_weights_bit_for_bit(router: RouterKind) -> None:
    model, batch = with_idle_expert(router)
    assert_equal_to_autograd(model, batch, epoch=1)
    before = [packed.detach().clone() for packed in model.experts.packed]
    refit(model, batch, 3, PENALTIES)
    unmoved = [torch.equal(packed, old) for packed, old in zip(model.experts.packed, before, strict=True)]
    assert unmoved == [False, False, True, False]


@pytest.mark.parametrize("backend", [Backend.compiled, Backend.torch])
def test_weights_without_a_gradient_do_not_move(backend: Backend) -> None:
    """Fixed windows, and whatever else a user has frozen."""
    model, batch = random_model(settings("fixed_windows")), random_batch()
    model.experts.packed[1].requires_grad_(False)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    refit(model, batch, 2, dataclasses.replace(PENALTIES, backend=backend))
    unmoved = {name for name, parameter in model.named_parameters() if torch.equal(parameter, before[name])}
    assert unmoved == {"window.center_KD", "window.log_scale_KD", "experts.packed.1"}


# --- prediction


def assert_equal_predictions(model: AnchorMoE, batch: Batch) -> None:
    received, expected = (predict(model, batch, backend) for backend in (Backend.compiled, Backend.torch))
    for name in ("log_weights", "means", "scales"):
        np.testing.assert_allclose(getattr(received, name), getattr(expected, name), rtol=1e-9, atol=1e-9, err_msg=name)


def test_predictions_equal_those_of_torch(config: ModelSettings) -> None:
    assert_equal_predictions(random_model(config), random_batch())


def test_prediction_in_blocks_of_rows_is_that_of_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = random_model(SMALL), random_batch()
    whole = predict(model, batch, Backend.torch)
    monkeypatch.setattr(training, "PREDICTION_ROWS", 5)
    np.testing.assert_allclose(predict(model, batch, Backend.torch).means, whole.means, rtol=1e-12)


@pytest.mark.parametrize("backend", [Backend.compiled, Backend.torch])
def test_no_rows_have_no_predictions(backend: Backend) -> None:
    mixture = predict(random_model(SMALL), random_batch(num_rows=0), backend)
    assert mixture.means.shape == (0, SMALL.top_k * SMALL.num_components)


# --- dropout


def test_gradients_through_dropout_equal_finite_differences() -> None:
    """The same units are left out at every evaluation: what is dropped depends on the seed, not on the weights."""
    model, batch = random_model(dataclasses.replace(SMALL, dropout=0.4)).train(), random_batch(num_rows=6)
    value, gradients = objective(model, batch, PENALTIES, epoch=1, dropout_seed=3)
    assert value != objective(model, batch, PENALTIES, epoch=1, dropout_seed=4)[0]
    generator, step = torch.Generator().manual_seed(2), 1e-6
    for name, parameter in model.named_parameters():
        gradient = gradients[name]
        slope = torch.zeros_like(parameter) if gradient is None else gradient
        direction = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                parameter += sign * step * direction
                values.append(objective(model, batch, PENALTIES, epoch=1, dropout_seed=3)[0])
                parameter -= sign * step * direction
        numerical = (values[0] - values[1]) / (2 * step)
        assert (slope * direction).sum().item() == pytest.approx(numerical, rel=1e-5, abs=1e-7), name


@njit
def drop(values, row_P, dropout, seed, layer):
    experts.drop(values, row_P, 0, dropout, seed, layer)


def test_dropout_leaves_out_its_share_and_keeps_the_expectation() -> None:
    units = np.ones((400, 50))
    drop(units, np.arange(400), 0.3, 7, 1)
    assert (units == 0).mean() == pytest.approx(0.3, abs=0.01)
    assert units.mean() == pytest.approx(1.0, abs=0.02)
    many = np.ones((40_000, 51))
    drop(many, np.arange(len(many)), 0.3, 7, 1)
    between_units = np.corrcoef(many.T) - np.eye(51)
    assert np.abs(between_units).max() < 0.025, "units must be dropped independently: five standard errors"
    other_seed, other_layer, part = np.ones((400, 50)), np.ones((400, 50)), np.ones((10, 50))
    drop(other_seed, np.arange(400), 0.3, 8, 1)
    drop(other_layer, np.arange(400), 0.3, 7, 2)
    drop(part, np.arange(200, 210), 0.3, 7, 1)
    for other in (other_seed, other_layer):
        assert (other == units).mean() == pytest.approx(0.58, abs=0.02)  # 0.7^2 + 0.3^2: independent
    assert np.array_equal(part, units[200:210]), "a row's draws must not depend on its block"


# --- compiling


def test_another_number_of_experts_compiles_nothing() -> None:
    """The number of experts, of components and of hidden units are no part of a type."""
    objective(random_model(SMALL), random_batch(), PENALTIES, epoch=1)
    predict(random_model(SMALL), random_batch())
    compiling = event.TimingListener()
    with event.install_listener("numba:compile", compiling):
        other = dataclasses.replace(SMALL, num_experts=NUM_EXPERTS + 1, top_k=3, num_components=3, hidden_dim=7)
        objective(random_model(other), random_batch(), dataclasses.replace(PENALTIES, loss=Loss.crps), epoch=1)
        predict(random_model(dataclasses.replace(other, router=RouterKind.none, sigma_max=1)), random_batch())
    assert not compiling.done


@njit
def doubled(number: float) -> float:
    return 2 * number


@njit
def doubled_and_one_more(number: float) -> float:
    return doubled(number) + 1


def test_the_clock_stands_still_while_numba_compiles() -> None:
    compiling = event.TimingListener()
    with event.install_listener("numba:compile", compiling):
        wall, ours = time.perf_counter(), clock()
        assert doubled_and_one_more(1.0) == 3.0
        wall, ours = time.perf_counter() - wall, clock() - ours
    assert compiling.duration > 0, "nothing was compiled"
    assert wall - ours > 0.5 * compiling.duration


def test_the_clock_goes_on_otherwise() -> None:
    doubled_and_one_more(1.0)
    before = clock()
    time.sleep(0.01)
    assert clock() - before >= 0.01
