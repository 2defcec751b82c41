"""The score at the data's resolution against direct integration, and the step in which a target is recorded."""

from __future__ import annotations

import math
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
import torch
from scipy import stats

from anchormoe.data.resolution import recording_step, repeated_share
from anchormoe.distributions.base import Distribution
from anchormoe.distributions.foreign import ForeignDistribution
from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.distributions.scores import nll_cell_y, nll_y, pit, pit_counts

CENTER, SCALE = 22.5, 9.2


def integrated(weights: list[float], means: list[float], scales: list[float], y: float, width: float) -> float:
    """Integrate the density of a Gaussian mixture over the cell around y with 20 digits, and return log [... / width].

    The cell is cut into pieces over which the density of a component falls by less than e^20.
    """
    with mpmath.workdps(20):
        low, high = mpmath.mpf(y) - mpmath.mpf(width) / 2, mpmath.mpf(y) + mpmath.mpf(width) / 2
        cuts = [m + k * s / 2 for m, s in zip(means, scales, strict=True) for k in range(-100, 101)]
        points = [low, *sorted(mpmath.mpf(cut) for cut in cuts if low < cut < high), high]

        def density(value: mpmath.mpf) -> mpmath.mpf:
            parts = zip(weights, means, scales, strict=True)
            return sum(mpmath.mpf(w) * mpmath.npdf(value, m, s) for w, m, s in parts)

        return float(mpmath.log(mpmath.quad(density, points) / mpmath.mpf(width)))


@pytest.mark.parametrize("width", [1e-9, 1e-4, 0.03, 0.1, 1.0, 4.0])
@pytest.mark.parametrize("deviations", [-40.0, -7.3, -0.4, 0.0, 1.0, 12.0, 40.0])
def test_a_cell_of_a_mixture_is_the_integral_of_its_density(width: float, deviations: float) -> None:
    weights, means, scales = [0.3, 0.7], [-0.5, 0.25], [0.125, 1.0]
    mixture = GaussianMixture(*(np.array([part]) for part in (np.log(weights), means, scales)))
    received = mixture.log_cell(deviations, width)[0]
    assert received == pytest.approx(integrated(weights, means, scales, deviations, width), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("ratio", [0.9, 0.999, 1.001, 1.1])
@pytest.mark.parametrize("deviations", [0.0, 0.5, 3.0, 40.0])
def test_no_digits_are_lost_where_the_computation_changes(ratio: float, deviations: float) -> None:
    width = ratio * 0.02 / max(1.0, deviations)
    received = GaussianMixture.normal(np.array([0.0]), 1.0).log_cell(deviations, width)[0]
    assert received == pytest.approx(integrated([1.0], [0.0], [1.0], deviations, width), rel=1e-12, abs=1e-12)


def test_the_cell_is_in_the_units_of_the_target_and_of_a_density() -> None:
    mixture = GaussianMixture.normal(np.array([0.5, -1.0]), 0.7).in_units(CENTER, SCALE)
    y, normal = np.array([20.0, 31.5]), stats.norm(CENTER + SCALE * np.array([0.5, -1.0]), 0.7 * SCALE)
    expected = np.log((normal.cdf(y + 0.25) - normal.cdf(y - 0.25)) / 0.5)
    np.testing.assert_allclose(mixture.log_cell(y, 0.5), expected, rtol=1e-12)
    assert nll_cell_y(mixture, y, 0.5) == pytest.approx(-expected.mean())
    np.testing.assert_array_equal(mixture.log_cell(y, 0.0), mixture.log_prob(y))
    assert nll_cell_y(mixture, y, 1e-7) == pytest.approx(nll_y(mixture, y), rel=1e-12)


def test_a_spike_gains_nothing_beyond_the_probability_of_the_recorded_value() -> None:
    y, step = np.full(4, 6.0), 1.0
    for scale in (1e-2, 1e-6, 1e-12):
        spike = GaussianMixture.normal(y, scale)
        assert nll_cell_y(spike, y, step) == pytest.approx(math.log(step), abs=1e-12)
        assert nll_y(spike, y) < -3
    assert nll_cell_y(GaussianMixture.normal(y, 1e-6), y, 0.001) == pytest.approx(math.log(0.001))


FOREIGN = {
    "scipy, tails in log space": lambda mean, scale: stats.norm(mean, scale),
    "torch, no tails": lambda mean, scale: torch.distributions.Normal(torch.as_tensor(mean), torch.as_tensor(scale)),
    "scipy, the density alone in the tails": lambda mean, scale: SimpleNamespace(
        **{name: getattr(stats.norm(mean, scale), name) for name in ("mean", "logpdf", "cdf", "ppf")}
    ),
}


@pytest.mark.parametrize("library", FOREIGN)
@pytest.mark.parametrize("width", [1e-9, 0.01, 0.5, 3.0])
def test_a_foreign_distribution_keeps_its_digits_too(library: str, width: float) -> None:
    mean, scale = np.array([0.0, 1.0, -2.0, 0.3, 0.0]), np.array([1.0, 0.5, 2.0, 0.1, 1.0])
    y = mean + np.array([-40.0, 40.0, 8.0, 0.0, -1.5]) * scale
    foreign: Distribution = ForeignDistribution(FOREIGN[library](mean, scale), 5)
    np.testing.assert_allclose(
        foreign.log_cell(y, width), GaussianMixture.normal(mean, scale).log_cell(y, width), rtol=1e-7, atol=1e-7
    )


# --- the step


@pytest.mark.parametrize(
    ("values", "step"),
    [
        ([5, 6, 8, 3], 1.0),
        ([0.95, 0.951, 1.0], 0.001),
        ([24.0, 21.6, 34.7], 0.1),
        ([100, 250, 300], 50.0),
        ([0.99, 4.99, 2.99], 2.0),
        ([0.25, 1.0, 1.75], 0.75),
        ([1e-9, 3e-9, 4e-9], 1e-9),
        ([1 / 3, 2 / 3, 0.5], 0.0),
        ([7.0, 7.0, 7.0], 0.0),
        ([1e300, 2.0], 0.0),
    ],
)
def test_the_step_is_what_all_recorded_values_are_multiples_of(values: list[float], step: float) -> None:
    assert recording_step(np.array(values, dtype=float)) == pytest.approx(step, rel=1e-12)


def test_a_continuous_target_has_no_step() -> None:
    assert recording_step(np.random.default_rng(0).standard_normal(500)) == 0.0


def test_the_share_of_repeated_values_counts_every_row_that_has_a_twin() -> None:
    assert repeated_share(np.array([1.0, 1.0, 2.0, 3.0, 3.0])) == pytest.approx(0.8)


# --- the randomised PIT


def test_pit_of_rounded_targets_is_uniform_only_if_their_cells_are_known() -> None:
    """The predicted distributions are the true ones; taken as exact, the few recorded values fill some bins only."""
    rng = np.random.default_rng(5)
    mean = rng.normal(size=4000)
    mixture = GaussianMixture.normal(mean, 0.2)
    y = np.round(mean + 0.2 * rng.standard_normal(4000))
    assert stats.chisquare(pit_counts(pit(mixture, y, 1.0))).pvalue > 0.01
    assert stats.chisquare(pit_counts(pit(mixture, y))).pvalue < 1e-6
    low, high = mixture.cdf(y - 0.5), mixture.cdf(y + 0.5)
    received = pit(mixture, y, 1.0)
    assert ((received >= low) & (received <= high)).all()
    np.testing.assert_array_equal(received, pit(mixture, y, 1.0))
    np.testing.assert_array_equal(pit(mixture, y), mixture.cdf(y))
