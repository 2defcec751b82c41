"""The two-phase fit against a plain training loop, both backends against each other, and what the options promise."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from compiled_objective import objective
from torch import Tensor, nn

from anchormoe.errors import UserError
from anchormoe.model import training
from anchormoe.model.kernels.interface import CompiledSteps
from anchormoe.model.network import AnchorMoE, Router
from anchormoe.model.settings import Backend, Loss, ModelSettings, RouterKind, TrainingSettings
from anchormoe.model.training import (
    Batch,
    Phase,
    TorchSteps,
    TrainingDiverged,
    predict,
    refit,
    select_epoch,
    temperature,
)

INPUT_DIM = 4
SMALL = ModelSettings(num_experts=5, hidden_dim=8, num_components=2, router_dim=6)
# Fifteen epochs that see everything: entropy's change of sign, a clipped gradient, and (in phase 2) the coolest router.
SHORT = TrainingSettings(epochs=15, learning_rate=0.02, temperature_decay=0.95, entropy_epochs=4, clip_norm=0.3)
BOTH = [Backend.compiled, Backend.torch]


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


def weights(model: AnchorMoE) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def mean_nll(model: AnchorMoE, data: Batch) -> float:
    return float(-predict(model, data).log_prob(data.y.numpy()).mean())


def assert_same_weights(model: AnchorMoE, other: AnchorMoE, *, rtol: float = 1e-7, atol: float = 1e-9) -> None:
    for name, value in other.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=rtol, atol=atol, msg=name)


# --- against a plain loop


class PlainLoop:
    """A full-batch training loop as one writes it by hand, straight from the description of the published runs."""

    def __init__(self, model: AnchorMoE, config: TrainingSettings) -> None:
        self.model, self.config = model, config
        self.optimiser = torch.optim.AdamW(
            model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )

    def step(self, data: Batch, epoch: int) -> None:
        self.model.train()
        self.optimiser.zero_grad()
        training.objective(self.model, self.config, epoch)(self.model, data).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)
        self.optimiser.step()
        self.model.eval()

    def cool(self) -> None:
        cooler = self.config.temperature_decay * self.model.temperature
        self.model.temperature = max(cooler, self.config.temperature_end)

    def nll(self, data: Batch) -> float:
        with torch.no_grad():
            return -self.model(data.x, data.anchor).log_prob(data.y).mean().item()


def plain_fit(model: AnchorMoE, train: Batch, validation: Batch, both: Batch, config: TrainingSettings) -> list[float]:
    """Both phases; returns the validation NLL after every epoch of the first."""
    loop, nlls, states = PlainLoop(model, config), [], []
    model.temperature = config.temperature_start
    for epoch in range(1, config.epochs + 1):
        loop.step(train, epoch)
        loop.cool()
        nlls.append(loop.nll(validation))
        states.append(weights(model))
    best = nlls.index(min(nlls))
    model.load_state_dict(states[best])
    loop = PlainLoop(model, config)
    for epoch in range(1, best + 2):
        loop.step(both, epoch)
        loop.cool()
    return nlls


@pytest.mark.parametrize("backend", BOTH)
@pytest.mark.parametrize("router", [RouterKind.dot, RouterKind.none])
def test_both_phases_equal_the_plain_loop_in_float64(router: RouterKind, backend: Backend) -> None:
    model, plain = (initial(dataclasses.replace(SMALL, router=router)) for _ in range(2))
    for network in (model, plain):
        with torch.no_grad():
            network.window.center_KD[3] = 100.0  # an expert nobody chooses: its weights must stand still
    idle = model.experts.packed[3].detach().clone()
    train, validation, both = batch(num_rows=30, seed=1), batch(num_rows=20, seed=2), batch(num_rows=50, seed=3)
    nlls = plain_fit(plain, train, validation, both, SHORT)
    assert 1 < nlls.index(min(nlls)) + 1 < SHORT.epochs, "the comparison should include a return to earlier weights"

    config = dataclasses.replace(SHORT, backend=backend)
    selected = select_epoch(model, train, validation, config)
    assert selected.epoch == nlls.index(min(nlls)) + 1
    assert selected.validation_nll == pytest.approx(min(nlls), rel=1e-9)
    assert selected.validation_nlls == pytest.approx(nlls, rel=1e-9)
    assert len(selected.objectives) == len(nlls)
    refit(model, both, selected.epoch, config)
    assert_same_weights(model, plain)
    assert torch.equal(model.experts.packed[3], idle)
    assert model.temperature == pytest.approx(plain.temperature)
    assert not model.training


@pytest.mark.parametrize("backend", BOTH)
def test_both_phases_are_near_the_plain_loop_in_float32_with_the_published_settings(backend: Backend) -> None:
    published = TrainingSettings(epochs=12, backend=backend)
    model, plain = (initial(ModelSettings(), dtype=torch.float32) for _ in range(2))
    train, validation = (batch(num_rows=60, seed=seed, dtype=torch.float32) for seed in (1, 2))
    nlls = plain_fit(plain, train, validation, validation, published)
    selected = select_epoch(model, train, validation, published)
    assert selected.epoch == nlls.index(min(nlls)) + 1
    assert selected.validation_nll == pytest.approx(min(nlls), abs=1e-4)
    refit(model, validation, selected.epoch, published)
    assert mean_nll(model, train) == pytest.approx(mean_nll(plain, train), abs=1e-4)


# --- backends


@pytest.mark.parametrize("loss", list(Loss))
def test_both_backends_select_the_same_epoch_and_nearly_the_same_weights(loss: Loss) -> None:
    """In mini-batches, the last of an epoch a short one, until patience ends."""
    config = dataclasses.replace(SHORT, loss=loss, batch_size=8, patience=6)
    models = [initial(), initial()]
    found = []
    for model, backend in zip(models, BOTH, strict=True):
        settings = dataclasses.replace(config, backend=backend)
        found.append(select_epoch(model, batch(num_rows=30, seed=1), batch(num_rows=20, seed=2), settings))
        refit(model, batch(num_rows=50, seed=3), found[-1].epoch, settings)
    assert found[0].epoch == found[1].epoch > 1
    assert found[0].validation_nll == pytest.approx(found[1].validation_nll, rel=1e-9)
    assert_same_weights(*models)


def test_both_backends_report_the_same_value_of_the_objective() -> None:
    values = [
        Phase(initial(), dataclasses.replace(SHORT, backend=backend, batch_size=8)).run_epoch(
            batch(num_rows=30, seed=1), epoch=1
        )
        for backend in BOTH
    ]
    assert values[0] == pytest.approx(values[1], rel=1e-9)


class PerceptronRouter(Router):
    """A router of the user's own: its logits come from a hidden layer."""

    def __init__(self) -> None:
        super().__init__(num_experts=5, latent_dim=2, router_dim=6, cosine=False)
        self.reset_parameters(torch.Generator().manual_seed(1))
        self.layers = nn.Sequential(nn.Linear(2, 7), nn.Tanh(), nn.Linear(7, 2))

    def forward(self, z_ND: Tensor, temperature: float) -> Tensor:
        return super().forward(self.layers(z_ND), temperature)


