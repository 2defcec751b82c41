"""The linear map of the mean, and every score of a row against independent code."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
import scoringrules
import torch

from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.distributions.scores import Outcome, interval_coverage, pit_counts, rmse, scores
from anchormoe.model.calibration import LinearMap, fit_linear_map

NUM_ROWS = 60
CENTER, SCALE = 22.5, 9.2


def outcome(*, dtype: torch.dtype = torch.float64) -> Outcome:
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(3, NUM_ROWS, 4, generator=generator, dtype=torch.float64)
    mixture = GaussianMixture(
        torch.log_softmax(normal[0], dim=-1).to(dtype), normal[1].to(dtype), torch.exp(0.4 * normal[2]).to(dtype)
    )
    mean_y = mixture.mean.double().numpy() * SCALE + CENTER
    return Outcome(
        distribution_z=mixture,
        center=CENTER,
        scale=SCALE,
        mean_y=1.1 * mean_y - 2.0,
        mean_y_uncalibrated=mean_y,
        fit_seconds=0.0,
        predict_seconds=0.0,
    )


def targets() -> np.ndarray:
    return CENTER + SCALE * 1.5 * np.random.RandomState(1).normal(size=NUM_ROWS)


# --- the linear map


def test_linear_map_is_the_least_squares_line() -> None:
    stream = np.random.RandomState(0)
    mean = stream.normal(20, 5, 50)
    y = 1.3 * mean - 4 + stream.normal(size=50)
    fitted = fit_linear_map(mean, y)
    slope, intercept = np.polyfit(mean, y, 1)
    assert fitted.slope == pytest.approx(slope, rel=1e-10)
    assert fitted.intercept == pytest.approx(intercept, rel=1e-10)
    np.testing.assert_allclose(fitted(mean), np.polyval([slope, intercept], mean))


def test_linear_map_recovers_an_exact_line() -> None:
    mean = np.linspace(0, 1, 9)
    fitted = fit_linear_map(mean, 3 * mean + 2)
    assert (fitted.slope, fitted.intercept) == pytest.approx((3.0, 2.0))


def test_linear_map_never_raises_the_error_on_the_rows_it_was_fitted_to() -> None:
    stream = np.random.RandomState(2)
    mean, y = stream.normal(size=(2, 30))
    assert rmse(fit_linear_map(mean, y)(mean), y) < rmse(mean, y)


def test_linear_map_changes_nothing_unless_fitted() -> None:
    mean = np.array([1.5, -2.0])
    np.testing.assert_array_equal(LinearMap()(mean), mean)


# --- scores


def test_nll_in_original_units_is_the_density_of_the_target_itself() -> None:
    predicted, y = outcome(), targets()
    received = scores(predicted, y)
    mixture = predicted.distribution_z
    weights = mixture.weights.numpy()
    means, scales = mixture.means.numpy() * SCALE + CENTER, mixture.scales.numpy() * SCALE
    normal = np.exp(-0.5 * ((y[:, None] - means) / scales) ** 2) / (scales * np.sqrt(2 * np.pi))
    assert received["nll_y"] == pytest.approx(-np.log((weights * normal).sum(1)).mean(), rel=1e-10)
    assert received["nll_y"] == pytest.approx(received["nll_z"] + math.log(SCALE), rel=1e-12)


def test_rmse_is_of_the_calibrated_mean_and_of_the_uncalibrated_one() -> None:
    predicted, y = outcome(), targets()
    received = scores(predicted, y)
    assert received["rmse_y"] == pytest.approx(np.linalg.norm(predicted.mean_y - y) / math.sqrt(NUM_ROWS))
    assert received["rmse_y_uncalibrated"] == pytest.approx(
        np.linalg.norm(predicted.mean_y_uncalibrated - y) / math.sqrt(NUM_ROWS)
    )
    assert received["rmse_y"] != received["rmse_y_uncalibrated"]


def test_crps_is_in_original_units() -> None:
    predicted, y = outcome(), targets()
    mixture = predicted.distribution_z
    expected = scoringrules.crps_mixnorm(
        y, mixture.means.numpy() * SCALE + CENTER, mixture.scales.numpy() * SCALE, mixture.weights.numpy()
    )
    assert scores(predicted, y)["crps_y"] == pytest.approx(expected.mean(), rel=1e-10)


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_coverage_is_the_share_inside_the_quantiles(level: float) -> None:
    mixture = outcome().distribution_z.affine(scale=SCALE, shift=CENTER)
    y = torch.as_tensor(targets())
    low, high = mixture.quantile((1 - level) / 2), mixture.quantile((1 + level) / 2)
    expected = ((y >= low) & (y <= high)).double().mean().item()
    assert 0 < expected < 1
    assert interval_coverage(mixture, y, level=level) == expected
    if level == 0.9:
        assert scores(outcome(), targets())["coverage_90"] == expected


def test_coverage_of_targets_drawn_from_the_mixture_is_its_level() -> None:
    mixture, draws = outcome().distribution_z, 500
    samples = mixture.sample(draws, generator=torch.Generator().manual_seed(3))
    coverage = interval_coverage(mixture, samples, level=0.9)
    assert coverage == pytest.approx(0.9, abs=5 * math.sqrt(0.9 * 0.1 / (draws * NUM_ROWS)))


def test_scores_of_a_float32_mixture_are_near_those_of_the_float64_one() -> None:
    single, exact = (scores(outcome(dtype=dtype), targets()) for dtype in (torch.float32, torch.float64))
    assert single.keys() == exact.keys()
    for name, value in exact.items():
        assert single[name] == pytest.approx(value, rel=1e-5), name


def test_pit_counts_are_where_the_targets_fall():
    mixture = GaussianMixture.normal(np.zeros(5), 1.0)
    predicted = Outcome(mixture, 10.0, 2.0, np.zeros(5), np.zeros(5), 0.0, 0.0)
    y = 10 + 2 * scipy.stats.norm.ppf([0.01, 0.02, 0.51, 0.72, 0.999])
    expected = [0] * 20
    for bin, count in ((0, 2), (10, 1), (14, 1), (19, 1)):
        expected[bin] = count
    assert pit_counts(predicted, y) == expected
