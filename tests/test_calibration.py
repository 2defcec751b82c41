"""Calibrated distributions are whole distributions, and conformal intervals cover what they promise."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scoringrules
from mapie.conformity_scores import AbsoluteConformityScore
from mapie.regression import SplitConformalRegressor
from rich.console import Console
from scipy import integrate, stats
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GroupKFold, TimeSeriesSplit
from sklearn.utils.estimator_checks import parametrize_with_checks

from anchormoe import AnchorMoERegressor, Calibrated
from anchormoe.config.compose import jobs
from anchormoe.distributions.base import Distribution
from anchormoe.distributions.intervals import interval_scores, worst_slab_coverage
from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.distributions.monotone import MonotoneMap
from anchormoe.distributions.recalibrated import MedianDistribution, Recalibrated
from anchormoe.errors import UserError
from anchormoe.methods.mapie_intervals import MapieIntervals, TabulatedDistribution
from anchormoe.model import conformal
from anchormoe.model.calibration import fit_pit_map
from anchormoe.model.conformal import fit_conformal_map
from anchormoe.model.crossfit import narrowed, pooled
from anchormoe.model.settings import AnchorKind, AnchorSettings, CrossfitSettings, TrainingSettings
from anchormoe.model.training_rows import folds_of
from anchormoe.report import calibration as calibration_tables
from anchormoe.running.evaluate import evaluate
from anchormoe.running.identity import row_identity
from anchormoe.running.rerun import rerun_command
from anchormoe.running.tasks import make_task

LEVELS = (0.5, 0.8, 0.9)
QUICK: dict[str, Any] = {"anchor": "ridge", "folds": 3, "hidden_dim": 8, "training": {"epochs": 3}, "random_state": 0}


def some_map() -> MonotoneMap:
    return MonotoneMap(np.array([0.05, 0.3, 0.6, 0.9]), np.array([0.1, 0.25, 0.7, 0.85]))


def mixture(seed: int = 0) -> GaussianMixture:
    normal = np.random.default_rng(seed).standard_normal((3, 1, 3))
    log_weights = np.log(np.exp(normal[0]) / np.exp(normal[0]).sum())
    return GaussianMixture(log_weights, 2 * normal[1], np.exp(0.5 * normal[2])).in_units(3.0, 2.0)


# --- maps


def test_a_map_has_the_derivative_it_says_and_an_inverse() -> None:
    fitted, u, step = some_map(), np.linspace(0.001, 0.999, 500), 1e-6
    slope = (fitted(u + step) - fitted(u - step)) / (2 * step)
    np.testing.assert_allclose(np.exp(fitted.log_derivative(u)), slope, rtol=1e-3)
    np.testing.assert_allclose(fitted.inverse(fitted(u)), u, atol=1e-12)
    np.testing.assert_allclose(fitted(fitted.knots), fitted.values, atol=1e-15)
    assert (fitted(np.array([0.0, 1.0])) == [0, 1]).all()


def test_a_map_that_does_not_increase_is_refused() -> None:
    with pytest.raises(ValueError, match="knots must increase strictly"):
        MonotoneMap(np.array([0.5, 0.5]), np.array([0.2, 0.4]))


def test_pit_map_flattens_what_is_not_flat_and_leaves_alone_what_is() -> None:
    rng = np.random.default_rng(0)
    skewed = fit_pit_map(rng.beta(0.6, 0.9, 2000)).map
    new = rng.beta(0.6, 0.9, 20_000)
    # The ideal map has the log-derivative log beta(u), whose mean is the distance from flat.
    ideal = stats.beta(0.6, 0.9).logpdf(new).mean()
    assert skewed.log_derivative(new).mean() > 0.8 * ideal
    assert stats.kstest(skewed(new[:2000]), "uniform").statistic < 0.05
    flat = fit_pit_map(rng.random(2000)).map
    assert abs(flat.log_derivative(rng.random(20_000)).mean()) < 0.01


def test_pit_map_counts_a_row_of_weight_two_as_two_rows() -> None:
    pit = np.random.default_rng(1).beta(2, 1, 300)
    weight = np.where(np.arange(300) % 2 == 0, 2.0, 1.0)
    levels = np.linspace(0.05, 0.95, 19)
    weighted = fit_pit_map(pit, weight).map(levels)
    repeated = fit_pit_map(np.repeat(pit, weight.astype(int))).map(levels)
    np.testing.assert_allclose(weighted, repeated, atol=0.05)


# --- one distribution: everything against numerical integration of the density


def recalibrated() -> Recalibrated:
    return Recalibrated.of(mixture(), some_map())


def median() -> MedianDistribution:
    parts = [Recalibrated.of(mixture(seed), some_map()) for seed in range(3)]
    return MedianDistribution(tuple(parts), None, parts[0].center, parts[0].scale)


def tabulated() -> TabulatedDistribution:
    return TabulatedDistribution(np.array([0.05, 0.3, 0.7, 0.95]), np.array([[-3.0, 0.5, 1.0, 6.0]]))


# Densities of the last two jump, and an integral over a jump errs by about its height times the step of the grid.
@pytest.mark.parametrize(("make", "error"), [(recalibrated, 1e-5), (median, 5e-4), (tabulated, 5e-4)])
def test_mean_std_cdf_quantile_crps_and_samples_are_those_of_the_density(make: Any, error: float) -> None:
    predicted: Distribution = make()
    y = np.concatenate([np.linspace(-40, -10, 3001)[:-1], np.linspace(-10, 16, 40_001), np.linspace(16, 50, 3001)[1:]])
    row = np.array([np.exp(predicted.log_prob(value)[0]) for value in y[::600]])
    # The density is evaluated on a fine grid in one call of a distribution of as many equal rows.
    density = np.exp(many(predicted, len(y)).log_prob(y))
    np.testing.assert_allclose(density[::600], row, rtol=1e-12)
    cdf = integrate.cumulative_simpson(density, x=y, initial=0)
    mean = integrate.simpson(y * density, x=y)
    assert cdf[-1] == pytest.approx(1, abs=error)
    assert predicted.mean[0] == pytest.approx(mean, abs=2e-3)
    assert predicted.std[0] == pytest.approx(math.sqrt(integrate.simpson((y - mean) ** 2 * density, x=y)), rel=2e-3)
    for value in (-2.0, 1.5, 7.0):
        assert predicted.cdf(value)[0] == pytest.approx(np.interp(value, y, cdf), abs=error)
        crps = integrate.simpson((cdf - (y >= value)) ** 2, x=y)
        assert predicted.crps(value)[0] == pytest.approx(crps, rel=5e-3)
    assert predicted.prob(-1.0, 4.0)[0] == pytest.approx(predicted.cdf(4.0)[0] - predicted.cdf(-1.0)[0], abs=1e-12)
    for level in (0.05, 0.31, 0.5, 0.9):
        assert predicted.cdf(predicted.quantile(level))[0] == pytest.approx(level, abs=1e-9)
    np.testing.assert_allclose(predicted.interval(0.9)[0], predicted.quantile([0.05, 0.95])[0])
    samples = predicted.sample(1000, 0)[:, 0]
    assert stats.kstest(samples, lambda x: np.interp(x, y, cdf)).pvalue > 1e-3
    assert predicted.crps(1.5)[0] == pytest.approx(scoringrules.crps_ensemble(1.5, samples), rel=0.1)


def many(predicted: Distribution, number: int) -> Distribution:
    """Repeat the distribution of the one row."""
    index = np.zeros(number, dtype=int)
    if isinstance(predicted, MedianDistribution):
        parts = tuple(part.rows(index) for part in predicted.parts)  # type: ignore[attr-defined]
        return MedianDistribution(parts, None, predicted.center, predicted.scale)
    if isinstance(predicted, TabulatedDistribution):
        return TabulatedDistribution(predicted.levels, predicted.quantiles[index])
    return predicted.rows(index)  # type: ignore[attr-defined]


def test_the_identity_leaves_a_mixture_as_it_is() -> None:
    base, same = mixture(), Recalibrated.of(mixture(), MonotoneMap.identity())
    for name in ("mean", "std"):
        np.testing.assert_allclose(getattr(same, name), getattr(base, name), rtol=1e-3)
    np.testing.assert_allclose(same.crps(1.0), base.crps(1.0), rtol=1e-3)
    np.testing.assert_allclose(same.log_prob(1.0), base.log_prob(1.0), rtol=1e-12)


# --- the guarantee


def places(values: np.ndarray) -> np.ndarray:
    """Map every value by the map that is fitted to all the others.

    For exchangeable values, the share of these in an interval is what the coverage of a new value is the mean of.
    """
    return np.array([fit_conformal_map(np.delete(values, k)).map(values[k : k + 1])[0] for k in range(len(values))])


def covered(placed: np.ndarray, level: float) -> float:
    return float((np.abs(placed - 0.5) <= level / 2 + 1e-12).mean())


def random_values(seed: int) -> np.ndarray:
    """Draw values from distributions far from flat: at the ends, in the middle, in two clusters, evenly spaced."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(20, 90))
    draws = (
        rng.beta(0.3, 0.3, size),
        rng.beta(30, 50, size),
        np.where(rng.random(size) < 0.5, rng.normal(0.2, 0.001, size), rng.normal(0.7, 0.01, size)),
        (np.arange(size) + rng.uniform(0.4, 0.6, size)) / size,
    )
    return draws[seed % 4]


