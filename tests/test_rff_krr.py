"""The kernel-ridge mixture behind the published Kin8nm row."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans

from anchormoe import methods
from anchormoe.config.compose import jobs
from anchormoe.config.schema import Config
from anchormoe.distributions.scores import scores
from anchormoe.methods import rff_krr
from anchormoe.methods.rff_krr import RIDGE, _weighted_ridge
from anchormoe.running.evaluate import evaluate, load_dataset
from anchormoe.running.identity import method_name
from anchormoe.running.tasks import make_task


def config(*overrides: str) -> Config:
    (job,) = jobs(overrides)
    return job.config()


@pytest.mark.parametrize("num_rows", [80, 200], ids=["fewer rows than features", "more"])
def test_the_weighted_ridge_is_the_normal_equations_solution(num_rows: int) -> None:
    rng = np.random.default_rng(0)
    design, weight = rng.standard_normal((num_rows, 120)), rng.uniform(0, 1, num_rows)
    z = rng.standard_normal(num_rows)
    gram = design.T @ (weight[:, None] * design) + RIDGE * np.eye(120)
    expected = np.linalg.solve(gram, design.T @ (weight * z))
    np.testing.assert_allclose(_weighted_ridge(design, weight, z), expected, rtol=1e-7, atol=1e-9)


def test_published_protocol_puts_the_kernel_ridge_mixture_in_kin8nms_place() -> None:
    assert method_name(config("dataset=kin8nm", "protocol=published")) == "rff_krr"
    assert method_name(config("dataset=kin8nm", "protocol=published", "ablation=no_router")) == "anchormoe"
    assert method_name(config("dataset=kin8nm", "protocol=clean")) == "anchormoe"
    crossfit = config("dataset=kin8nm", "method=anchormoe_crossfit")
    assert method_name(crossfit) == "anchormoe_crossfit"


def test_it_equals_a_direct_dense_solve(monkeypatch: pytest.MonkeyPatch) -> None:
    clusters, num_features, seed = 4, 16, 12
    monkeypatch.setattr(rff_krr, "NUM_CLUSTERS", clusters)
    monkeypatch.setattr(rff_krr, "NUM_FEATURES", num_features)
    stream = np.random.RandomState(0)
    X = stream.normal(size=(80, 3)) * [1.0, 20.0, 0.1] + 5
    y = 100 + np.sin(X[:, 0]) * X[:, 1] + stream.normal(size=80)
    X[7] = 1000.0  # far from the others: one cluster has a single member
    X, X_test, y, y_test = X[:72], X[72:], y[:72], y[72:]
    predicted = methods.make("rff_krr", {"random_state": seed}).fit(X, y).predict_dist(X_test)

    center, scale = y.mean(), y.std()
    X_test = (X_test - X.mean(0)) / X.std(0)
    X, z = (X - X.mean(0)) / X.std(0), (y - center) / scale
    kmeans = KMeans(clusters, n_init=10, random_state=seed).fit(X)
    assert 1 in np.bincount(kmeans.labels_, minlength=clusters)

    def kernel(rows: np.ndarray, k: int) -> np.ndarray:
        return np.exp(-((rows - kmeans.cluster_centers_[k]) ** 2).sum(1) / (2 * bandwidths[k] ** 2))

    members = [X[kmeans.labels_ == k] - kmeans.cluster_centers_[k] for k in range(clusters)]
    bandwidths = [np.sqrt((m**2).sum() / len(m) + 1e-6) if len(m) > 1 else 1.0 for m in members]
    total, total_test = (sum(kernel(rows, k) for k in range(clusters)) + 1e-12 for rows in (X, X_test))
    density, mean_z = np.zeros(len(X_test)), np.zeros(len(X_test))
    z_test = (y_test - center) / scale
    for k in range(clusters):
        stream = np.random.RandomState(seed + 100 + k)
        frequency = stream.normal(size=(3, num_features)) / bandwidths[k]
        phase = stream.uniform(0, 2 * np.pi, num_features)
        design, design_test = (np.sqrt(2 / num_features) * np.cos(rows @ frequency + phase) for rows in (X, X_test))
        W = np.diag(kernel(X, k) / total)
        theta = np.linalg.solve(design.T @ W @ design + 1e-3 * np.eye(num_features), design.T @ W @ z)
        variance = max(np.average((z - design @ theta) ** 2, weights=np.diag(W)), 1e-8)
        weight, mean = kernel(X_test, k) / total_test, design_test @ theta
        normal = np.exp(-0.5 * (z_test - mean) ** 2 / variance) / np.sqrt(2 * np.pi * variance)
        density += (weight + 1e-12) * normal
        mean_z += weight * mean

    np.testing.assert_allclose(predicted.mean, mean_z * scale + center, rtol=1e-8)
    received = scores(predicted, y_test)
    assert received["nll_z"] == pytest.approx(-np.log(density).mean(), rel=1e-8)
    assert received["nll_y"] == pytest.approx(-np.log(density).mean() + np.log(scale), rel=1e-8)
    assert received["rmse_y"] == pytest.approx(np.sqrt(np.mean((mean_z * scale + center - y_test) ** 2)), rel=1e-8)


def test_it_is_run_on_kin8nm(monkeypatch: pytest.MonkeyPatch) -> None:
    """With few features, for speed, it is still far better than the mean of the target."""
    monkeypatch.setattr(rff_krr, "NUM_CLUSTERS", 3)
    monkeypatch.setattr(rff_krr, "NUM_FEATURES", 64)
    task = make_task(config("dataset=kin8nm", "protocol=published"), 1)
    row = evaluate(task)
    assert (row["status"], row["method"], row["anchor"]) == ("ok", "rff_krr", "none")
    assert (row["anchor_stage"], row["epoch"], row["calibration_a"]) == (None, None, None)
    y = load_dataset(task).y
    train, test = task.split.rows(len(y))
    assert row["rmse_y"] < 0.9 * y[test].std()
    assert row["scale_y"] == pytest.approx(y[train].std())
