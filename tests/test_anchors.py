"""Anchors: stage selection recomputed by other means, truncation, units, and any regressor by its import path."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import lightgbm
import numpy as np
import pytest
import xgboost
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import RidgeCV

from anchormoe.data.splits import OuterSplit, inner_split
from anchormoe.errors import UserError
from anchormoe.model.anchors import exact_trees
from anchormoe.model.anchors.boosted import BOOSTED
from anchormoe.model.anchors.selection import require_usable, select_anchor
from anchormoe.model.settings import AnchorKind, AnchorSettings
from anchormoe.model.training_rows import TrainingRows

STAGES = 60
SEED = 3
FOLDS = ("tr", "va", "tv", "cal", "test")
GBDT = AnchorSettings(name="gbdt", kind=AnchorKind.gbdt, stages=STAGES, params={"learning_rate": 0.2, "max_depth": 3})
TREES = dataclasses.replace(GBDT, name="trees", kind=AnchorKind.trees)
XGBOOST = AnchorSettings(
    kind=AnchorKind.xgboost,
    stages=STAGES,
    params={"eta": 0.2, "max_depth": 3, "tree_method": "exact", "reg_lambda": 0, "min_child_weight": 1},
)
LIGHTGBM = AnchorSettings(
    name="lightgbm",
    kind=AnchorKind.lightgbm,
    stages=STAGES,
    params={"learning_rate": 0.2, "max_depth": 3, "num_leaves": 8, "min_child_samples": 1},
)


def table(num_rows: int = 140) -> tuple[np.ndarray, np.ndarray]:
    stream = np.random.RandomState(0)
    X = stream.normal(size=(num_rows, 4))
    y = 20 + 5 * np.sin(2 * X[:, 0]) + 3 * X[:, 1] * X[:, 2] + 2 * stream.normal(size=num_rows)
    return X, y


X, y = table()


def make_split(num_rows: int = len(y), calibration_fraction: float = 0.125) -> SimpleNamespace:
    """Return the row numbers of the table, by fold."""
    train, test = OuterSplit(1, seed=1).rows(num_rows)
    inner = inner_split(len(train), SEED, calibration_fraction=calibration_fraction, validation_fraction=0.2)
    folds = {name: train[getattr(inner, name)] for name in ("tr", "va", "tv", "cal")}
    return SimpleNamespace(train=train, test=test, inner=inner, **folds)


SPLIT = make_split()


@pytest.mark.parametrize("settings", [GBDT, TREES, XGBOOST, LIGHTGBM], ids=lambda settings: settings.kind.name)
def test_fewer_stages_do_not_take_any_from_the_model(settings: AnchorSettings) -> None:
    model = BOOSTED[settings.kind](settings, TrainingRows(X, y), STAGES, SEED, validation=None)
    whole = model.predict(X, stages=STAGES)
    assert not np.allclose(model.predict(X, stages=5), whole)
    np.testing.assert_array_equal(model.predict(X, stages=STAGES), whole)


def anchor_means(
    settings: AnchorSettings, X: np.ndarray, y: np.ndarray, split: SimpleNamespace, *, seed: int
) -> SimpleNamespace:
    """Return the means of every fold: TR and VA by phase 1's anchor, the others by phase 2's."""
    anchor = select_anchor(settings, TrainingRows(X[split.train], y[split.train]), split.inner, seed=seed)
    later = {
        fold: anchor.predict(X[getattr(split, fold)]) for fold in ("tv", "cal", "test") if len(getattr(split, fold))
    }
    return SimpleNamespace(stage=anchor.stage, tr=anchor.tr, va=anchor.va, **later)


def rmse(mean: np.ndarray, target: np.ndarray) -> float:
    return float(np.sqrt(np.mean((mean - target) ** 2)))


def assert_equal(means: SimpleNamespace, sub: Any, final: Any, *, exactly: bool = True) -> None:
    """Compare with `sub`, fitted on TR, and `final`, fitted on TV; both are functions of features."""
    for fold in FOLDS:
        expected = (sub if fold in ("tr", "va") else final)(X[getattr(SPLIT, fold)])
        received = getattr(means, fold)
        assert received.dtype == np.float64
        if exactly:
            np.testing.assert_array_equal(received, expected, err_msg=fold)
        else:
            np.testing.assert_allclose(received, expected, rtol=1e-5, err_msg=fold)


def assert_interior(stage: int | None) -> None:
    """Assert that a stage is not at either end, where a broken search would find it too."""
    assert stage is not None
    assert 1 < stage < STAGES


# --- boosted anchors


def test_gbdt_selects_the_stage_and_equals_short_fits_bit_for_bit() -> None:
    def fit(rows: np.ndarray, stages: int) -> GradientBoostingRegressor:
        model = GradientBoostingRegressor(learning_rate=0.2, max_depth=3, n_estimators=stages, random_state=SEED)
        return model.fit(X[rows], y[rows])

    means = anchor_means(GBDT, X, y, SPLIT, seed=SEED)
    validation = [rmse(fit(SPLIT.tr, n).predict(X[SPLIT.va]), y[SPLIT.va]) for n in range(1, STAGES + 1)]
    assert_interior(means.stage)
    assert means.stage == 1 + int(np.argmin(validation))
    assert_equal(means, fit(SPLIT.tr, means.stage).predict, fit(SPLIT.tv, means.stage).predict)


def test_xgboost_selects_the_stage_and_equals_short_fits() -> None:
    def fit(rows: np.ndarray, stages: int) -> Any:
        center, scale = y[rows].mean(), y[rows].std()
        model = xgboost.XGBRegressor(
            n_estimators=stages,
            learning_rate=0.2,
            max_depth=3,
            tree_method="exact",
            reg_lambda=0,
            min_child_weight=1,
            n_jobs=1,
        ).fit(X[rows], (y[rows] - center) / scale)
        return lambda features: model.predict(features).astype(np.float64) * scale + center

    means = anchor_means(XGBOOST, X, y, SPLIT, seed=SEED)
    validation = [rmse(fit(SPLIT.tr, n)(X[SPLIT.va]), y[SPLIT.va]) for n in range(1, STAGES + 1)]
    assert_interior(means.stage)
    assert means.stage == 1 + int(np.argmin(validation))
    assert_equal(means, fit(SPLIT.tr, means.stage), fit(SPLIT.tv, means.stage), exactly=False)


def test_lightgbm_selects_the_stage_and_equals_short_fits() -> None:
    def fit(rows: np.ndarray, stages: int) -> Any:
        parameters = {**LIGHTGBM.params, "objective": "regression", "num_threads": 1, "verbosity": -1}
        return lightgbm.train(parameters, lightgbm.Dataset(X[rows], y[rows]), stages).predict

    means = anchor_means(LIGHTGBM, X, y, SPLIT, seed=SEED)
    validation = [rmse(fit(SPLIT.tr, n)(X[SPLIT.va]), y[SPLIT.va]) for n in range(1, STAGES + 1)]
    assert_interior(means.stage)
    assert means.stage == 1 + int(np.argmin(validation))
    assert_equal(means, fit(SPLIT.tr, means.stage), fit(SPLIT.tv, means.stage), exactly=False)


@pytest.mark.parametrize(("config", "rtol"), [(XGBOOST, 1e-3), (TREES, 1e-10)], ids=["xgboost", "trees"])
def test_other_exact_trees_equal_gbdt_on_training_rows(config: AnchorSettings, rtol: float) -> None:
    """On other rows they may differ: where several features split a node's rows equally well, each picks its own."""
    gbdt, other = (anchor_means(kind, X, y, SPLIT, seed=SEED) for kind in (GBDT, config))
    assert_interior(gbdt.stage)
    assert other.stage == gbdt.stage
    for fold in ("tr", "tv"):
        np.testing.assert_allclose(getattr(other, fold), getattr(gbdt, fold), rtol=rtol, err_msg=fold)


