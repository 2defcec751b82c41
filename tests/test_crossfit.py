"""The cross-fitted recipe: nothing may have seen the rows it is judged, stopped or calibrated on."""

from __future__ import annotations

import dataclasses
import math
import time
from itertools import pairwise

import numpy as np
import pytest
import scipy.stats
import torch
from sklearn.linear_model import Ridge

from anchormoe.commands.run import parse
from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.errors import UserError
from anchormoe.model import crossfit
from anchormoe.model.anchors import exact_trees, out_of_fold
from anchormoe.model.calibration import LinearMap
from anchormoe.model.settings import (
    AnchorKind,
    AnchorMode,
    AnchorSettings,
    Calibration,
    CrossfitSettings,
    ModelSettings,
    TrainingSettings,
)
from anchormoe.model.training_rows import TrainingRows, folds_of
from anchormoe.running.evaluate import evaluate
from anchormoe.running.tasks import make_task, require_runnable

TREES = AnchorSettings("trees", AnchorKind.trees, stages=40, params={"learning_rate": 0.1, "max_depth": 2})
RIDGE = AnchorSettings("ridge", AnchorKind.sklearn, target="sklearn.linear_model.Ridge")
KERNEL = AnchorSettings("kernel", AnchorKind.kernel)
NONE = AnchorSettings("none", AnchorKind.none)
MODEL = ModelSettings(num_experts=2, hidden_dim=8, router_dim=4, sigma_min=0.01, sigma_max=10)
SETTINGS = crossfit.Settings(CrossfitSettings(folds=4), RIDGE, MODEL, TrainingSettings(epochs=4, batch_size=16))
QUICK = [
    "method=anchormoe_crossfit",
    "protocol=clean",
    *("crossfit.folds=3", "crossfit.folds_when_large=3", "train.epochs=2", "train.min_steps=0", "model.hidden_dim=8"),
]


def ordinary(num_rows: int = 100) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (num_rows, 3))
    return X, 5 + 2 * X[:, 0] + X[:, 1] ** 2 + 0.3 * np.exp(X[:, 0]) * rng.standard_normal(num_rows)


def no_network() -> out_of_fold.OutOfFold:
    raise AssertionError("only a stack asks for a network")


def anchored(config: AnchorSettings, X: np.ndarray, y: np.ndarray, folds: list[np.ndarray]) -> out_of_fold.OutOfFold:
    """Fit an anchor out of fold to plain rows."""
    return out_of_fold.fit(config, out_of_fold.Folds(TrainingRows(X, y), folds, seed=1), network=no_network)


@pytest.mark.parametrize("config", [NONE, RIDGE, KERNEL, TREES], ids=lambda config: config.name)
def test_a_rows_anchor_does_not_depend_on_its_fold(config):
    X, y = ordinary()
    folds = folds_of(len(y), 4, seed=1)
    changed = y.copy()
    changed[folds[2]] = np.random.default_rng(1).permutation(y[folds[2]])  # the same targets in another order
    if config is TREES:  # held-out rows decide the stage, so there must be only one
        config = dataclasses.replace(config, stages=1)
    before, after = (anchored(config, X, t, folds).mean for t in (y, changed))
    if config is NONE:  # the mean of all rows, which changes only in the order of its sum
        np.testing.assert_allclose(after, before, rtol=1e-14, atol=0)
    else:
        assert np.array_equal(before[folds[2]], after[folds[2]])
        assert not np.allclose(before[folds[0]], after[folds[0]])


def test_anchor_of_a_regressor_is_what_the_regressor_predicts():
    X, y = ordinary()
    folds = folds_of(len(y), 4, seed=1)
    found = anchored(RIDGE, X, y, folds)
    kept = np.setdiff1d(np.arange(len(y)), folds[3])
    center, scale = y[kept].mean(), y[kept].std()
    model = Ridge().fit(X[kept], (y[kept] - center) / scale)
    assert np.allclose(found.mean[folds[3]], model.predict(X[folds[3]]) * scale + center)
    assert np.allclose(found.models[3](X), model.predict(X) * scale + center)