@pytest.mark.parametrize("seed", range(12))
def test_conformal_intervals_cover_at_every_level_whatever_the_values(seed: int) -> None:
    values = random_values(seed)
    placed = places(values)
    for level in (*np.arange(0.2, 0.9, 0.05), 1 - 2 / len(values)):
        assert covered(placed, level) >= level - 1e-9


def test_without_the_correction_they_cover_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    values = (np.arange(27) + 0.5) / 27
    assert covered(places(values), 0.8) >= 0.8
    monkeypatch.setattr(conformal, "CORRECTION", 0)
    assert covered(places(values), 0.8) < 0.8


def test_values_that_are_equal_are_no_trouble() -> None:
    for values in (np.full(50, 0.3), np.round(np.random.default_rng(0).random(200), 1), np.zeros(9), np.ones(3)):
        fitted = fit_conformal_map(values).map
        assert (np.diff(fitted(np.linspace(0, 1, 50))) > 0).all()


def test_calibrated_covers_new_rows_of_random_data() -> None:
    rng = np.random.default_rng(0)
    shares: list[list[float]] = []
    for _ in range(40):
        X = rng.standard_normal((300, 3))
        y = X[:, 0] + np.exp(X[:, 1]) * (rng.standard_exponential(300) - 1)  # skewed, of unequal spread
        predicted = Calibrated(LinearRegression(), "conformal").fit(X[:100], y[:100]).predict_dist(X[100:])
        cdf = predicted.cdf(y[100:])
        shares.append([float((np.abs(cdf - 0.5) <= level / 2).mean()) for level in LEVELS])
    mean, error = np.mean(shares, axis=0), np.std(shares, axis=0) / math.sqrt(len(shares))
    assert (mean >= np.array(LEVELS) - 2 * error).all()
    assert (mean >= 1 - 2 * (1 - np.array(LEVELS))).all()  # the guarantee


