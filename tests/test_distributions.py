"""Distributions against scipy, scoringrules and numerical integration; other libraries' against our own."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import scoringrules
from scipy import integrate, stats

from anchormoe.distributions.base import Distribution
from anchormoe.distributions.foreign import ForeignDistribution, as_distribution
from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.distributions.student import StudentT

DTYPES = [np.float64, np.float32]


def random_mixture(num_rows: int, num_components: int = 4, *, seed: int = 0, dtype: type = np.float64):
    normal = np.random.default_rng(seed).standard_normal((3, num_rows, num_components))
    weights = np.exp(normal[0]) / np.exp(normal[0]).sum(1, keepdims=True)
    parts = np.log(weights), 2 * normal[1], np.exp(0.7 * normal[2])
    return GaussianMixture(*(part.astype(dtype) for part in parts))


def random_values(num_rows: int, seed: int = 1) -> np.ndarray:
    return 3 * np.random.default_rng(seed).standard_normal(num_rows)


def tolerance(dtype: type) -> dict[str, float]:
    return {"rtol": 1e-10, "atol": 1e-10} if dtype is np.float64 else {"rtol": 1e-4, "atol": 1e-5}


def components(mixture: GaussianMixture) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return weights, means and scales in the target's units, in float64."""
    weights, means, scales = (np.float64(part) for part in (mixture.weights, mixture.means, mixture.scales))
    return weights, means * mixture.scale + mixture.center, scales * mixture.scale


# --- density, moments, distribution function


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("center", "scale"), [(0.0, 1.0), (-30.0, 7.5)])
def test_density_cdf_and_crps_are_those_of_the_weighted_normals(dtype: type, center: float, scale: float) -> None:
    mixture = random_mixture(40, dtype=dtype).in_units(center, scale)
    y = center + scale * random_values(40)
    weights, means, scales = components(mixture)
    density = (weights * stats.norm.pdf(y[:, None], means, scales)).sum(1)
    np.testing.assert_allclose(mixture.log_prob(y), np.log(density), **tolerance(dtype))
    cdf = (weights * stats.norm.cdf(y[:, None], means, scales)).sum(1)
    np.testing.assert_allclose(mixture.cdf(y), cdf, **tolerance(dtype))
    crps = scoringrules.crps_mixnorm(y, means, scales, weights)
    np.testing.assert_allclose(mixture.crps(y), crps, **tolerance(dtype))


def test_log_prob_is_computed_in_the_precision_of_the_components() -> None:
    """The published numbers were computed in float32; float64 would change their last digits."""
    single = random_mixture(5, dtype=np.float32)
    assert single.standard_log_prob(random_values(5)).dtype == np.float32
    assert single.float64().standard_log_prob(random_values(5)).dtype == np.float64


def test_log_prob_far_in_the_tail_is_finite_and_exact() -> None:
    mixture = GaussianMixture(np.full((1, 2), math.log(0.5)), np.array([[0.0, 1.0]]), np.full((1, 2), 0.05))
    expected = math.log(0.5) + stats.norm.logpdf(1000.0, 1.0, 0.05)
    assert mixture.log_prob(1000.0)[0] == pytest.approx(expected, rel=1e-12)


def test_probability_of_an_interval_far_in_the_tail_has_all_its_digits() -> None:
    mixture = GaussianMixture.normal(np.zeros(3), 1.0).in_units(5.0, 2.0)
    low, high = 5.0 + 2.0 * np.array([9.0, -10.0, 0.0]), 5.0 + 2.0 * np.array([10.0, -9.0, np.inf])
    expected = [stats.norm.sf(9) - stats.norm.sf(10), stats.norm.cdf(-9) - stats.norm.cdf(-10), 0.5]
    np.testing.assert_allclose(mixture.prob(low, high), expected, rtol=1e-12)


