"""Prediction by complete trees gives the numbers of those who fitted the trees."""

import pickle

import numpy as np
import pytest
import xgboost

from anchormoe.model.anchors import boosted, exact_trees
from anchormoe.model.anchors.boosted import XGBoostTrees
from anchormoe.model.anchors.tree_walk import rounded_down
from anchormoe.model.anchors.xgboost_trees import complete_trees


def made_up(num_rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=num_rows), rng.integers(0, 4, num_rows), rng.uniform(size=num_rows)])
    return X, np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=num_rows)


def booster(stages: int = 40, **parameters: object) -> xgboost.Booster:
    X, y = made_up(700)
    return xgboost.train({"eta": 0.1, "nthread": 1, **parameters}, xgboost.DMatrix(X, y), stages)


@pytest.mark.parametrize("num_rows", [1, 255, 256, 257, 5000])
@pytest.mark.parametrize("max_depth", [1, 3, 6])
def test_xgboosts_own_predictions_to_the_last_bit(num_rows: int, max_depth: int) -> None:
    model = booster(max_depth=max_depth)
    trees = complete_trees(model)
    X = made_up(num_rows, seed=1)[0]
    for stages in (1, 17, 40):
        expected = model.predict(xgboost.DMatrix(X), iteration_range=(0, stages))
        np.testing.assert_array_equal(trees.predict(X, stages=stages), expected)


def test_rows_on_a_threshold_go_to_xgboosts_side() -> None:
    model = booster(max_depth=4, tree_method="exact")
    trees = complete_trees(model)
    X = np.repeat(made_up(600)[0][:1], 600, axis=0)
    cuts = np.unique(trees.threshold[np.isfinite(trees.threshold) & (trees.feature == 0)])[:250]
    above = np.nextafter(cuts, np.float32(np.inf))
    X[: len(cuts), 0], X[len(cuts) : 2 * len(cuts), 0] = cuts, above
    np.testing.assert_array_equal(trees.predict(X, stages=40), model.predict(xgboost.DMatrix(X)))


def test_trees_too_deep_or_without_a_split_are_left_to_xgboost() -> None:
    assert complete_trees(booster(max_depth=12, min_child_weight=0)) is None
    assert complete_trees(booster(max_depth=3, gamma=1e9)) is None


@pytest.mark.parametrize(
    "parameters",
    [
        *({"objective": f"reg:{name}"} for name in ("absoluteerror", "pseudohubererror", "squaredlogerror")),
        {"objective": "reg:quantileerror", "quantile_alpha": 0.3},
        *({"tree_method": method} for method in ("exact", "hist", "approx")),
        {"base_score": 0.1},
        {"base_score": -3.2567891},
        {"tree_method": "hist", "grow_policy": "lossguide", "max_leaves": 9, "max_depth": 8},
        {"subsample": 0.5, "colsample_bynode": 0.5},
        {"gamma": 1.0, "max_depth": 8},  # pruned trees of different depths
        {"eta": 1e-30},
        {"nthread": 2},
    ],
    ids=str,
)
def test_features_of_every_size_go_to_xgboosts_side(parameters: dict[str, object]) -> None:
    """Denormal numbers, both zeros, huge numbers and whole ones, each row also on a threshold and beside it."""
    rng = np.random.default_rng(5)
    n = 500
    zeros = np.where(rng.random(n) < 0.5, 0.0, -0.0)
    sizes = [1e-40, 1.0, 1e36]
    X = np.column_stack([*(rng.normal(size=n) * size for size in sizes), rng.integers(-3, 4, n), zeros])
    y = np.abs(np.sign(X[:, 0]) + X[:, 1] + np.sign(X[:, 2]) + 0.3 * X[:, 3] + 0.1 * rng.normal(size=n))
    X_gaps = np.where(rng.random(X.shape) < 0.1, np.nan, X)
    model = xgboost.train({"eta": 0.1, "nthread": 1, **parameters}, xgboost.DMatrix(X_gaps, y), 30)
    trees = complete_trees(model)
    assert trees is not None
    splits = np.isfinite(trees.threshold)  # at a leaf that is repeated the threshold is infinite
    feature, cut = trees.feature[splits][:400], trees.threshold[splits][:400]
    assert len(cut) > 20
    parts = [X]
    for value in (cut, np.nextafter(cut, np.float32(np.inf)), np.nextafter(cut, np.float32(-np.inf)), -cut):
        rows = X[rng.integers(0, n, len(cut))]
        rows[np.arange(len(cut)), feature] = value
        parts.append(rows)
    X_new = np.concatenate(parts)
    for stages in (1, 30):
        expected = model.predict(xgboost.DMatrix(X_new), iteration_range=(0, stages))
        np.testing.assert_array_equal(trees.predict(X_new, stages=stages), expected)