def test_intervals_are_those_of_mapie_but_for_a_few_rows() -> None:
    """MAPIE's asymmetric split-conformal intervals around the same regression, from the same rows."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((3000, 2))
    y = X[:, 0] + rng.gamma(2.0, 1.0, 3000)
    fitted = LinearRegression().fit(X[:1000], y[:1000])
    score = AbsoluteConformityScore(sym=False)
    mapie = SplitConformalRegressor(fitted, [0.8, 0.9, 0.95], score, prefit=True).conformalize(X[1000:], y[1000:])
    base = GaussianMixture.normal(fitted.predict(X[1000:]), 3.0)
    ours = fit_conformal_map(base.cdf(y[1000:]))(GaussianMixture.normal(fitted.predict(X[:50]), 3.0))
    _, theirs = mapie.predict_interval(X[:50])
    for number, level in enumerate((0.8, 0.9, 0.95)):
        low, high = ours.interval(level).T
        assert (low <= theirs[:, 0, number] + 1e-6).all()
        assert (high >= theirs[:, 1, number] - 1e-6).all()
        assert ((high - low) <= 1.05 * (theirs[:, 1, number] - theirs[:, 0, number])).all()


def test_a_level_that_the_rows_do_not_support_is_refused_with_the_number_needed() -> None:
    X, y = numbers(100)
    model = Calibrated(LinearRegression(), "conformal").fit(X, y)
    with pytest.raises(ValueError, match=r"coverage 0.95.*needs at least 39 calibration rows.*received 20.*is 0.9048"):
        model.predict_interval(X, coverage=0.95)
    model.predict_interval(X, coverage=0.9)
    assert np.isfinite(model.predict_dist(X).crps(y)).all()


# --- the regressor


def numbers(num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((num_rows, 3))
    return X, X[:, 0] + 0.3 * rng.standard_normal(num_rows)


@pytest.mark.parametrize("calibration", ["pit", "conformal"])
@pytest.mark.parametrize("recipe", ["crossfit", "paper"])
def test_a_calibrated_regressor_is_saved_and_loaded(recipe: str, calibration: str, tmp_path: Path) -> None:
    X, y = numbers(400)
    settings = {name: value for name, value in QUICK.items() if recipe == "crossfit" or name != "folds"}
    model = AnchorMoERegressor(recipe, calibration=calibration, **settings).fit(X[:300], y[:300])
    predicted = model.predict_dist(X[300:])
    assert isinstance(predicted, Recalibrated)
    assert model.predict(X[300:]) == pytest.approx(predicted.mean)
    model.save(tmp_path / "model")
    loaded = AnchorMoERegressor.load(tmp_path / "model")
    assert np.array_equal(loaded.predict_interval(X[300:], 0.8), model.predict_interval(X[300:], 0.8))
    assert np.array_equal(loaded.unlikeness(X[300:]), model.unlikeness(X[300:]))
    held_out = model.fitted_.held_out.scores["coverage_90"]
    assert held_out >= 0.88
    rows = 300 if recipe == "crossfit" else 38
    assert predicted.guaranteed_rows == (rows if calibration == "conformal" else None)


def test_conformal_refuses_weights_and_pit_takes_them() -> None:
    X, y = numbers(60)
    weight = np.where(X[:, 1] > 0, 1.0, 3.0)
    with pytest.raises(ValueError, match="rows that count alike"):
        AnchorMoERegressor(calibration="conformal", **QUICK).fit(X, y, weight)
    AnchorMoERegressor(calibration="pit", **QUICK).fit(X, y, weight)


def test_the_linear_map_is_kept_only_where_held_out_rows_gain() -> None:
    """Few large targets pull the weighted line; the map of the distribution leaves the line out then."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 2))
    y = np.exp(2 * rng.standard_normal(300))  # unrelated to X: the mean is all there is to learn
    weighted, pit = (AnchorMoERegressor(calibration=name, **QUICK).fit(X, y) for name in ("weighted", "pit"))
    assert weighted.fitted_.linear_map is not None
    kept = pit.fitted_.linear_map
    assert pit.fitted_.held_out.scores["crps"] <= weighted.fitted_.held_out.scores["crps"]
    assert kept is None or kept == weighted.fitted_.linear_map