def with_own_router() -> AnchorMoE:
    model = initial()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model.router = PerceptronRouter()
    return model.double()


def test_a_router_of_the_users_own_is_trained() -> None:
    model, data = with_own_router(), batch(num_rows=60, seed=1)
    assert isinstance(training.make_steps(model, SHORT), TorchSteps)
    before, nll = weights(model), mean_nll(model, data)
    selected = select_epoch(model, data, batch(num_rows=20, seed=2), SHORT)
    refit(model, data, selected.epoch, SHORT)
    assert mean_nll(model, data) < nll
    assert not torch.equal(model.state_dict()["router.layers.0.weight"], before["router.layers.0.weight"])


def test_the_compiled_backend_refuses_a_part_it_does_not_know() -> None:
    data, compiled = batch(num_rows=10, seed=1), dataclasses.replace(SHORT, backend=Backend.compiled)
    with pytest.raises(UserError, match=r"received PerceptronRouter in place of Router: use auto or torch$") as error:
        select_epoch(with_own_router(), data, data, compiled)
    assert "\n" not in str(error.value)


def test_auto_is_compiled_for_the_stock_parts_only() -> None:
    class OwnMoE(AnchorMoE):
        pass

    assert isinstance(training.make_steps(initial(), SHORT), CompiledSteps)
    assert training.foreign_part(OwnMoE(SMALL, input_dim=INPUT_DIM)) == "OwnMoE in place of AnchorMoE"
    assert training.foreign_part(initial(dtype=torch.float16)) == "torch.float16 on cpu"
    hooked = initial()
    hooked.experts.register_forward_hook(lambda *_: None)
    assert training.foreign_part(hooked) == "a module with a hook"


