"""The two-phase fit against a plain training loop, and what the options of it promise."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import oracle
import pytest
import torch
from compiled_objective import objective

from anchormoe.config.schema import Loss, ModelSettings, RouterKind, TrainingSettings
from anchormoe.model.kernels.adamw import adamw, step
from anchormoe.model.network import AnchorMoE, arrays
from anchormoe.model.training import (
    Batch,
    TrainingDiverged,
    mean_nll,
    predict,
    refit,
    select_epoch,
    temperature,
)

INPUT_DIM = 4
SMALL = ModelSettings(num_experts=5, hidden_dim=8, num_components=2, router_dim=6)
# Fifteen epochs that see everything: entropy's change of sign, a clipped gradient, and (in phase 2) the coolest router.
SHORT = TrainingSettings(epochs=15, learning_rate=0.02, temperature_decay=0.95, entropy_epochs=4, clip_norm=0.3)


def batch(*, num_rows: int, seed: int, dtype: torch.dtype = torch.float64) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_rows, INPUT_DIM, generator=generator, dtype=torch.float64)
    noise = torch.randn(2, num_rows, generator=generator, dtype=torch.float64)
    y = torch.sin(2 * x[:, 0]) + 0.3 * noise[0]
    return Batch(x.to(dtype), (y + 0.3 * noise[1]).to(dtype), y.to(dtype))


def initial(config: ModelSettings = SMALL, *, dtype: torch.dtype = torch.float64) -> AnchorMoE:
    model = AnchorMoE(config, input_dim=INPUT_DIM)
    model.reset_parameters(torch.Generator().manual_seed(4))
    return model.to(dtype)


def plain_copy(model: AnchorMoE) -> oracle.PlainAnchorMoE:
    plain = oracle.PlainAnchorMoE(model.config, input_dim=INPUT_DIM).to(model.projection.weight_DI.dtype)
    plain.copy_weights(model)
    return plain


def weights(model: AnchorMoE) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


# --- against the plain loop


@pytest.mark.parametrize("router", [RouterKind.dot, RouterKind.none])
def test_both_phases_equal_the_plain_loop_in_float64(router: RouterKind) -> None:
    model = initial(dataclasses.replace(SMALL, router=router))
    with torch.no_grad():
        model.window.center_KD[3] = 100.0  # an expert nobody chooses: its weights must stand still
    idle = model.experts.packed[3].detach().clone()
    plain = plain_copy(model)
    train, validation, both = batch(num_rows=30, seed=1), batch(num_rows=20, seed=2), batch(num_rows=50, seed=3)

    selected = select_epoch(model, train, validation, SHORT)
    epoch, nlls = oracle.select_epoch(plain, train, validation, SHORT)
    assert 1 < epoch < SHORT.epochs, "the comparison should include a return to earlier weights"
    assert selected.epoch == epoch
    assert selected.validation_nll == pytest.approx(min(nlls), rel=1e-9)

    refit(model, both, selected.epoch, SHORT)
    oracle.refit(plain, both, epoch, SHORT)
    for name, value in plain.by_package_name(lambda weight: weight.detach()).items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=1e-7, atol=1e-9, msg=name)
    assert torch.equal(model.experts.packed[3], idle)
    test = batch(num_rows=25, seed=5)
    expected = plain(test.x, test.anchor).nll(test.y).mean().item()
    assert mean_nll(model, test) == pytest.approx(expected, rel=1e-8)


def test_both_phases_are_near_the_plain_loop_in_float32_with_the_published_settings() -> None:
    config, published = ModelSettings(), TrainingSettings(epochs=12)
    model = initial(config, dtype=torch.float32)
    plain = plain_copy(model)
    train, validation = (batch(num_rows=60, seed=seed, dtype=torch.float32) for seed in (1, 2))
    selected = select_epoch(model, train, validation, published)
    epoch, nlls = oracle.select_epoch(plain, train, validation, published)
    assert selected.epoch == epoch
    assert selected.validation_nll == pytest.approx(min(nlls), abs=1e-4)
    refit(model, validation, epoch, published)
    oracle.refit(plain, validation, epoch, published)
    expected = plain(train.x, train.anchor).nll(train.y).mean().item()
    assert mean_nll(model, train) == pytest.approx(expected, abs=1e-4)


# --- temperature


def test_temperature_starts_at_three_and_reaches_one_after_220_steps() -> None:
    published = TrainingSettings()
    assert temperature(published, 0) == 3.0
    assert temperature(published, 9) == pytest.approx(3 * 0.995**9)
    assert temperature(published, 219) > 1.0
    assert temperature(published, 220) == 1.0
    assert temperature(published, 800) == 1.0


def test_each_phase_leaves_the_temperature_where_the_schedule_is() -> None:
    model, config = initial(), TrainingSettings(epochs=5)
    data = batch(num_rows=20, seed=1)
    select_epoch(model, data, data, config)
    assert model.temperature == pytest.approx(3 * 0.995**5)
    refit(model, data, 3, config)
    assert model.temperature == pytest.approx(3 * 0.995**8)


def test_phase_two_runs_at_the_coolest_temperature_after_a_full_phase_one() -> None:
    data, config = batch(num_rows=20, seed=1), TrainingSettings()
    model, cold = initial(), initial()
    refit(model, data, 2, config)
    refit(cold, data, 2, dataclasses.replace(config, temperature_start=1.0))
    assert all(torch.equal(value, cold.state_dict()[name]) for name, value in model.state_dict().items())


# --- which epoch


def test_of_equally_good_epochs_the_first_is_selected() -> None:
    """Steps too small to change a weight, and no router whose temperature would: every epoch is equally good."""
    model = initial(dataclasses.replace(SMALL, router=RouterKind.none), dtype=torch.float32)
    before = weights(model)
    data = batch(num_rows=20, seed=1, dtype=torch.float32)
    selected = select_epoch(model, data, data, TrainingSettings(epochs=4, learning_rate=1e-60))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert selected.epoch == 1


def test_selected_epoch_is_the_best_and_its_weights_are_kept() -> None:
    train, validation = batch(num_rows=30, seed=1), batch(num_rows=20, seed=2)
    model = initial()
    selected = select_epoch(model, train, validation, SHORT)
    cut = dataclasses.replace(SHORT, epochs=selected.epoch)
    stopped_there = initial()
    assert select_epoch(stopped_there, train, validation, cut) == selected
    assert all(torch.equal(value, stopped_there.state_dict()[name]) for name, value in model.state_dict().items())
    model.temperature = temperature(SHORT, selected.epoch)
    assert mean_nll(model, validation) == pytest.approx(selected.validation_nll, rel=1e-12)


def test_patience_stops_early_and_changes_nothing_else() -> None:
    train, validation = batch(num_rows=30, seed=1), batch(num_rows=20, seed=2)
    patient, impatient = initial(), initial()
    selected = select_epoch(patient, train, validation, SHORT)
    config = dataclasses.replace(SHORT, patience=2)
    assert select_epoch(impatient, train, validation, config) == selected
    assert impatient.temperature == pytest.approx(temperature(SHORT, selected.epoch + 2))
    assert impatient.temperature > patient.temperature, "it should have stopped before the last epoch"
    refit(patient, train, selected.epoch, SHORT)
    refit(impatient, train, selected.epoch, config)
    assert impatient.temperature == patient.temperature
    assert all(torch.equal(value, impatient.state_dict()[name]) for name, value in patient.state_dict().items())


# --- mini-batches


def test_a_batch_that_holds_all_rows_is_the_full_batch() -> None:
    data = batch(num_rows=20, seed=1)
    models = [initial(), initial()]
    for model, size in zip(models, (None, 20), strict=True):
        refit(model, data, 3, dataclasses.replace(SHORT, batch_size=size))
    assert all(torch.equal(value, models[1].state_dict()[name]) for name, value in models[0].state_dict().items())


def test_mini_batches_equal_the_plain_loop_over_each_epochs_own_order_of_the_rows() -> None:
    """Three steps per epoch, the last on fewer rows. The router does not cool here: ours cools after every epoch, the
    plain loop after every step."""
    config = dataclasses.replace(SHORT, batch_size=8, temperature_decay=1.0)
    model, data = initial(), batch(num_rows=20, seed=1)
    plain = plain_copy(model)
    refit(model, data, 4, config)

    optimiser, plain.temperature = oracle.adamw(plain, config), config.temperature_start
    for epoch in range(1, 5):
        order = torch.randperm(20, generator=torch.Generator().manual_seed(epoch))
        for rows in order.split(8):
            oracle.step(plain, optimiser, Batch(data.x[rows], data.anchor[rows], data.y[rows]), config, epoch)
    for name, value in plain.by_package_name(lambda weight: weight.detach()).items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=1e-7, atol=1e-9, msg=name)


def test_every_step_draws_its_own_dropout() -> None:
    """The n-th step since the optimiser was new has the seed n, whichever epoch it is in."""
    config = dataclasses.replace(SHORT, batch_size=8, temperature_decay=1.0)
    model, stepwise = (initial(dataclasses.replace(SMALL, dropout=0.4)).train() for _ in range(2))
    data = batch(num_rows=20, seed=1)
    refit(model, data, 2, config)

    optimiser = adamw(
        arrays(*stepwise.parameters()),
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
        clip_norm=config.clip_norm,
    )
    stepwise.temperature, number = config.temperature_start, 0
    for epoch in (1, 2):
        order = torch.randperm(20, generator=torch.Generator().manual_seed(epoch))
        for rows in order.split(8):
            number += 1
            part = Batch(data.x[rows], data.anchor[rows], data.y[rows])
            _, gradients = objective(stepwise, part, config, epoch, dropout_seed=number)
            step(optimiser, tuple(np.empty(0) if gradient is None else gradient.ravel() for gradient in gradients))
    for name, value in stepwise.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=1e-9, atol=1e-12, msg=name)


def test_mini_batches_lower_the_loss() -> None:
    model, data = initial(), batch(num_rows=60, seed=1)
    before = mean_nll(model, data)
    refit(model, data, 10, TrainingSettings(learning_rate=0.01, batch_size=16))
    assert mean_nll(model, data) < 0.8 * before


# --- losses


@pytest.mark.parametrize("loss", list(Loss))
def test_training_lowers_the_loss_it_is_given(loss: Loss) -> None:
    model, data = initial(), batch(num_rows=60, seed=1)

    def score() -> float:
        mixture = predict(model, data)
        return (-mixture.log_prob(data.y) if loss is Loss.nll else mixture.crps(data.y)).mean().item()

    config = TrainingSettings(loss=loss, learning_rate=0.01)
    before = score()
    refit(model, data, 30, config)
    assert score() < 0.8 * before if before > 0 else score() < before - 0.1


def test_the_two_losses_train_two_different_models() -> None:
    data = batch(num_rows=30, seed=1)
    models = [initial(), initial()]
    for model, loss in zip(models, Loss, strict=True):
        refit(model, data, 1, TrainingSettings(loss=loss))
    assert not torch.equal(*(model.projection.weight_DI for model in models))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_training_that_never_has_a_finite_validation_nll_is_an_error(bad: float) -> None:
    data = batch(num_rows=10, seed=1)
    with pytest.raises(TrainingDiverged, match="3 epochs"):
        select_epoch(initial(), data, dataclasses.replace(data, y=data.y * bad), TrainingSettings(epochs=3))


def test_weights_that_explode_are_an_error() -> None:
    data = batch(num_rows=10, seed=1)
    with pytest.raises(TrainingDiverged):
        select_epoch(initial(), data, data, TrainingSettings(epochs=3, learning_rate=1e200))