def test_pooled_densities_are_narrowed_by_the_members_disagreement() -> None:
    parts = [GaussianMixture.normal(np.array([0.0, 1.0]), 1.0), GaussianMixture.normal(np.array([0.0, 3.0]), 1.0)]
    mixed = narrowed(pooled(parts), parts)
    np.testing.assert_allclose(mixed.mean, [0, 2])
    np.testing.assert_allclose(mixed.variance, [1, 1 / 2])  # members at 1 and 3 disagree by 1 about their mean


def test_rows_unlike_the_training_rows_are_found_and_warned_of() -> None:
    X, y = numbers(600)
    model = AnchorMoERegressor(**QUICK).fit(X[:400], y[:400])
    like, unlike = model.unlikeness(X[400:]), model.unlikeness(X[400:] + 6)
    assert (like > 0.99).mean() < 0.05
    assert (unlike > 0.99).mean() > 0.9
    assert "Warning" not in summary(model, X[400:])
    assert "Warning: 200 of 200 rows are far" in summary(model, X[400:] + 9)


def summary(model: AnchorMoERegressor, X: np.ndarray) -> str:
    console = Console(file=io.StringIO(), width=200)
    model.summary(console, X)
    return console.file.getvalue()  # type: ignore[attr-defined]


# --- any regressor