@pytest.mark.parametrize(("least_rows", "num_kernels"), [(20, 2), (70, 4), (1000, 4)])
def test_folds_share_a_kernel_that_has_seen_none_of_them(least_rows, num_kernels):
    """There are as few kernels as leave enough rows to learn from, and one per fold where there are not enough rows."""
    X, y = ordinary()
    config = dataclasses.replace(KERNEL, params={"least_rows": least_rows})
    folds = folds_of(len(y), 4, seed=1)
    found = anchored(config, X, y, folds)
    kernels = [model.model.kernel for model in found.models]
    assert len({id(kernel) for kernel in kernels}) == num_kernels
    for fold in (0, 3):
        changed = y.copy()
        changed[folds[fold]] = np.random.default_rng(1).permutation(y[folds[fold]])
        models = anchored(config, X, changed, folds).models
        same = [np.array_equal(models[k].model.kernel.rates, kernels[k].rates) for k in range(4)]
        assert same[fold]
        assert not all(same)


def test_the_stage_has_the_lowest_error_over_all_held_out_rows():
    X, y = ordinary()
    folds = folds_of(len(y), 4, seed=1)
    found = anchored(TREES, X, y, folds)
    errors = np.zeros(TREES.stages)
    for fold in folds:
        kept = np.setdiff1d(np.arange(len(y)), fold)
        model = exact_trees.fit(X[kept], y[kept], stages=TREES.stages, **TREES.params)
        for stage in range(1, TREES.stages + 1):
            errors[stage - 1] += ((model.predict(X[fold], stages=stage) - y[fold]) ** 2).sum()
    assert found.stage == 1 + int(np.argmin(errors))
    assert found.rmse(TrainingRows(X, y)) == pytest.approx(math.sqrt(errors.min() / len(y)))


def test_a_model_that_stopped_early_stays_as_it_was():
    X, y = ordinary()
    folds = folds_of(len(y), 4, seed=1)
    params = {"eta": 0.5, "max_depth": 3, "early_stopping_rounds": 3}
    config = AnchorSettings("xgboost", AnchorKind.xgboost, stages=200, params=params)
    found = anchored(config, X, y, folds)
    lengths = [len(model.model.staged_rmse()) for model in found.models]
    assert max(lengths) < 200
    assert len(set(lengths)) > 1
    assert [model.stage for model in found.models] == [min(found.stage, length) for length in lengths]


def test_stack_finds_the_weights_of_its_members():
    """The weights are compared with a search over a grid."""
    X, y = ordinary()
    folds = folds_of(len(y), 4, seed=1)
    members = {
        "trees": {"kind": "trees", "stages": 40, "params": TREES.params},
        "ridge": {"kind": "sklearn", "target": RIDGE.target},
        "taken out": None,
    }
    stack = AnchorSettings("stack", AnchorKind.stack, members=members)
    found = anchored(stack, X, y, folds)
    parts = [anchored(config, X, y, folds) for config in (TREES, RIDGE)]
    a, b = (part.mean - y.mean() for part in parts)
    grid = np.linspace(0, 1.5, 151)
    best = min(((y - y.mean() - v * a - w * b) ** 2).mean() for v in grid for w in grid)
    assert found.rmse(TrainingRows(X, y)) == pytest.approx(math.sqrt(best), rel=1e-3)
    assert found.rmse(TrainingRows(X, y)) <= min(part.rmse(TrainingRows(X, y)) for part in parts)
    new = np.random.default_rng(5).uniform(-1, 1, (7, 3))
    held_out = np.concatenate([model(X[fold]) for model, fold in zip(found.models, folds, strict=True)])
    assert np.allclose(held_out, found.mean[np.concatenate(folds)])
    assert np.isfinite(found.models[0](new)).all()