def test_a_component_of_weight_zero_does_not_count() -> None:
    mixture = GaussianMixture(np.array([[0.0, -1e9]]), np.array([[1.0, 50.0]]), np.array([[2.0, 0.1]]))
    assert mixture.log_prob(50.0)[0] == pytest.approx(stats.norm(1.0, 2.0).logpdf(50.0))
    assert mixture.mean[0] == pytest.approx(1.0)
    assert mixture.std[0] == pytest.approx(2.0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_density_integrates_to_one_and_its_moments_are_mean_and_std(dtype: type) -> None:
    mixture = random_mixture(1, dtype=dtype).in_units(3.0, 2.0)

    def moment(power: int, center: float = 0.0) -> float:
        def integrand(y: float) -> float:
            return (y - center) ** power * math.exp(mixture.log_prob(y)[0])

        points = (mixture.means[0] * 2.0 + 3.0).tolist()
        return integrate.quad(integrand, -120, 120, points=points, limit=200, epsabs=1e-6, epsrel=1e-6)[0]

    mean = moment(1)
    assert moment(0) == pytest.approx(1, abs=1e-5)
    assert mixture.mean[0] == pytest.approx(mean, abs=1e-4)
    assert mixture.std[0] == pytest.approx(math.sqrt(moment(2, mean)), rel=1e-4)


def test_one_component_is_a_normal_distribution() -> None:
    normal, mixture = stats.norm(1.5, 0.3), GaussianMixture.normal(np.full(7, 1.5), 0.3)
    y = np.linspace(0, 3, 7)
    levels = [1e-12, 1e-3, 0.1, 0.5, 0.9, 0.999, 1 - 1e-12]
    np.testing.assert_allclose(mixture.log_prob(y), normal.logpdf(y), rtol=1e-10)
    np.testing.assert_allclose(mixture.cdf(y), normal.cdf(y), rtol=1e-10)
    np.testing.assert_allclose(mixture.quantile(levels)[0], normal.ppf(levels), rtol=1e-9)
    np.testing.assert_allclose(mixture.interval(0.9)[3], normal.interval(0.9), rtol=1e-9)
    np.testing.assert_allclose(mixture.crps(y), scoringrules.crps_normal(y, 1.5, 0.3), rtol=1e-10)


# --- quantiles


@pytest.mark.parametrize("p", [1e-12, 1e-6, 0.025, 0.3, 0.5, 0.975, 1 - 1e-6, 1 - 1e-12])
@pytest.mark.parametrize("dtype", DTYPES)
def test_quantile_inverts_the_cdf(p: float, dtype: type) -> None:
    mixture = random_mixture(50, dtype=dtype).in_units(-2.0, 1.5)
    cdf = mixture.cdf(mixture.quantile(p))
    tail, expected = (cdf, p) if p < 0.5 else (1 - cdf, 1 - p)
    np.testing.assert_allclose(tail, expected, rtol=1e-9, atol=1e-15)


def test_quantile_between_two_far_components() -> None:
    """The cdf is flat between the components, where a method that follows only its slope fails."""
    mixture = GaussianMixture(np.log([[0.3, 0.7]]), np.array([[-1e4, 1e4]]), np.array([[0.05, 1.0]]))
    assert mixture.quantile(0.15)[0] == pytest.approx(-1e4, abs=1e-9)
    assert mixture.quantile(0.65)[0] == pytest.approx(1e4, abs=1e-9)
    assert mixture.quantile(0.3 + 0.7 * 0.975)[0] == pytest.approx(1e4 + stats.norm.ppf(0.975), abs=1e-9)


@pytest.mark.parametrize("p", [0.0, 1.0, -0.1, 1.1, math.nan, [], [0.5, 2.0]])
def test_what_is_no_probability_is_refused(p: float) -> None:
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        random_mixture(3).quantile(p)


@pytest.mark.parametrize("coverage", [0.0, 1.0, 90])
def test_a_coverage_that_is_none_is_refused(coverage: float) -> None:
    with pytest.raises(ValueError, match="coverage must lie strictly between 0 and 1"):
        random_mixture(3).interval(coverage)


def test_values_of_the_wrong_length_are_refused() -> None:
    with pytest.raises(ValueError, match=r"y must be one number or 3 of them, received shape \(4,\)"):
        random_mixture(3).log_prob(np.zeros(4))


# --- CRPS, samples, averages


def test_crps_is_the_integrated_squared_error_of_the_cdf() -> None:
    mixture = random_mixture(1, seed=3)
    for y in (-4.0, 0.3, 2.5):

        def squared_error(x: float, y: float = y) -> float:
            return (mixture.cdf(x)[0] - (x >= y)) ** 2

        parts = [integrate.quad(squared_error, low, high, limit=200)[0] for low, high in ((-60, y), (y, 60))]
        assert mixture.crps(y)[0] == pytest.approx(sum(parts), abs=1e-7)


def test_crps_does_not_depend_on_the_blocks_it_is_computed_in(monkeypatch: pytest.MonkeyPatch) -> None:
    mixture, y = random_mixture(50), random_values(50)
    at_once = mixture.crps(y)
    monkeypatch.setattr("anchormoe.distributions.mixture._BLOCK_ELEMENTS", 100)
    assert np.array_equal(random_mixture(50).crps(y), at_once)


def test_samples_have_the_mixtures_moments_and_quantiles() -> None:
    mixture, draws = random_mixture(6).in_units(-4.0, 3.0), 40_000
    samples = mixture.sample(draws, np.random.default_rng(5))
    assert samples.shape == (draws, 6)
    assert (np.abs(samples.mean(0) - mixture.mean) < 5 * mixture.std / math.sqrt(draws)).all()
    np.testing.assert_allclose(samples.std(0), mixture.std, rtol=0.03)
    for p in (0.1, 0.5, 0.9):
        below = (samples <= mixture.quantile(p)).mean(0)
        assert (np.abs(below - p) < 5 * math.sqrt(p * (1 - p) / draws)).all()


def test_samples_are_a_function_of_the_seed() -> None:
    mixture = random_mixture(4)
    first, again, other = (mixture.sample(10, seed) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_an_average_of_densities_is_their_weighted_mean() -> None:
    parts, y = [random_mixture(20, seed=seed) for seed in (1, 2)], random_values(20)
    density = 0.25 * np.exp(parts[0].log_prob(y)) + 0.75 * np.exp(parts[1].log_prob(y))
    np.testing.assert_allclose(GaussianMixture.average(parts, [0.25, 0.75]).log_prob(y), np.log(density))


def test_affine_is_the_distribution_of_the_scaled_and_shifted_variable() -> None:
    mixture, z = random_mixture(20), random_values(20)
    moved, declared = mixture.affine(scale=7.5, shift=-30.0), mixture.in_units(-30.0, 7.5)
    y = 7.5 * z - 30
    for name in ("log_prob", "cdf", "crps"):
        np.testing.assert_allclose(getattr(moved, name)(y), getattr(declared, name)(y), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(moved.quantile(0.9), declared.quantile(0.9))
    np.testing.assert_allclose(moved.mean, declared.mean)
    np.testing.assert_allclose(moved.std, declared.std)


def test_float64_normalises_the_weights_and_changes_nothing_else() -> None:
    single = random_mixture(8, dtype=np.float32)
    mixture = GaussianMixture(single.log_weights + np.float32(1e-4), single.means, single.scales).float64()
    np.testing.assert_allclose(mixture.weights.sum(1), 1, rtol=1e-14)
    np.testing.assert_allclose(mixture.weights, single.weights, rtol=1e-5)
    assert np.array_equal(mixture.means, np.float64(single.means))
    assert np.array_equal(mixture.scales, np.float64(single.scales))


# --- other libraries' distributions


@pytest.mark.parametrize("library", ["scipy", "torch", "ngboost", "skpro"])
def test_a_foreign_distribution_answers_as_ours_does(library: str) -> None:
    mean, scale = np.array([0.0, 1.0, -2.0]), np.array([1.0, 0.5, 3.0])
    foreign = {"scipy": _scipy_normal, "torch": _torch_normal, "ngboost": _ngboost_normal, "skpro": _skpro_normal}
    received = ForeignDistribution(foreign[library](mean, scale), 3, center=2.0, scale=10.0)
    expected = GaussianMixture.normal(mean, scale).in_units(2.0, 10.0)
    y = np.array([3.0, 16.0, -88.0])
    np.testing.assert_allclose(received.mean, expected.mean)
    np.testing.assert_allclose(received.log_prob(y), expected.log_prob(y))
    np.testing.assert_allclose(received.cdf(y), expected.cdf(y))
    np.testing.assert_allclose(received.prob(y - 1, y), expected.prob(y - 1, y), atol=1e-12)
    np.testing.assert_allclose(received.quantile([0.3, 0.8]), expected.quantile([0.3, 0.8]))
    np.testing.assert_allclose(received.crps(y), expected.crps(y), rtol=1e-3)
    np.testing.assert_allclose(received.std, expected.std, rtol=0.01)
    draws = received.sample(300, 0)
    assert draws.shape == (300, 3)
    assert (np.abs(draws.mean(0) - expected.mean) < 5 * expected.std / math.sqrt(300)).all()


def _scipy_normal(mean: np.ndarray, scale: np.ndarray) -> object:
    return stats.norm(mean, scale)


def _torch_normal(mean: np.ndarray, scale: np.ndarray) -> object:
    import torch

    return torch.distributions.Normal(torch.as_tensor(mean), torch.as_tensor(scale))


def _ngboost_normal(mean: np.ndarray, scale: np.ndarray) -> object:
    return pytest.importorskip("ngboost.distns").Normal(np.stack([mean, np.log(scale)]))


def _skpro_normal(mean: np.ndarray, scale: np.ndarray) -> object:
    return pytest.importorskip("skpro.distributions").Normal(mu=mean[:, None], sigma=scale[:, None])


def test_our_own_distributions_are_taken_as_they_are() -> None:
    mixture = random_mixture(3)
    assert as_distribution(mixture, 3) is mixture
    assert isinstance(as_distribution(stats.norm(np.zeros(3)), 3), Distribution)


# --- Student's t


@pytest.mark.parametrize("degrees", [2.1, 4.0, 30.0])
def test_student_t_is_the_one_of_scipy_and_its_crps_that_of_scoringrules(degrees: float) -> None:
    location, width = np.array([0.5, -1.0, 2.0]), np.array([1.0, 0.2, 3.0])
    mine = dataclasses.replace(StudentT(location, width, degrees), center=10.0, scale=2.0)
    theirs = stats.t(degrees, 10 + 2 * location, 2 * width)
    y = np.array([9.0, 8.3, 40.0])
    np.testing.assert_allclose(mine.mean, theirs.mean())
    np.testing.assert_allclose(mine.std, theirs.std())
    np.testing.assert_allclose(mine.log_prob(y), theirs.logpdf(y), rtol=1e-10)
    np.testing.assert_allclose(mine.cdf(y), theirs.cdf(y), rtol=1e-10)
    np.testing.assert_allclose(mine.quantile([0.01, 0.5, 0.9])[:, 2], theirs.ppf(0.9), rtol=1e-10)
    expected = scoringrules.crps_t(y, degrees, 10 + 2 * location, 2 * width)
    np.testing.assert_allclose(mine.crps(y), expected, rtol=1e-9)


@pytest.mark.parametrize("deviations", [-40.0, 0.3, 40.0])
def test_cells_of_student_t_keep_their_digits(deviations: float) -> None:
    mine = StudentT(np.array([0.0]), np.array([1.0]), 5.0)
    for width in (0.1, 2.0):
        expected = integrate.quad(stats.t(5).pdf, deviations - width / 2, deviations + width / 2, epsabs=0)[0] / width
        assert mine.log_cell(deviations, width)[0] == pytest.approx(math.log(expected), rel=1e-8)
    assert mine.log_cell(deviations, 1e-9)[0] == pytest.approx(stats.t(5).logpdf(deviations), rel=1e-10)