@parametrize_with_checks([Calibrated(LinearRegression(), "conformal", folds=3)])
def test_scikit_learns_checks_of_calibrated(estimator: Calibrated, check: Any) -> None:
    check(estimator)


def test_pit_of_a_point_regressor_is_the_distribution_of_its_errors() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1200, 2))
    y = X[:, 0] + rng.standard_exponential(1200)
    predicted = Calibrated(LinearRegression(), "pit").fit(X[:1000], y[:1000]).predict_dist(X[1000:])
    error = predicted.quantile([0.1, 0.5, 0.9]) - X[1000:, :1]
    np.testing.assert_allclose(np.median(error, axis=0), stats.expon.ppf([0.1, 0.5, 0.9]), atol=0.25)
    assert -predicted.log_prob(y[1000:]).mean() < 1.25  # the entropy is 1, that of a normal of this spread 1.42


def test_folds_may_be_a_splitter_with_groups() -> None:
    X, y = numbers(120)
    groups = np.arange(120) // 10
    model = Calibrated(LinearRegression(), "conformal", folds=GroupKFold(3)).fit(X, y, groups=groups)
    assert len(model.models_) == 3
    with pytest.raises(ValueError, match="folds must be odd"):
        Calibrated(LinearRegression(), "conformal", folds=4).fit(X, y)
    with pytest.raises(ValueError, match="calibration must be one of pit, conformal"):
        Calibrated(LinearRegression(), "linear").fit(X, y)


def test_a_time_series_is_ranked_by_models_of_earlier_rows() -> None:
    seen = []

    class Recorded(LinearRegression):
        def fit(self, X: np.ndarray, y: np.ndarray) -> Recorded:
            seen.append(len(y))
            return super().fit(X, y)

    X, y = numbers(120)
    Calibrated(Recorded(), "conformal", folds=TimeSeriesSplit(3)).fit(X, y)
    assert seen == [30, 60, 90]


# --- the harness


def test_any_method_is_calibrated_by_one_setting_and_old_rows_keep_their_names() -> None:
    line = ["dataset=yacht", "method=gbdt_homoscedastic", "protocol=clean", "method.params.stages=20"]
    raw, wrapped = jobs([*line, "method.calibration=none,conformal"])
    (plain,) = jobs(line)
    assert row_identity(raw.config(), 1) == row_identity(plain.config(), 1)
    row = evaluate(make_task(wrapped.config(), 1))
    assert row["status"] == "ok", row
    assert row["method"] == "gbdt_homoscedastic+conformal"
    assert row["config_hash"] != row_identity(raw.config(), 1)["config_hash"]
    assert set(row["intervals"]) == {"50", "80", "90", "95", "deciles", "worst_slab"}  # 55 rows of a fold, not 199
    assert rerun_command(row, [1]) is None  # its own parameter; the setting itself is known:
    standard = {
        **row,
        "config_hash": row_identity(jobs([*line[:-1], "method.calibration=conformal"])[0].config(), 1)["config_hash"],
    }
    assert rerun_command(standard, [1]) == (
        "anchormoe-bench dataset=yacht method=gbdt_homoscedastic protocol=clean method.calibration=conformal splits=1"
    )
    with pytest.raises(UserError, match=r"method.calibration must be none, pit or conformal, received linear"):
        jobs([*line, "method.calibration=linear"])