@pytest.mark.parametrize("scale", [2.0**-20, 2.0**-10, 2.0**10, 2.0**20])  # about 1e-6 to 1e6; exact in floating point
def test_xgboost_does_not_depend_on_the_unit_of_the_target(scale: float) -> None:
    means = anchor_means(XGBOOST, X, y, SPLIT, seed=SEED)
    scaled = anchor_means(XGBOOST, X, y * scale, SPLIT, seed=SEED)
    assert scaled.stage == means.stage
    for fold in FOLDS:
        np.testing.assert_array_equal(getattr(scaled, fold), getattr(means, fold) * scale)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_xgboost_depends_on_decimal_units_by_rounding_only(scale: float) -> None:
    means, scaled = (anchor_means(XGBOOST, X, target, SPLIT, seed=SEED) for target in (y, y * scale))
    assert scaled.stage == means.stage
    np.testing.assert_allclose(scaled.test / scale, means.test, rtol=1e-4)


def test_xgboost_takes_a_constant_target() -> None:
    means = anchor_means(XGBOOST, X, np.full(len(y), 7.0), SPLIT, seed=SEED)
    np.testing.assert_allclose(means.test, 7.0)


def test_xgboost_has_a_bin_for_so_many_rows_16_to_256_in_all() -> None:
    many_X, many_y = table(600)
    split = make_split(600)

    def means(**params: Any) -> SimpleNamespace:
        config = dataclasses.replace(XGBOOST, params={"eta": 0.2, "max_depth": 3, **params})
        return anchor_means(config, many_X, many_y, split, seed=SEED)

    for rows_per_bin, bins in ((1, 256), (4, len(split.tr) // 4), (100, 16)):
        received, expected = means(rows_per_bin=rows_per_bin), means(max_bin=bins)
        assert received.stage == expected.stage
        for fold in ("tr", "va"):  # bins of the fit to TR; TV has more rows and so more bins
            np.testing.assert_array_equal(getattr(received, fold), getattr(expected, fold))
    assert not np.array_equal(means(max_bin=16).tr, means(max_bin=256).tr)


@pytest.mark.parametrize("rows_per_bin", [0, -8, 2.5, "many"])
def test_rows_per_bin_that_are_no_number_of_rows_are_said(rows_per_bin: object) -> None:
    with pytest.raises(UserError, match="rows_per_bin must be a whole number from 1, received"):
        require_usable(dataclasses.replace(XGBOOST, params={"rows_per_bin": rows_per_bin}))


def test_trees_that_stop_early_are_the_first_of_the_long_fit() -> None:
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (200, 3))
    noisy = rows[:, 0] + rng.standard_normal(200)
    train, held_out = (rows[:150], noisy[:150]), (rows[150:], noisy[150:])
    settings = {"learning_rate": 0.1, "max_depth": 2}
    long = exact_trees.fit(*train, stages=600, **settings)
    best = 1 + int(np.argmin(long.staged_rmse(*held_out)))
    assert best < 400  # or there is nothing to stop
    stopped = exact_trees.fit(*train, stages=600, validation=held_out, early_stopping_rounds=60, **settings)
    length = len(stopped.leaf)
    assert best + 60 <= length < 600
    assert np.array_equal(stopped.staged_rmse(*held_out), long.staged_rmse(*held_out)[:length])
    whole = exact_trees.fit(*train, stages=90, validation=held_out, early_stopping_rounds=600, **settings)
    assert np.array_equal(whole.predict(rows, stages=90), long.predict(rows, stages=90))


def test_trees_with_a_penalty_equal_xgboosts() -> None:
    """XGBoost's exact trees are an independent computation of the same penalty."""
    rng = np.random.default_rng(1)
    rows = rng.uniform(-1, 1, (300, 3)).astype(np.float32)
    target = rows[:, 0] * rows[:, 1] + 0.1 * rng.standard_normal(300)
    weight = rng.uniform(0.5, 2, 300)
    for weights in (None, weight):
        ours = exact_trees.fit(rows, target, stages=30, learning_rate=0.2, max_depth=3, penalty=5.0, weight=weights)
        settings = {"eta": 0.2, "max_depth": 3, "lambda": 5.0, "min_child_weight": 0, "tree_method": "exact"}
        matrix = xgboost.DMatrix(rows, target, weight=weights)
        theirs = xgboost.train({**settings, "base_score": np.average(target, weights=weights)}, matrix, 30)
        np.testing.assert_allclose(ours.predict(rows, stages=30), theirs.predict(matrix), atol=1e-4)


@pytest.mark.parametrize("weighted", [False, True])
def test_trees_of_a_share_of_the_rows_and_columns(weighted: bool) -> None:
    rng = np.random.default_rng(2)
    rows, new = rng.uniform(-1, 1, (2, 400, 10))
    target = rows.sum(1) + 0.1 * rng.standard_normal(400)
    weight = rng.uniform(0.5, 2, 400) if weighted else None

    def fitted(seed: int, **shares: float) -> exact_trees.BoostedTrees:
        options = {"stages": 120, "learning_rate": 0.1, "max_depth": 3, "weight": weight}
        return exact_trees.fit(rows, target, seed=seed, **options, **shares)

    shares = {"row_share": 0.5, "column_share": 0.3}
    first, again, other = fitted(1, **shares), fitted(1, **shares), fitted(2, **shares)
    np.testing.assert_array_equal(first.predict(new, stages=120), again.predict(new, stages=120))
    assert not np.array_equal(first.predict(new, stages=120), other.predict(new, stages=120))
    used = [set(feature[np.isfinite(cut)]) for feature, cut in zip(first.feature, first.threshold, strict=True)]
    assert {len(columns) for columns in used} <= {1, 2, 3}
    assert set.union(*used) == set(range(10))
    whole = fitted(1)
    np.testing.assert_array_equal(whole.predict(new, stages=120), fitted(2).predict(new, stages=120))  # no draws
    error, baseline = (np.square(one - new.sum(1)).mean() for one in (first.predict(new, stages=120), target.mean()))
    assert error < 0.15 * baseline


def test_a_tree_of_a_share_of_the_rows_has_seen_no_other() -> None:
    """One full-depth tree of half of eight rows has the targets of the drawn rows in its leaves, and no others."""
    rows, target = np.arange(8.0)[:, None], 10.0 ** np.arange(8)
    tree = exact_trees.fit(rows, target, stages=1, learning_rate=1.0, max_depth=3, row_share=0.5, seed=3)
    reached = tree.predict(rows, stages=1)
    drawn = np.isclose(reached, target)
    assert 0 < drawn.sum() < 8
    assert set(np.round(reached)) == set(target[drawn])


@pytest.mark.parametrize("share", [{"row_share": 0.0}, {"column_share": 1.5}, {"penalty": -1.0}])
def test_shares_that_are_none_are_said(share: dict[str, float]) -> None:
    (name,) = share
    with pytest.raises(UserError, match=rf"anchor.params.{name} must be .*, received"):
        require_usable(dataclasses.replace(TREES, params={**TREES.params, **share}))


def test_trees_pass_over_columns_that_say_nothing_new() -> None:
    """Constant columns and copies change no prediction, wherever they are."""
    constant, copy = np.full((len(X), 1), 3.0), X[:, 1:2]
    means = anchor_means(TREES, X, y, SPLIT, seed=SEED)
    padded = anchor_means(TREES, np.hstack([constant, X, copy, constant]), y, SPLIT, seed=SEED)
    for fold in FOLDS:
        np.testing.assert_array_equal(getattr(padded, fold), getattr(means, fold))
    nothing = anchor_means(TREES, np.hstack([constant, constant]), y, SPLIT, seed=SEED)
    np.testing.assert_allclose(nothing.test, y[SPLIT.tv].mean())


# --- other anchors


@pytest.mark.parametrize(
    ("target", "params", "regressor"),
    [
        ("sklearn.linear_model.RidgeCV", {"alphas": [0.1, 1.0, 10.0]}, RidgeCV(alphas=[0.1, 1.0, 10.0])),
        (
            "sklearn.ensemble.RandomForestRegressor",
            {"n_estimators": 10},
            RandomForestRegressor(n_estimators=10, random_state=SEED),  # the run's seed, not a fixed one
        ),
    ],
)
def test_any_scikit_learn_regressor_is_fitted_on_tr_and_again_on_tv(target: str, params: dict, regressor: Any) -> None:
    config = AnchorSettings(name="other", kind=AnchorKind.sklearn, target=target, params=params)
    means = anchor_means(config, X, y, SPLIT, seed=SEED)
    assert means.stage is None
    sub = regressor.fit(X[SPLIT.tr], y[SPLIT.tr]).predict
    expected = {fold: sub(X[getattr(SPLIT, fold)]) for fold in ("tr", "va")}
    final = regressor.fit(X[SPLIT.tv], y[SPLIT.tv]).predict
    expected |= {fold: final(X[getattr(SPLIT, fold)]) for fold in ("tv", "cal", "test")}
    for fold in FOLDS:
        np.testing.assert_array_equal(getattr(means, fold), expected[fold])


def test_a_seed_in_the_parameters_wins_over_the_runs() -> None:
    params = {"n_estimators": 5, "random_state": 11}
    config = AnchorSettings(kind=AnchorKind.sklearn, target="sklearn.ensemble.RandomForestRegressor", params=params)
    first, second = (anchor_means(config, X, y, SPLIT, seed=seed) for seed in (1, 2))
    np.testing.assert_array_equal(first.test, second.test)


def test_no_anchor_is_the_mean_of_the_rows_it_may_see() -> None:
    means = anchor_means(AnchorSettings(name="none", kind=AnchorKind.none), X, y, SPLIT, seed=SEED)
    assert means.stage is None
    for fold in FOLDS:
        seen = SPLIT.tr if fold in ("tr", "va") else SPLIT.tv
        np.testing.assert_array_equal(getattr(means, fold), np.full(len(getattr(SPLIT, fold)), y[seen].mean()))


@pytest.mark.parametrize(
    "target", [".foo.Ridge", "sklearn.linear_model", "math.sin", "sklearn.preprocessing.StandardScaler", "Ridge"]
)
def test_a_target_that_is_no_regressor_is_found_before_any_work(target: str) -> None:
    with pytest.raises(UserError, match="the import path of a regressor"):
        require_usable(AnchorSettings(kind=AnchorKind.sklearn, target=target))


@pytest.mark.parametrize("kind", [AnchorKind.gbdt, AnchorKind.trees, AnchorKind.sklearn])
def test_an_unknown_parameter_is_found_before_any_work(kind: AnchorKind) -> None:
    target = "sklearn.linear_model.Ridge" if kind is AnchorKind.sklearn else None
    with pytest.raises(UserError, match="received typo"):
        require_usable(AnchorSettings(kind=kind, target=target, params={"typo": 3}))


@pytest.mark.parametrize("config", [GBDT, TREES, XGBOOST, LIGHTGBM], ids=lambda config: config.name)
def test_anchors_do_without_calibration_rows(config: AnchorSettings) -> None:
    split = make_split(calibration_fraction=0.0)
    means = anchor_means(config, X, y, split, seed=SEED)
    assert len(split.cal) == 0
    assert len(means.tv) == len(split.train)


@pytest.mark.parametrize(
    "target", ["sklearn.linear_model.Rigde", "no_such_package.Regressor", "JustAName", "sklearn.no_such_module.Ridge"]
)
def test_a_wrong_import_path_is_named_in_the_error(target: str) -> None:
    config = AnchorSettings(name="other", kind=AnchorKind.sklearn, target=target)
    with pytest.raises(UserError, match=rf"import path of a regressor, received {target}"):
        anchor_means(config, X, y, SPLIT, seed=SEED)