def test_a_network_is_not_trained_on_its_fold():
    X, y = ordinary()
    settings = dataclasses.replace(
        SETTINGS,
        anchor=NONE,
        train=TrainingSettings(epochs=1, batch_size=16),  # one epoch: nothing to choose
    )
    fold = folds_of(len(y), 4, seed=1)[2]
    changed = y.copy()
    changed[fold] = np.random.default_rng(1).permutation(y[fold])
    before, after = (crossfit.fit(settings, TrainingRows(X, t), seed=1) for t in (y, changed))
    weights = [[m.model.experts.packed[0].detach() for m in fitted.members] for fitted in (before, after)]
    assert torch.equal(weights[0][2], weights[1][2])
    assert not torch.equal(weights[0][0], weights[1][0])


def test_held_out_densities_are_in_the_order_of_the_rows():
    X, y = ordinary()
    fitted = crossfit.fit(SETTINGS, TrainingRows(X, y), seed=1)
    for member, fold in zip(fitted.members, folds_of(len(y), 4, seed=1), strict=True):
        assert np.allclose(fitted.held_out.means[fold], member.predict(X[fold]).means)


def test_members_are_pooled_with_the_spread_they_have_on_average():
    X, y = ordinary()
    fitted = crossfit.fit(SETTINGS, TrainingRows(X, y), seed=1)
    new = np.random.default_rng(5).uniform(-1, 1, (7, 3))
    parts = [member.predict(new) for member in fitted.members]
    found = fitted.predict(new)
    assert np.allclose(found.mean, np.mean([part.mean for part in parts], axis=0))
    assert np.allclose(found.variance, np.mean([part.variance for part in parts], axis=0))
    assert np.array_equal(found.scales, np.concatenate([part.scales for part in parts], axis=1))


ONE_MODE = GaussianMixture.normal(np.array([1.0]), 0.5)
TWO_MODES = GaussianMixture(*np.array([[[-1.2, -0.36]], [[0.0, 2.0]], [[0.1, 1.0]]])).float64()


@pytest.mark.parametrize("member", [ONE_MODE, TWO_MODES])
def test_members_that_agree_are_pooled_as_they_are(member):
    assert np.allclose(crossfit.pooled([member, member]).log_prob(1.2), member.log_prob(1.2))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_units_of_the_target_do_not_matter(scale):
    X, y = ordinary()
    new = np.random.default_rng(5).uniform(-1, 1, (7, 3))
    mixture = crossfit.fit(SETTINGS, TrainingRows(X, y * scale), seed=1).predict(new)
    plain = crossfit.fit(SETTINGS, TrainingRows(X, y), seed=1).predict(new)
    assert np.allclose(mixture.mean / scale, plain.mean, rtol=1e-3)
    assert np.allclose(mixture.std / scale, plain.std, rtol=1e-2)


def test_no_component_is_narrower_than_rounding_of_the_target():
    X, y = ordinary()
    grades = np.round(y)  # whole numbers, with errors of that size
    assert crossfit.rounding_error(grades, anchor_error=0.5) == pytest.approx(1 / math.sqrt(12))
    assert crossfit.rounding_error(grades, anchor_error=0.1) == 0  # predicted better than recorded
    assert crossfit.rounding_error(np.ones(5), anchor_error=0.5) == 0
    settings = dataclasses.replace(SETTINGS, anchor=NONE)
    narrow = crossfit.fit(settings, TrainingRows(X, grades), seed=1).predict(X).scales.min()
    assert narrow >= 1 / math.sqrt(12) * (1 - 1e-6)


def test_the_outlier_component_has_one_chance_in_all_rows_and_one():
    y = np.arange(9.0)
    mixture = GaussianMixture.normal(np.array([3.0, 4.0]), 0.01)
    found = crossfit.with_outlier_component(mixture, crossfit.TargetStatistics.of(y))
    at = np.array([3.005, 70.0])
    density = 0.9 * scipy.stats.norm.pdf(at, [3, 4], 0.01) + 0.1 * scipy.stats.norm.pdf(at, [3, 4], y.std())
    assert np.allclose(found.log_prob(at), np.log(density))
    assert np.allclose(found.mean, mixture.mean)