def test_tables_of_the_calibrations_come_from_rows() -> None:
    def row(split: int, method: str, calibration: str, coverage: float) -> dict[str, Any]:
        level = {"coverage": coverage + 0.01 * (-1) ** split, "width": 2.0, "score": 3.0}
        intervals = {**dict.fromkeys(("50", "80", "90"), level), "deciles": [[9, 10]] * 10, "worst_slab": 0.7}
        labels = {"dataset": "boston", "protocol": "clean", "seed": 1, "status": "ok", "num_rows": 506, "nll_y": 2.0}
        return {
            **labels,
            "crps_y": 1.0,
            "split": split,
            "method": method,
            "calibration": calibration,
            "intervals": intervals,
        }

    kinds = [
        ("anchormoe_fast", "none", 0.7),
        ("anchormoe_fast+conformal", "conformal", 0.9),
        ("mapie_cross", "none", 0.9),
    ]
    rows = pd.DataFrame([row(split, *kind) for kind in kinds for split in (1, 2, 3, 4)])
    coverage, scores, conditional = calibration_tables.build(rows)
    assert [line.source for line in coverage.rows] == ["none", "conformal", "MAPIE, CV+"]
    assert coverage.rows[1].cells[2].mean == pytest.approx(0.9)
    assert coverage.rows[1].cells[4].mean is None  # 99% is in no row
    assert "conformal 1 within, 2 above of 3" in coverage.notes[1]
    assert [cell.mean for cell in scores.rows[0].cells[-2:]] == [2.0, 1.0]
    assert scores.rows[2].cells[-1].mean is None  # MAPIE predicts intervals, not densities
    assert conditional.rows[0].cells[0].mean == pytest.approx(0.7)
    assert calibration_tables.build(rows.drop(columns="intervals")) == []


def test_mapies_cross_validation_takes_the_members_of_the_recipe() -> None:
    X, y = numbers(150)
    settings = {"anchor": AnchorSettings(name="none", kind=AnchorKind.none), "crossfit": CrossfitSettings(3, 3)}
    model = MapieIntervals(kind="cross", random_state=0, train=TrainingSettings(epochs=3), **settings).fit(X, y)
    members = [member.predict(X[:5]).mean for member in model.recipe.fitted_.members]
    residuals = [
        np.abs(y[fold] - member.predict(X[fold]).mean)
        for member, fold in zip(model.recipe.fitted_.members, folds_of(150, 3, seed=0), strict=True)
    ]
    # CV+ by hand: the quantiles of the members' predictions less and plus the residuals of their folds.
    low = np.concatenate([mean[:, None] - part for mean, part in zip(members, residuals, strict=True)], axis=1)
    high = np.concatenate([mean[:, None] + part for mean, part in zip(members, residuals, strict=True)], axis=1)
    rank = math.ceil(0.9 * 151)
    expected = np.sort(low, axis=1)[:, 150 - rank], np.sort(high, axis=1)[:, rank - 1]
    np.testing.assert_allclose(model.predict_dist(X[:5]).interval(0.9).T, expected, rtol=1e-5)


# --- scores


def test_interval_scores_are_those_of_scoringrules() -> None:
    rng = np.random.default_rng(0)
    predicted = GaussianMixture.normal(rng.standard_normal(80), 1.3)
    X, y = rng.standard_normal((80, 2)), 1.5 * rng.standard_normal(80)
    received = interval_scores(predicted, X, y)
    for level in (0.5, 0.9, 0.99):
        low, high = predicted.interval(level).T
        expected = scoringrules.interval_score(y, low, high, 1 - level).mean()
        assert received[f"{100 * level:.0f}"]["score"] == pytest.approx(expected)
        assert received[f"{100 * level:.0f}"]["width"] == pytest.approx(np.mean(high - low))
    assert sum(rows for _, rows in received["deciles"]) == 80
    assert sum(covered for covered, _ in received["deciles"]) == round(80 * received["90"]["coverage"])


def test_the_worst_slab_is_found() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 3))
    inside = rng.random(2000) < np.where(X[:, 0] > 0.8, 0.4, 0.95)
    assert worst_slab_coverage(X, inside) < 0.65
    fair = rng.random(2000) < 0.9
    assert worst_slab_coverage(X, fair) == pytest.approx(0.9, abs=0.06)
