"""Weights, categories and gaps: each part of the model against an independent computation."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch
from compiled_objective import objective
from network_cases import random_batch, random_model, settings
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import LinearRegression
from sklearn.preprocessing import TargetEncoder
from sklearn.tree import DecisionTreeRegressor

from anchormoe.data.columns import Columns
from anchormoe.model import training
from anchormoe.model.anchors import exact_trees
from anchormoe.model.anchors.kernel_machine import Kernel, KernelMachine
from anchormoe.model.anchors.quadratic import QuadraticRidge
from anchormoe.model.calibration import fit_linear_map
from anchormoe.model.encoding import PRIOR_ROWS, dense_encoder, encode_folds, tree_encoder
from anchormoe.model.settings import Backend, Loss, TrainingSettings
from anchormoe.model.training_rows import TrainingRows, folds_of


def rows(num_rows: int = 80) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(num_rows, 3))
    return X, X[:, 0] + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=num_rows), rng.integers(1, 4, num_rows).astype(float)


def repeated(X: np.ndarray, y: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    index = np.repeat(np.arange(len(y)), weight.astype(int))
    return X[index], y[index]


def test_a_weighted_tree_is_scikit_learns() -> None:
    X, y, weight = rows()
    weight = weight + np.random.default_rng(1).random(len(y))
    ours = exact_trees.SortedColumns(X, weight).tree(y, max_depth=3)
    theirs = DecisionTreeRegressor(max_depth=3).fit(np.float32(X), y, sample_weight=weight)
    np.testing.assert_allclose(ours.predict(X, stages=1), theirs.predict(np.float32(X)), rtol=1e-12)


def test_boosted_trees_count_a_row_of_weight_two_as_two_rows() -> None:
    X, y, weight = rows()
    boosting = {"stages": 30, "learning_rate": 0.1, "max_depth": 3}
    weighted = exact_trees.fit(X, y, weight=weight, **boosting)
    plain = exact_trees.fit(*repeated(X, y, weight), **boosting)
    np.testing.assert_allclose(weighted.predict(X, stages=30), plain.predict(X, stages=30), rtol=1e-10)
    np.testing.assert_allclose(
        weighted.staged_rmse(X, y, weight), plain.staged_rmse(*repeated(X, y, weight)), rtol=1e-10
    )


def test_gaps_go_to_one_side_of_a_tree() -> None:
    X, y, _ = rows()
    X[::3, 0] = np.nan
    y = np.where(np.isnan(X[:, 0]), 5.0, 0.0)
    table = TrainingRows(X, y)
    tree = exact_trees.SortedColumns(tree_encoder(table)(X)).tree(y, max_depth=1)
    assert np.array_equal(tree.predict(tree_encoder(table)(X), stages=1), y)


def test_the_kernel_machine_counts_a_row_of_weight_two_as_two_rows() -> None:
    X, y, weight = rows(60)
    for sizes in ({}, {"exact_up_to": 10, "num_centers": 60}):  # all rows as centers, both ways
        kernel = Kernel(X.mean(0), np.array([1.0, 0.5, 2.0]), signal=1.5, noise=0.1)
        y_z = (y - y.mean()) / y.std()
        weighted = KernelMachine(**sizes).fit(X, y, weight, kernel=kernel)
        found = (weighted.predict(X) - y.mean()) / y.std()

        def covariance(a: np.ndarray, b: np.ndarray, kernel=kernel) -> np.ndarray:
            return kernel.covariance(kernel.positions(a), kernel.positions(b))

        expected = covariance(X, X) @ np.linalg.solve(covariance(X, X) + np.diag(kernel.noise / weight), y_z)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_blocks_of_rows_do_not_change_the_kernel_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, weight = rows()
    machine = KernelMachine(exact_up_to=10, num_centers=30)
    kernel = machine.learn_kernel(X, y)
    whole = machine.fit(X, y, weight, kernel=kernel).predict(X)
    monkeypatch.setattr("anchormoe.model.anchors.kernel_machine.BLOCK_ROWS", 7)
    blocks = machine.fit(X, y, weight, kernel=kernel).predict(X)
    np.testing.assert_allclose(blocks, whole, rtol=1e-6)


def test_weights_of_ridge_and_calibration() -> None:
    X, y, weight = rows()
    plain, weighted = QuadraticRidge().fit(X, y), QuadraticRidge().fit(X, y, weight**4)
    assert not np.allclose(plain.predict(X), weighted.predict(X))
    mean, spread = X[:, 0], 1 + np.abs(X[:, 1])
    found = fit_linear_map(mean, y, spread, weight)
    expected = LinearRegression().fit(mean[:, None], y, sample_weight=weight / spread**2)
    assert (found.slope, found.intercept) == pytest.approx((expected.coef_[0], expected.intercept_))


@pytest.mark.parametrize("loss", list(Loss))
def test_weights_of_the_networks_rows_in_value_and_gradients(loss: Loss) -> None:
    data = random_batch(num_rows=40)
    weight = torch.rand(len(data.y), generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 2
    data = dataclasses.replace(data, weight=weight)
    config = TrainingSettings(loss=loss)
    model = random_model(settings("published")).train()
    value, gradients = objective(model, data, config, epoch=1)
    model.train()
    expected = training.objective(model, config, 1)(model, data)
    expected.backward()
    assert value == pytest.approx(expected.item(), rel=1e-9)
    for name, parameter in model.named_parameters():
        if gradients[name] is not None:
            np.testing.assert_allclose(gradients[name], parameter.grad, rtol=1e-6, atol=1e-10, err_msg=name)
    mixture = model.eval()(data.x, data.anchor)
    mean_nll = float(np.average(-mixture.log_prob(data.y).detach().numpy(), weights=weight.numpy()))
    for backend in (Backend.torch, Backend.compiled):
        steps = training.make_steps(model, dataclasses.replace(config, backend=backend))
        assert steps.mean_nll(data) == pytest.approx(mean_nll, rel=1e-9)


def table() -> TrainingRows:
    rng = np.random.default_rng(0)
    few, many = rng.integers(0, 3, 200).astype(float), rng.integers(0, 40, 200).astype(float)
    few[rng.random(200) < 0.1] = np.nan
    number = rng.normal(size=200)
    number[rng.random(200) < 0.2] = np.nan
    return TrainingRows(np.column_stack([few, many, number]), rng.normal(size=200), None, (0, 1))


def test_dense_encoding() -> None:
    whole = table()
    encoded = dense_encoder(whole)(whole.X)
    indicators = pd.get_dummies(pd.Series(whole.X[:, 0]), dummy_na=True).to_numpy(dtype=float)
    assert np.array_equal(encoded[:, :4], indicators)
    expected = TargetEncoder(smooth=PRIOR_ROWS, target_type="continuous").fit(whole.X[:, [1]], whole.y)
    np.testing.assert_allclose(encoded[:, [4]], expected.transform(whole.X[:, [1]]))
    gap = np.isnan(whole.X[:, 2])
    assert np.array_equal(encoded[:, 5], np.where(gap, np.nanmedian(whole.X[:, 2]), whole.X[:, 2]))
    assert np.array_equal(encoded[:, 6], gap)
    unknown = dense_encoder(whole)(np.array([[3.0, 40.0, 0.0]]))[0]
    assert np.array_equal(unknown[:4], [0, 0, 0, 1])
    assert unknown[4] == pytest.approx(whole.y.mean())


@pytest.mark.parametrize("make", [dense_encoder, tree_encoder])
def test_an_encoding_does_not_know_the_targets_of_its_fold(make) -> None:
    whole = table()
    folds = folds_of(len(whole), 4, seed=1)
    changed = whole.y.copy()
    changed[folds[2]] += 100
    before, after = (encode_folds(make, dataclasses.replace(whole, y=y), folds) for y in (whole.y, changed))
    assert np.array_equal(before.rows.X[folds[2]], after.rows.X[folds[2]])
    assert not np.array_equal(before.rows.X[folds[0]], after.rows.X[folds[0]])
    assert np.array_equal(before.encoders[2](whole.X), after.encoders[2](whole.X))


def test_plain_rows_are_passed_on_as_they_are() -> None:
    X, y, _ = rows()
    plain = TrainingRows(X, y)
    for make in (dense_encoder, tree_encoder):
        assert make(plain)(X) is X
        assert encode_folds(make, plain, folds_of(len(y), 3, seed=1)).rows is plain


def test_columns_learn_kinds_and_levels() -> None:
    frame = pd.DataFrame(
        {
            "number": [1, 2, 3],
            "nullable": pd.array([1, None, 3], dtype="Int64"),
            "truth": [True, False, True],
            "text": ["b", "a", None],
            "ordered": pd.Categorical(["low", "high", "low"], categories=["low", "mid", "high"], ordered=True),
        }
    )
    columns = Columns.learn(frame)
    assert [column.levels for column in columns.columns] == [None, None, None, ("a", "b"), ("low", "high")]
    expected = [[1, 1, 1, 1, 0], [2, np.nan, 0, 0, 1], [3, 3, 1, np.nan, 0]]
    np.testing.assert_array_equal(columns.matrix(frame), expected)
    new = frame.astype({"text": object, "ordered": object}).assign(text=["c", "a", "b"], ordered=["mid", None, "low"])
    np.testing.assert_array_equal(columns.matrix(new)[:, 3:], [[2, 2], [0, np.nan], [1, 0]])


def test_the_kernel_is_the_one_of_a_gaussian_process() -> None:
    """A sanity check of the independent computation above: weights as noise are what scikit-learn calls alpha."""
    X, y, weight = rows(30)
    process = GaussianProcessRegressor(RBF(1.0), alpha=0.1 / weight, optimizer=None).fit(X, y)
    repeated_process = GaussianProcessRegressor(RBF(1.0), alpha=0.1, optimizer=None).fit(*repeated(X, y, weight))
    np.testing.assert_allclose(process.predict(X), repeated_process.predict(X), rtol=1e-6)