def test_calibration_maps_the_mean_and_keeps_the_spread():
    X, y = ordinary()
    fitted = crossfit.fit(SETTINGS, TrainingRows(X, y), seed=1)
    spread = fitted.held_out.std
    for calibration, weights in ((Calibration.linear, None), (Calibration.weighted, 1 / spread)):
        found = fitted.linear_map(calibration)
        expected = np.polyfit(fitted.held_out.mean, y, 1, w=weights)
        assert (found.slope, found.intercept) == pytest.approx(tuple(expected))
    assert fitted.linear_map(Calibration.none) is None
    moved = crossfit.calibrated(fitted.held_out, LinearMap(2.0, 1.0))
    assert np.allclose(moved.mean, 2 * fitted.held_out.mean + 1)
    assert np.allclose(moved.std, fitted.held_out.std)


@pytest.mark.parametrize("ablation", ["full", "no_anchor", "no_router", "no_cal"])
def test_every_ablation_runs(ablation):
    (job,) = parse([*QUICK, "dataset=yacht", f"ablation={ablation}", "anchor=trees", "anchor.stages=30"])
    row = evaluate(make_task(job.config(), 1))
    assert row["status"] == "ok", row
    assert row["method"] == "anchormoe_crossfit"
    assert (row["calibration_a"] is None) == (ablation == "no_cal")
    if ablation == "no_cal":
        assert row["rmse_y"] == pytest.approx(row["rmse_y_uncalibrated"])


def test_a_member_joins_the_stack_with_enough_rows() -> None:
    members = {"ridge": {"kind": "quadratic"}, "trees": {"kind": "trees", "stages": 5, "least_rows": 60}}
    stack = AnchorSettings("stack", AnchorKind.stack, members=members)
    for num_rows, names in ((59, ["ridge"]), (60, ["ridge", "trees"])):
        X, y = ordinary(num_rows)
        anchor = anchored(stack, X, y, folds_of(num_rows, 3, seed=1))
        assert [member.name for member in anchor.members] == names
        assert crossfit.num_pieces(stack, num_rows, num_folds=3) == 3 * (1 + len(names))
    with pytest.raises(UserError, match=r"anchor.members must be at least one named anchor .* for 59 rows"):
        AnchorSettings("stack", AnchorKind.stack, members={"trees": members["trees"]}).stack_members(59)


def test_stack_is_the_presets_anchor_and_another_can_be_named():
    (job,) = parse([*QUICK, "dataset=yacht"])
    assert job.anchor.name == "stack"
    assert job.calibration is Calibration.weighted
    assert list(job.anchor.members) == ["trees", "xgboost", "quadratic", "kernel", "network"]
    assert [member.kind.value for member in job.anchor.stack_members()] == list(job.anchor.members)
    (job,) = parse([*QUICK, "dataset=yacht", "anchor.members.network=null"])
    assert list(job.anchor.members) == ["trees", "xgboost", "quadratic", "kernel"]
    (job,) = parse([*QUICK, "dataset=yacht", "anchor=ridge"])
    assert job.anchor.name == "ridge"
    assert job.model.anchor_mode is AnchorMode.delta


def test_stack_needs_held_out_rows():
    (job,) = parse(["dataset=yacht", "anchor=stack"])
    with pytest.raises(UserError, match=r"anchor.kind=stack must be cross-fitted: use method=anchormoe_crossfit"):
        require_runnable(job.config())


@pytest.mark.parametrize(
    "members",
    [{}, {"a": None}, {"a": {"target": "sklearn.linear_model.Ridge"}}, {"a": {"kind": "oak"}}, {"a": "trees"}],
)
def test_members_of_a_stack_are_checked(members):
    with pytest.raises(UserError, match=r"must be at least one named anchor with a kind"):
        AnchorSettings("stack", AnchorKind.stack, members=members)


