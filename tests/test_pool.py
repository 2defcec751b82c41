"""Densities of several members are as wide as the errors of their common mean."""

from __future__ import annotations

import numpy as np
import pytest

from anchormoe import AnchorMoERegressor
from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.model.pool import LEAST_SHARE, Spread, likeliest_factor, pooled, scaled
from anchormoe.model.settings import CrossfitSettings

QUICK = {"anchor": "ridge", "hidden_dim": 8, "training": {"epochs": 3, "min_steps": 0}, "random_state": 0}


def members(count: int, common: float, own: float, num_rows: int = 20_000) -> tuple[list[GaussianMixture], np.ndarray]:
    """Return densities whose errors have a part in common and one of their own, each as wide as its own errors."""
    rng = np.random.default_rng(0)
    y = rng.normal(0, common, num_rows)
    width = float(np.hypot(common, own))
    return [GaussianMixture.normal(rng.normal(0, own, num_rows), width) for _ in range(count)], y


@pytest.mark.parametrize("factor", [0.2, 1.0, 4.0])
def test_the_likeliest_factor_is_the_ratio_of_the_variances(factor: float) -> None:
    rng = np.random.default_rng(1)
    y = np.sqrt(factor) * rng.standard_normal(20_000)
    densities = GaussianMixture.normal(np.zeros(20_000), 1.0)
    assert likeliest_factor(densities, y) == pytest.approx(factor, rel=0.05)
    half = (np.arange(20_000) < 10_000).astype(float)
    y[10_000:] *= 3  # rows without weight
    assert likeliest_factor(densities, y, half) == pytest.approx(factor, rel=0.05)


def test_a_few_odd_rows_do_not_widen_all_densities() -> None:
    y = np.random.default_rng(1).standard_normal(5000)
    y[:3] = 40.0
    assert likeliest_factor(GaussianMixture.normal(np.zeros(5000), 1.0), y) == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize("own", [0.0, 0.5, 2.0])
def test_two_cuts_into_folds_say_how_wide_many_members_together_should_be(own: float) -> None:
    """Members whose errors have variance 1 in common and `own` squared besides err by 1 + own^2 / m together."""
    parts, y = members(2, 1.0, own)
    spread = Spread.measured(parts, y, None, num_members=16)
    assert spread.is_measured
    expected = [(1 + own**2 / count) / (1 + own**2) for count in (2, 16)]
    assert [spread.held_out, spread.of_all] == pytest.approx(expected, rel=0.06)
    many, y = members(16, 1.0, own)
    together = pooled(many, spread.of_all)
    errors = y - together.mean
    assert together.variance.mean() == pytest.approx(errors.var(), rel=0.06)


def test_the_spread_never_falls_below_a_share_of_what_was_measured() -> None:
    parts, y = members(2, 0.01, 1.0)
    spread = Spread.measured(parts, y, None, num_members=20)
    assert spread.of_all >= LEAST_SHARE * spread.held_out * 0.999


def test_one_cut_into_folds_leaves_densities_as_they_are() -> None:
    parts, y = members(1, 1.0, 0.5, num_rows=50)
    assert Spread.measured(parts, y, None, 10) == Spread()


def test_a_factor_keeps_means_and_scales_the_variance_of_mixtures() -> None:
    mixture = GaussianMixture.average(
        [GaussianMixture.normal(np.array([0.0]), 1.0), GaussianMixture.normal(np.array([3.0]), 2.0)]
    )
    wider = scaled(mixture, 1.5)
    np.testing.assert_allclose(wider.mean, mixture.mean)
    np.testing.assert_allclose(wider.variance, 2.25 * mixture.variance)


def test_every_row_is_held_out_once_for_every_repetition() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (80, 2))
    y = X[:, 0] + 0.2 * rng.standard_normal(80)
    settings = [
        CrossfitSettings(folds=4, repetitions=1),
        CrossfitSettings(folds=4, repetitions=2),
        CrossfitSettings(folds_when_large=4, repetitions=1, repetitions_when_large=2, large_rows=79),
    ]
    once, twice, large = (AnchorMoERegressor(folds=one, **QUICK).fit(X, y) for one in settings)
    assert [len(model.fitted_.members) for model in (once, twice, large)] == [4, 8, 8]
    # The first repetition is the fit without others, so that more of them only add members.
    first = [member.predict(X).mean for member in once.fitted_.members]
    np.testing.assert_array_equal([member.predict(X).mean for member in twice.fitted_.members[:4]], first)
    assert not once.fitted_.spread.is_measured
    assert twice.fitted_.spread.is_measured
    assert twice.fitted_.held_out.densities.means.shape[1] == 2 * once.fitted_.held_out.densities.means.shape[1] - 1