def test_torch_dropout_does_not_depend_on_the_global_stream() -> None:
    config = dataclasses.replace(SHORT, backend=Backend.torch)
    models = [initial(dataclasses.replace(SMALL, dropout=0.4)) for _ in range(2)]
    state = torch.get_rng_state()
    for model in models:
        refit(model, batch(num_rows=20, seed=1), 2, config)
        assert torch.equal(torch.get_rng_state(), state)
    assert_same_weights(*models, rtol=0, atol=0)


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


@pytest.mark.parametrize("backend", BOTH)
def test_mini_batches_equal_the_plain_loop_over_each_epochs_own_order_of_the_rows(backend: Backend) -> None:
    """Three steps per epoch, the last on fewer rows. The router does not cool here."""
    config = dataclasses.replace(SHORT, batch_size=8, temperature_decay=1.0, backend=backend)
    model, plain, data = initial(), initial(), batch(num_rows=20, seed=1)
    refit(model, data, 4, config)
    loop, plain.temperature = PlainLoop(plain, config), config.temperature_start
    for epoch in range(1, 5):
        order = torch.randperm(20, generator=torch.Generator().manual_seed(epoch))
        for rows in order.split(8):
            loop.step(data.rows(rows), epoch)
    assert_same_weights(model, plain)


def test_every_step_draws_its_own_dropout() -> None:
    """The n-th step since the optimiser was new has the seed n, whichever epoch it is in."""
    config = dataclasses.replace(SHORT, batch_size=8, temperature_decay=1.0)
    model, stepwise = (initial(dataclasses.replace(SMALL, dropout=0.4)) for _ in range(2))
    data = batch(num_rows=20, seed=1)
    refit(model, data, 2, config)

    loop, number = PlainLoop(stepwise, config), 0
    stepwise.temperature = config.temperature_start
    for epoch in (1, 2):
        order = torch.randperm(20, generator=torch.Generator().manual_seed(epoch))
        for rows in order.split(8):
            number += 1
            _, gradients = objective(stepwise, data.rows(rows), config, epoch, dropout_seed=number)
            for name, parameter in stepwise.named_parameters():
                parameter.grad = gradients[name]
            nn.utils.clip_grad_norm_(stepwise.parameters(), config.clip_norm)
            loop.optimiser.step()
    assert_same_weights(model, stepwise)


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
        mixture, y = predict(model, data), data.y.numpy()
        return float((-mixture.log_prob(y) if loss is Loss.nll else mixture.crps(y)).mean())

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


@pytest.mark.parametrize("backend", BOTH)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_training_that_never_has_a_finite_validation_nll_is_an_error(bad: float, backend: Backend) -> None:
    data, config = batch(num_rows=10, seed=1), TrainingSettings(epochs=3, backend=backend)
    with pytest.raises(TrainingDiverged, match="3 epochs"):
        select_epoch(initial(), data, dataclasses.replace(data, y=data.y * bad), config)


@pytest.mark.parametrize("backend", BOTH)
def test_weights_that_explode_are_an_error(backend: Backend) -> None:
    data, config = batch(num_rows=10, seed=1), TrainingSettings(epochs=3, learning_rate=1e200, backend=backend)
    with pytest.raises(TrainingDiverged):
        select_epoch(initial(), data, data, config)