@pytest.mark.parametrize(
    "parameters",
    [
        {"booster": "dart", "rate_drop": 0.3},
        {"booster": "gblinear"},
        {"num_parallel_tree": 3, "subsample": 0.5},
        {"objective": "count:poisson"},
        {"objective": "reg:gamma"},
        {"objective": "reg:tweedie"},
        {"objective": "reg:quantileerror", "quantile_alpha": [0.1, 0.9]},
    ],
    ids=str,
)
def test_models_that_are_no_plain_sum_of_trees_are_left_to_xgboost(
    parameters: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = made_up(300)
    model = xgboost.train({"nthread": 1, **parameters}, xgboost.DMatrix(X, np.abs(y) + 0.1), 10)
    assert complete_trees(model) is None
    monkeypatch.setattr(boosted, "_ROWS_WORTH_CONVERTING", 100)
    expected = model.predict(xgboost.DMatrix(X), iteration_range=(0, 7)).astype(np.float64)
    np.testing.assert_array_equal(XGBoostTrees(model, None, 0.0, 1.0, None).predict(X, stages=7), expected)


def test_splits_by_categories_are_left_to_xgboost() -> None:
    X, y = made_up(300)
    rows = xgboost.DMatrix(X, y, feature_types=["q", "c", "q"], enable_categorical=True)
    assert complete_trees(xgboost.train({"tree_method": "hist", "nthread": 1}, rows, 5)) is None


def test_several_targets_are_left_to_xgboost() -> None:
    X, y = made_up(300)
    rows = xgboost.DMatrix(X, np.column_stack([y, -y]))
    for strategy in ("one_output_per_tree", "multi_output_tree"):
        parameters = {"multi_strategy": strategy, "tree_method": "hist", "nthread": 1}
        assert complete_trees(xgboost.train(parameters, rows, 5)) is None


def test_own_trees_against_a_walk_node_by_node() -> None:
    X, y = made_up(500)
    trees = exact_trees.fit(X, y, stages=12, learning_rate=0.1, max_depth=3)
    X_new = made_up(300, seed=2)[0]
    expected = []
    for row in X_new.astype(np.float32):
        mean = trees.base
        for feature, threshold, leaf in zip(trees.feature, trees.threshold, trees.leaf, strict=True):
            node = 0
            while node < len(feature):
                node = 2 * node + 1 + int(float(row[feature[node]]) > threshold[node])
            mean += leaf[node - len(feature)]
        expected.append(mean)
    np.testing.assert_array_equal(trees.predict(X_new, stages=12), expected)


def test_thresholds_rounded_down_part_float32_values_alike() -> None:
    rng = np.random.default_rng(0)
    threshold = np.append(rng.normal(size=1000), [np.inf, 1e-300, -1e-300, 0.0])
    value = threshold.astype(np.float32)  # the values nearest to the thresholds, on either side
    np.testing.assert_array_equal(value > rounded_down(threshold), value.astype(np.float64) > threshold)


def test_the_anchor_predicts_the_same_in_blocks_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    model = XGBoostTrees(booster(), None, 1.5, 2.0, None)
    X_new = made_up(600, seed=3)[0]
    by_library = model.predict(X_new, stages=30)
    monkeypatch.setattr(boosted, "_ROWS_WORTH_CONVERTING", 100)
    np.testing.assert_array_equal(model.predict(X_new, stages=30), by_library)
    X_new[5, 0] = np.nan  # where a gap goes only XGBoost knows
    gap = model.predict(X_new, stages=30)
    assert np.isfinite(gap).all()
    np.testing.assert_array_equal(np.delete(gap, 5), np.delete(by_library, 5))
    again = pickle.loads(pickle.dumps(model))
    assert "_complete_trees" not in vars(again)
    np.testing.assert_array_equal(again.predict(X_new[6:], stages=30), by_library[6:])
