"""The linear map of the mean, and every metric of the registry against independent code."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import scipy.stats
import scoringrules

from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.distributions.scores import METRICS, interval_coverage, pit, pit_counts, scores
from anchormoe.model.calibration import LinearMap, fit_linear_map

NUM_ROWS = 60
CENTER, SCALE = 22.5, 9.2


def predicted(*, dtype: type = np.float64) -> GaussianMixture:
    """Make a mixture whose reported mean is mapped, as the paper's recipe predicts it."""
    normal = np.random.default_rng(0).standard_normal((3, NUM_ROWS, 4))
    log_weights = normal[0] - np.log(np.exp(normal[0]).sum(1, keepdims=True))
    mixture = GaussianMixture(*(part.astype(dtype) for part in (log_weights, normal[1], np.exp(0.4 * normal[2]))))
    mixture = mixture.in_units(CENTER, SCALE)
    return dataclasses.replace(mixture, reported_mean=1.1 * mixture.mean - 2.0, mean_before_calibration=mixture.mean)


def targets() -> np.ndarray:
    return CENTER + SCALE * 1.5 * np.random.RandomState(1).normal(size=NUM_ROWS)


def components(mixture: GaussianMixture) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return mixture.weights, mixture.means * SCALE + CENTER, mixture.scales * SCALE


def rmse(mean: np.ndarray, y: np.ndarray) -> float:
    return float(np.linalg.norm(mean - y) / math.sqrt(len(y)))


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


# --- metrics


def test_every_metric_says_its_unit_in_its_name() -> None:
    for name, metric in METRICS.items():
        assert metric.name == name
        if metric.unit in ("y", "z"):
            assert f"_{metric.unit}" in name


def test_nll_in_original_units_is_the_density_of_the_target_itself() -> None:
    mixture, y = predicted(), targets()
    received = scores(mixture, y)
    weights, means, scales = components(mixture)
    normal = np.exp(-0.5 * ((y[:, None] - means) / scales) ** 2) / (scales * np.sqrt(2 * np.pi))
    assert received["nll_y"] == pytest.approx(-np.log((weights * normal).sum(1)).mean(), rel=1e-10)
    assert received["nll_y"] == pytest.approx(-mixture.log_prob(y).mean(), rel=1e-12)
    assert received["nll_y"] == pytest.approx(received["nll_z"] + math.log(SCALE), rel=1e-12)


def test_rmse_is_of_the_calibrated_mean_and_of_the_uncalibrated_one() -> None:
    mixture, y = predicted(), targets()
    received = scores(mixture, y)
    weights, means, _ = components(mixture)
    uncalibrated = (weights * means).sum(1)
    assert received["rmse_y"] == pytest.approx(rmse(1.1 * uncalibrated - 2, y))
    assert received["rmse_y_uncalibrated"] == pytest.approx(rmse(uncalibrated, y))
    plain = dataclasses.replace(mixture, reported_mean=None, mean_before_calibration=None)
    assert scores(plain, y)["rmse_y"] == scores(plain, y)["rmse_y_uncalibrated"] == received["rmse_y_uncalibrated"]


def test_crps_is_in_original_units() -> None:
    mixture, y = predicted(), targets()
    weights, means, scales = components(mixture)
    expected = scoringrules.crps_mixnorm(y, means, scales, weights)
    assert scores(mixture, y)["crps_y"] == pytest.approx(expected.mean(), rel=1e-10)


@pytest.mark.parametrize("coverage", [0.5, 0.9])
def test_coverage_is_the_share_inside_the_interval(coverage: float) -> None:
    mixture, y = predicted(), targets()
    low, high = mixture.interval(coverage).T
    expected = ((y >= low) & (y <= high)).mean()
    assert 0 < expected < 1
    assert interval_coverage(mixture, y, coverage=coverage) == expected
    if coverage == 0.9:
        assert scores(mixture, y)["coverage_90"] == expected


def test_coverage_of_targets_drawn_from_the_mixture_is_its_level() -> None:
    mixture, draws = predicted(), 500
    covered = [interval_coverage(mixture, sample, coverage=0.9) for sample in mixture.sample(draws, 3)]
    assert np.mean(covered) == pytest.approx(0.9, abs=5 * math.sqrt(0.9 * 0.1 / (draws * NUM_ROWS)))


def test_scores_of_a_float32_mixture_are_near_those_of_the_float64_one() -> None:
    single, exact = (scores(predicted(dtype=dtype), targets()) for dtype in (np.float32, np.float64))
    assert single.keys() == exact.keys()
    for name, value in exact.items():
        assert single[name] == pytest.approx(value, rel=1e-5), name


def test_pit_counts_are_where_the_targets_fall() -> None:
    mixture = GaussianMixture.normal(np.zeros(5), 1.0).in_units(10.0, 2.0)
    y = 10 + 2 * scipy.stats.norm.ppf([0.01, 0.02, 0.51, 0.72, 0.999])
    expected = [0] * 20
    for bin, count in ((0, 2), (10, 1), (14, 1), (19, 1)):
        expected[bin] = count
    assert pit_counts(pit(mixture, y)) == expected