def test_folds():
    assert CrossfitSettings(folds=10, folds_when_large=5).num_folds(2000) == 10
    assert CrossfitSettings(folds=10, folds_when_large=5).num_folds(2001) == 5
    assert CrossfitSettings(folds=10).num_folds(37) == 9  # at least four rows to a fold
    assert CrossfitSettings(folds=10).num_folds(5) == 2
    with pytest.raises(UserError, match=r"crossfit.folds must be at least 2, received 1"):
        CrossfitSettings(folds=1)


def difficult(kind: str) -> tuple[np.ndarray, np.ndarray]:
    X, y = ordinary(30)
    if kind == "one feature":
        return X[:, :1], y
    if kind == "constant feature":
        return np.column_stack([X, np.full(30, 2.0)]), y
    if kind == "constant target":
        return X, np.full(30, 3.0)
    return X, y


@pytest.mark.parametrize("kind", ["30 rows", "one feature", "constant feature", "constant target"])
def test_survives_difficult_data(kind):
    """With every anchor of the preset, the density is finite and integrates to one."""
    X, y = difficult(kind)
    (job,) = parse([*QUICK, "dataset=yacht"])
    settings = crossfit.Settings(job.crossfit, job.anchor, job.model, job.train)
    fitted = crossfit.fit(settings, TrainingRows(X, y), seed=1)
    mixture = crossfit.with_outlier_component(fitted.predict(X[:3]), crossfit.TargetStatistics.of(y))
    for row in range(3):
        means = np.unique(mixture.means[row]).tolist()
        reach = 12 * float(mixture.scales[row].max())
        edges = [means[0] - reach, *means, means[-1] + reach]
        at = np.concatenate([np.linspace(low, high, 3000) for low, high in pairwise(edges)])
        parts = (getattr(mixture, name)[[row] * len(at)] for name in ("log_weights", "means", "scales"))
        assert np.trapezoid(np.exp(GaussianMixture(*parts).log_prob(at)), at) == pytest.approx(1, abs=1e-2)
    assert np.isfinite(mixture.mean).all()


def with_bad_value(column: int, value: float) -> tuple[np.ndarray, np.ndarray]:
    table = np.column_stack(ordinary(20))
    table[3, column] = value
    return table[:, :-1], table[:, -1]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        *((tuple(part[:n] for part in ordinary(20)), f"at least 5 rows, received {n}") for n in range(5)),
        ((ordinary(20)[0][:, :0], ordinary(20)[1]), "at least one feature, received none"),
        (with_bad_value(-1, np.nan), "finite targets, received NaN or infinity"),
        (with_bad_value(-1, -np.inf), "finite targets, received NaN or infinity"),
        (with_bad_value(0, np.inf), "features that are finite or NaN, received infinity"),
    ],
)
def test_rows_that_cannot_be_fitted_are_one_line(table, message):
    with pytest.raises(UserError, match=f"^a fit needs {message}") as error:
        crossfit.fit(SETTINGS, TrainingRows(*table), seed=1)
    assert "\n" not in str(error.value)


def test_five_rows_are_enough_and_gaps_are_filled():
    """A missing value is no error, whether the rows of the fit had any in its column or not."""
    fitted = crossfit.fit(SETTINGS, TrainingRows(*(part[:5] for part in ordinary(20))), seed=1)
    assert np.isfinite(fitted.predict(ordinary(20)[0]).mean).all()
    fitted = crossfit.fit(SETTINGS, TrainingRows(*with_bad_value(0, np.nan)), seed=1)
    assert np.isfinite(fitted.predict(np.array([[np.nan, 0.1, np.nan]])).mean).all()


def test_more_columns_than_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 500))
    y = X[:, 0] + 0.1 * rng.normal(size=200)
    stack = crossfit.Settings(
        CrossfitSettings(folds=3), parse([*QUICK, "dataset=yacht"])[0].anchor, MODEL, TrainingSettings(epochs=4)
    )
    start = time.process_time()
    fitted = crossfit.fit(stack, TrainingRows(X, y), seed=1)
    assert time.process_time() - start < 45
    assert np.corrcoef(fitted.predict(X).mean, y)[0, 1] > 0.5
