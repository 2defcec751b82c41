"""GaussianMixture against scipy, scoringrules, numerical integration and numerical derivatives."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scoringrules
import torch
from scipy import integrate, stats
from torch import Tensor

from anchormoe.distributions.mixture import GaussianMixture

DTYPES = [torch.float64, torch.float32]


def random_mixture(
    *shape: int, num_components: int = 4, seed: int = 0, dtype: torch.dtype = torch.float64
) -> GaussianMixture:
    generator = torch.Generator().manual_seed(seed)

    def normal() -> Tensor:
        return torch.randn(*shape, num_components, generator=generator, dtype=torch.float64)

    parts = (torch.log_softmax(normal(), dim=-1), 2 * normal(), torch.exp(0.7 * normal()))
    return GaussianMixture(*(part.to(dtype) for part in parts))


def random_values(*shape: int, seed: int = 1, dtype: torch.dtype = torch.float64) -> Tensor:
    return 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def tolerance(dtype: torch.dtype) -> dict[str, float]:
    return {"rtol": 1e-10, "atol": 1e-10} if dtype is torch.float64 else {"rtol": 1e-4, "atol": 1e-5}


def as_numpy(mixture: GaussianMixture) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return mixture.weights.double().numpy(), mixture.means.double().numpy(), mixture.scales.double().numpy()


def assert_near(received: Tensor, expected: np.ndarray, dtype: torch.dtype) -> None:
    assert received.dtype == dtype
    torch.testing.assert_close(received.double(), torch.as_tensor(expected), **tolerance(dtype))


# --- density, moments, distribution function


@pytest.mark.parametrize("dtype", DTYPES)
def test_log_prob_is_the_log_of_the_weighted_normal_densities(dtype: torch.dtype) -> None:
    mixture, y = random_mixture(3, 5, dtype=dtype), random_values(3, 5, dtype=dtype)
    weights, means, scales = as_numpy(mixture)
    density = (weights * stats.norm.pdf(y.double().numpy()[..., None], means, scales)).sum(-1)
    assert_near(mixture.log_prob(y), np.log(density), dtype)


def test_log_prob_far_in_the_tail_is_finite_and_exact() -> None:
    mixture = GaussianMixture(torch.tensor([math.log(0.5)] * 2), torch.tensor([0.0, 1.0]), torch.tensor([0.05, 0.05]))
    expected = math.log(0.5) + stats.norm.logpdf(1000.0, 1.0, 0.05)
    assert mixture.log_prob(torch.tensor(1000.0)).item() == pytest.approx(expected, rel=1e-6)


def test_a_component_of_weight_zero_does_not_count() -> None:
    mixture = GaussianMixture(
        torch.tensor([[0.0, -1e9]]), torch.tensor([[1.0, 50.0]]), torch.tensor([[2.0, 0.1]])
    ).double()
    expected = stats.norm(1.0, 2.0)
    y = torch.tensor([50.0], dtype=torch.float64)
    assert mixture.log_prob(y).item() == pytest.approx(expected.logpdf(50.0))
    assert mixture.mean.item() == pytest.approx(1.0)
    assert mixture.variance.item() == pytest.approx(4.0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_density_integrates_to_one_and_its_moments_are_mean_and_variance(dtype: torch.dtype) -> None:
    mixture = random_mixture(dtype=dtype)

    def moment(power: int, center: float = 0.0) -> float:
        def integrand(y: float) -> float:
            density = math.exp(mixture.log_prob(torch.tensor(y, dtype=dtype)).item())
            return (y - center) ** power * density

        return integrate.quad(integrand, -60, 60, points=mixture.means.tolist(), limit=200, epsabs=1e-6, epsrel=1e-6)[0]

    mean = moment(1)
    assert moment(0) == pytest.approx(1, abs=1e-5)
    assert mixture.mean.item() == pytest.approx(mean, abs=1e-4)
    assert mixture.variance.item() == pytest.approx(moment(2, mean), rel=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_cdf_is_the_weighted_sum_of_normal_cdfs(dtype: torch.dtype) -> None:
    mixture, y = random_mixture(3, 5, dtype=dtype), random_values(3, 5, dtype=dtype)
    weights, means, scales = as_numpy(mixture)
    expected = (weights * stats.norm.cdf(y.double().numpy()[..., None], means, scales)).sum(-1)
    assert_near(mixture.cdf(y), expected, dtype)


def test_one_component_is_a_normal_distribution() -> None:
    normal = stats.norm(1.5, 0.3)
    mixture = GaussianMixture(*(torch.tensor([[value]], dtype=torch.float64).expand(7, 1) for value in (0.0, 1.5, 0.3)))
    y = torch.linspace(0, 3, 7, dtype=torch.float64)
    p = torch.tensor([1e-12, 1e-3, 0.1, 0.5, 0.9, 0.999, 1 - 1e-12], dtype=torch.float64)
    expected = {
        "log_prob": (mixture.log_prob(y), normal.logpdf(y)),
        "cdf": (mixture.cdf(y), normal.cdf(y)),
        "quantile": (mixture.quantile(p), normal.ppf(p)),
        "crps": (mixture.crps(y), scoringrules.crps_normal(y.numpy(), 1.5, 0.3)),
        "mean": (mixture.mean, np.full(7, 1.5)),
        "variance": (mixture.variance, np.full(7, 0.09)),
    }
    for name, (received, value) in expected.items():
        torch.testing.assert_close(received, torch.as_tensor(value), rtol=1e-10, atol=1e-12, msg=name)


# --- quantiles


@pytest.mark.parametrize("p", [1e-12, 1e-6, 0.025, 0.3, 0.5, 0.975, 1 - 1e-6, 1 - 1e-12])
def test_quantile_inverts_the_cdf(p: float) -> None:
    mixture = random_mixture(50)
    cdf = mixture.cdf(mixture.quantile(p))
    tail, expected = (cdf, p) if p < 0.5 else (1 - cdf, 1 - p)
    torch.testing.assert_close(tail, torch.full_like(cdf, expected), rtol=1e-10, atol=1e-15)


def test_quantile_inverts_the_cdf_in_float32() -> None:
    mixture = random_mixture(50, dtype=torch.float32)
    for p in (1e-6, 0.05, 0.5, 0.95, 1 - 1e-6):
        quantile = mixture.quantile(p)
        assert quantile.dtype == torch.float32
        torch.testing.assert_close(mixture.cdf(quantile), torch.full((50,), p), rtol=0, atol=1e-6)


def test_cdf_then_quantile_gives_the_value_back() -> None:
    mixture = random_mixture(50)
    y = mixture.mean + 0.3 * random_values(50)
    torch.testing.assert_close(mixture.quantile(mixture.cdf(y)), y, rtol=1e-7, atol=1e-7)


def test_quantile_between_two_far_components() -> None:
    """Here the cdf is flat between the components: a method that follows its slope gets lost."""
    mixture = GaussianMixture(
        torch.log(torch.tensor([[0.3, 0.7]], dtype=torch.float64)),
        torch.tensor([[-1e4, 1e4]], dtype=torch.float64),
        torch.tensor([[0.05, 1.0]], dtype=torch.float64),
    )
    assert mixture.quantile(0.15).item() == pytest.approx(-1e4, abs=1e-9)
    assert mixture.quantile(0.65).item() == pytest.approx(1e4, abs=1e-9)
    assert mixture.quantile(0.3 + 0.7 * 0.975).item() == pytest.approx(1e4 + stats.norm.ppf(0.975), abs=1e-9)


@pytest.mark.parametrize("p", [0.0, 1.0, -0.1, 1.1, math.nan])
def test_quantile_refuses_what_is_no_probability(p: float) -> None:
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        random_mixture(3).quantile(p)


# --- CRPS


@pytest.mark.parametrize("dtype", DTYPES)
def test_crps_equals_scoringrules(dtype: torch.dtype) -> None:
    mixture, y = random_mixture(40, dtype=dtype), random_values(40, dtype=dtype)
    weights, means, scales = as_numpy(mixture)
    expected = scoringrules.crps_mixnorm(y.double().numpy(), means, scales, weights)
    assert_near(mixture.crps(y), expected, dtype)


def test_crps_is_the_integrated_squared_error_of_the_cdf() -> None:
    mixture = random_mixture(seed=3)
    for y in (-4.0, 0.3, 2.5):

        def squared_error(x: float, y: float = y) -> float:
            return (mixture.cdf(torch.tensor(x, dtype=torch.float64)).item() - (x >= y)) ** 2

        parts = [integrate.quad(squared_error, low, high, limit=200)[0] for low, high in ((-60, y), (y, 60))]
        received = mixture.crps(torch.tensor(y, dtype=torch.float64)).item()
        assert received == pytest.approx(sum(parts), abs=1e-7)


# --- gradients


@pytest.mark.parametrize("score", ["log_prob", "crps"])
def test_gradients_equal_finite_differences(score: str) -> None:
    mixture, y = random_mixture(2, 3, num_components=3), random_values(2, 3)
    inputs = (mixture.log_weights, mixture.means, mixture.scales, y)

    def function(log_weights: Tensor, means: Tensor, scales: Tensor, y: Tensor) -> Tensor:
        return getattr(GaussianMixture(log_weights, means, scales), score)(y)

    assert torch.autograd.gradcheck(function, [value.clone().requires_grad_() for value in inputs])


@pytest.mark.parametrize("score", ["log_prob", "crps"])
def test_float32_gradients_are_near_the_float64_ones(score: str) -> None:
    gradients = []
    for dtype in DTYPES:
        mixture = random_mixture(6, dtype=dtype)
        inputs = [part.requires_grad_() for part in (mixture.log_weights, mixture.means, mixture.scales)]
        getattr(GaussianMixture(*inputs), score)(random_values(6, dtype=dtype)).sum().backward()
        gradients.append([part.grad for part in inputs])
    for exact, single in zip(*gradients, strict=True):
        assert single.dtype == torch.float32
        torch.testing.assert_close(single.double(), exact, rtol=1e-3, atol=1e-4)


# --- sampling and change of units


def test_samples_have_the_mixtures_moments_and_quantiles() -> None:
    mixture, draws = random_mixture(2, 3), 40_000
    samples = mixture.sample(draws, generator=torch.Generator().manual_seed(5))
    assert samples.shape == (draws, 2, 3)
    standard_error = (mixture.variance / draws).sqrt()
    assert ((samples.mean(0) - mixture.mean).abs() < 5 * standard_error).all()
    torch.testing.assert_close(samples.var(0), mixture.variance, rtol=0.05, atol=0)
    for p in (0.1, 0.5, 0.9):
        below = (samples <= mixture.quantile(p)).double().mean(0)
        assert ((below - p).abs() < 5 * math.sqrt(p * (1 - p) / draws)).all()


def test_samples_are_a_function_of_the_generator() -> None:
    mixture = random_mixture(4)
    first, again, other = (mixture.sample(10, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_affine_is_the_distribution_of_the_scaled_and_shifted_variable() -> None:
    mixture, z = random_mixture(20), random_values(20)
    scale, shift = 7.5, -30.0
    moved, y = mixture.affine(scale=scale, shift=shift), scale * z + shift
    torch.testing.assert_close(moved.mean, scale * mixture.mean + shift)
    torch.testing.assert_close(moved.variance, scale**2 * mixture.variance)
    torch.testing.assert_close(moved.log_prob(y), mixture.log_prob(z) - math.log(scale))
    torch.testing.assert_close(moved.cdf(y), mixture.cdf(z))
    torch.testing.assert_close(moved.quantile(0.9), scale * mixture.quantile(0.9) + shift)
    torch.testing.assert_close(moved.crps(y), scale * mixture.crps(z))


def test_double_normalises_the_weights_and_changes_nothing_else() -> None:
    single = random_mixture(8, dtype=torch.float32)
    unnormalised = GaussianMixture(single.log_weights + 1e-4, single.means, single.scales)
    mixture = unnormalised.double()
    torch.testing.assert_close(mixture.weights.sum(-1), torch.ones(8, dtype=torch.float64), rtol=1e-14, atol=0)
    torch.testing.assert_close(mixture.weights, single.weights.double(), rtol=1e-5, atol=0)
    assert torch.equal(mixture.means, single.means.double())
    assert torch.equal(mixture.scales, single.scales.double())
