"""The toy figures: scores and gradients against other computations, the reduced network against the full one."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scoringrules
import torch

from anchormoe.model import toy
from anchormoe.model.settings import AnchorMode, SmoothAt

MU, LOG_SIGMA, Y = np.array([0.3, -1.0, 2.0]), np.array([np.log(0.8), 0.5, -0.4]), np.array([1.7, -0.2, 2.1])


@pytest.mark.parametrize(
    ("rule", "reference"),
    [(toy.normal_nll, scoringrules.logs_normal), (toy.normal_crps, scoringrules.crps_normal)],
)
def test_scores_are_those_of_another_library(rule: toy.Score, reference) -> None:
    np.testing.assert_allclose(rule(MU, LOG_SIGMA, Y)[0], reference(Y, MU, np.exp(LOG_SIGMA)), rtol=1e-9)


@pytest.mark.parametrize("rule", [toy.normal_nll, toy.normal_crps])
def test_gradients_are_those_of_finite_differences(rule: toy.Score) -> None:
    step = 1e-6
    _, by_mu, by_log_sigma = rule(MU, LOG_SIGMA, Y)
    up, down = rule(MU + step, LOG_SIGMA, Y)[0], rule(MU - step, LOG_SIGMA, Y)[0]
    np.testing.assert_allclose(by_mu, (up - down) / (2 * step), atol=1e-7)
    up, down = rule(MU, LOG_SIGMA + step, Y)[0], rule(MU, LOG_SIGMA - step, Y)[0]
    np.testing.assert_allclose(by_log_sigma, (up - down) / (2 * step), atol=1e-7)


def test_the_derivative_by_sigma_is_not_the_notebooks() -> None:
    by_sigma = toy.normal_crps(MU, LOG_SIGMA, Y)[2][0] / 0.8
    assert by_sigma == pytest.approx(-0.3916, abs=1e-4), "the notebook has -2.0014"


def test_the_data_are_what_the_notebook_states() -> None:
    data = toy.dynamics_data()
    assert len(data.x) == 700
    assert np.abs(data.x).max() == 1.5
    inside = np.abs(data.x) < 0.2
    assert np.std(data.y[inside] - 0.8) == pytest.approx(0.06, rel=0.2)
    assert np.all(np.diff(data.sorted().x) >= 0)
    grid = np.array([-1.5, -0.5, 0, 0.5, 1.5])
    assert toy.plateau(grid, height=0.8, slope=3.5).tolist() == pytest.approx([-2.7, 0.8, 0.8, 0.8, 4.3])
    visible = np.abs(toy.interval_data().x) <= 1.2
    assert 190 <= visible.sum() <= 210


@pytest.mark.parametrize("anchored", [True, False])
def test_the_reduced_network_is_the_full_one_without_its_router(anchored: bool) -> None:
    network = toy.ToyNetwork(torch.Generator().manual_seed(1), anchored=anchored)
    x, y = torch.linspace(-1.5, 1.5, 40), torch.linspace(-2, 2, 40)
    anchor = torch.sin(x) if anchored else torch.zeros(40)
    mixture, delta_NKC = network._forward(x, anchor, smoothing=toy.TRAIN_SMOOTHING)
    full = network.model
    mode = AnchorMode.delta if anchored else AnchorMode.free
    full.config = dataclasses.replace(full.config, smooth_at=SmoothAt.always, anchor_mode=mode)
    expected = full(torch.stack([x, anchor], dim=1), anchor)
    assert delta_NKC.shape == (40, 6, 3)
    torch.testing.assert_close(mixture.log_prob(y), expected.log_prob(y), atol=1e-5, rtol=1e-5)


def test_training_lowers_the_loss_and_the_band_holds_the_points() -> None:
    data = toy.dynamics_data(200).sorted()
    anchor = toy.plateau(data.x, height=0.8, slope=3.5)
    network = toy.ToyNetwork(torch.Generator().manual_seed(7), anchored=True)
    before = network.snapshot(data.x, anchor, smoothing=0.25, draws=200)
    network.train(data, anchor, epochs=60)
    mean, low, high = network.snapshot(data.x, anchor, smoothing=0.25, draws=200)
    assert 0.8 < np.mean((low < data.y) & (data.y < high)) <= 1
    assert np.mean(high - low) < np.mean(before[2] - before[1])
    assert np.all((low < mean) & (mean < high))
