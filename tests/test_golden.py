"""Whole splits: against the published value of that very split, and against themselves."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
from sklearn.cluster import KMeans

from anchormoe import methods
from anchormoe.config.compose import jobs
from anchormoe.config.schema import Config, MethodConfig
from anchormoe.data.dataset import Dataset
from anchormoe.data.splits import Split, inner_split, outer_split
from anchormoe.distributions.scores import scores
from anchormoe.methods import rff_krr
from anchormoe.report import published
from anchormoe.run import runner
from anchormoe.run.runner import load_dataset, make_split, one_thread, run_split
from anchormoe.run.store import Row

METRICS = ("rmse_y", "rmse_y_uncalibrated", "nll_z", "nll_y", "crps_y", "coverage_90", "epoch", "calibration_a")


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """As the runner's workers: the order of float32 sums, hence the last digits, depends on it."""
    with one_thread():
        yield


def config(*overrides: str) -> Config:
    (job,) = jobs(list(overrides))
    return job.config()


def numbers(row: Row) -> dict[str, float]:
    assert row["status"] == "ok", row
    return {name: row[name] for name in METRICS}


# --- against the published splits

# The published runs trained all 400 epochs; these splits' best comes early. Patience ends phase 1 soon after it and
# leaves phase 2 as it is, which fewer epochs would not (its temperature is where 400 epochs leave it).
PATIENCE = "train.patience=20"


@pytest.mark.parametrize(("dataset", "split"), [("boston", 1), ("boston", 2), ("boston", 6), ("wine", 3)])
def test_split_gives_the_published_numbers(dataset: str, split: int) -> None:
    row = run_split(config(f"dataset={dataset}", "protocol=published", "anchor=gbdt", PATIENCE), split)
    assert row["status"] == "ok", row
    facts = published.notebook("full", dataset)
    assert facts.stages is not None
    assert facts.epochs is not None
    assert row["anchor_stage"] == facts.stages[split - 1]
    assert row["epoch"] == facts.epochs[split - 1]
    assert row["rmse_y"] == pytest.approx(facts.rmse[split - 1], abs=0.001)
    assert row["nll_z"] == pytest.approx(facts.nll_z[split - 1], abs=0.001)


# --- against themselves


@pytest.fixture(scope="module")
def no_anchor() -> Config:
    return config("dataset=yacht", "ablation=no_anchor", "train.epochs=20")


def test_a_split_run_twice_gives_equal_bits(no_anchor: Config) -> None:
    first, again = (run_split(no_anchor, 5) for _ in range(2))
    assert first["anchor_stage"] is None
    assert numbers(first) == numbers(again)


def test_a_split_alone_equals_the_split_after_another(no_anchor: Config) -> None:
    alone = numbers(run_split(no_anchor, 5))
    before, after = (numbers(run_split(no_anchor, split)) for split in (4, 5))
    assert after == alone
    assert before != alone


def test_another_seed_gives_other_numbers(no_anchor: Config) -> None:
    other = config("dataset=yacht", "ablation=no_anchor", "train.epochs=20", "seed=2")
    assert numbers(run_split(other, 5)) != numbers(run_split(no_anchor, 5))


def test_no_cal_of_the_clean_protocol_is_the_same_model_without_the_linear_map() -> None:
    short = ("dataset=yacht", "protocol=clean", "anchor=gbdt", "anchor.stages=30", "train.epochs=10")
    full, no_cal = (run_split(config(*short, f"ablation={ablation}"), 2) for ablation in ("full", "no_cal"))
    for name in ("nll_z", "crps_y", "coverage_90", "rmse_y_uncalibrated", "epoch", "anchor_stage"):
        assert no_cal[name] == full[name], name
    assert no_cal["rmse_y"] == no_cal["rmse_y_uncalibrated"]
    assert full["rmse_y"] != full["rmse_y_uncalibrated"]


@pytest.mark.parametrize("ablation", ["full", "no_anchor", "no_router", "no_cal"])
def test_scores_do_not_depend_on_the_unit_of_the_target(ablation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Target and anchor are z-scored: in units 2^10 times smaller everything in z stays, everything in y scales."""
    overrides = ("dataset=yacht", "anchor.stages=20", "train.epochs=5", f"ablation={ablation}")
    row = run_split(config(*overrides), 1)
    monkeypatch.setattr(runner, "load_dataset", lambda config: in_other_units(load_dataset(config)))
    other = run_split(config(*overrides), 1)
    assert other["epoch"] == row["epoch"]
    assert other["nll_z"] == pytest.approx(row["nll_z"], abs=1e-4)
    assert other["nll_y"] == pytest.approx(row["nll_y"] + 10 * np.log(2), abs=1e-4)
    for name in ("rmse_y", "crps_y"):
        assert other[name] == pytest.approx(1024 * row[name], rel=1e-4)


def in_other_units(dataset: Dataset) -> Dataset:
    return dataclasses.replace(dataset, y=1024 * dataset.y)


# --- the kernel-ridge mixture behind the published Kin8nm row


def test_published_protocol_puts_the_kernel_ridge_mixture_in_kin8nms_place() -> None:
    assert config("dataset=kin8nm", "protocol=published").effective_method == "rff_krr"
    assert config("dataset=kin8nm", "protocol=published", "ablation=no_router").effective_method == "anchormoe"
    assert config("dataset=kin8nm", "protocol=clean").effective_method == "anchormoe"


def small_table() -> tuple[Dataset, Split]:
    """One row lies far from the others, so that one cluster has a single member."""
    stream = np.random.RandomState(0)
    X = stream.normal(size=(80, 3)) * [1.0, 20.0, 0.1] + 5
    y = 100 + np.sin(X[:, 0]) * X[:, 1] + stream.normal(size=80)
    train, test = outer_split(80, 2, seed=1)
    X[train[7]] = 1000.0
    split = inner_split(2, train, test, 1, calibration_fraction=0.125, validation_fraction=0.2)
    return Dataset("small", "only", X, y, ("a", "b", "c"), "y", "none"), split


def test_kernel_ridge_mixture_equals_a_direct_dense_solve(monkeypatch: pytest.MonkeyPatch) -> None:
    clusters, features, seed = 4, 16, 10 + 2
    monkeypatch.setattr(rff_krr, "NUM_CLUSTERS", clusters)
    monkeypatch.setattr(rff_krr, "NUM_FEATURES", features)
    dataset, split = small_table()
    config = Config(seed=10, method=MethodConfig("rff_krr"))
    outcome = methods.fit_predict(config, dataset, split, inner_seed=999)  # it has a seed of its own

    X, y = dataset.X[split.train], dataset.y[split.train]
    center, scale = y.mean(), y.std() + 1e-8
    X_test = (dataset.X[split.test] - X.mean(0)) / X.std(0)
    X, z = (X - X.mean(0)) / X.std(0), (y - center) / scale
    kmeans = KMeans(clusters, n_init=10, random_state=seed).fit(X)
    sizes = np.bincount(kmeans.labels_, minlength=clusters)
    assert 1 in sizes

    def kernel(rows: np.ndarray, k: int) -> np.ndarray:
        return np.exp(-((rows - kmeans.cluster_centers_[k]) ** 2).sum(1) / (2 * bandwidths[k] ** 2))

    members = [X[kmeans.labels_ == k] - kmeans.cluster_centers_[k] for k in range(clusters)]
    bandwidths = [np.sqrt((m**2).sum() / len(m) + 1e-6) if len(m) > 1 else 1.0 for m in members]
    total, total_test = (sum(kernel(rows, k) for k in range(clusters)) + 1e-12 for rows in (X, X_test))
    density, mean_z = np.zeros(len(X_test)), np.zeros(len(X_test))
    z_test = (dataset.y[split.test] - center) / scale
    for k in range(clusters):
        stream = np.random.RandomState(seed + 100 + k)
        frequency = stream.normal(size=(3, features)) / bandwidths[k]
        phase = stream.uniform(0, 2 * np.pi, features)
        design, design_test = (np.sqrt(2 / features) * np.cos(rows @ frequency + phase) for rows in (X, X_test))
        W = np.diag(kernel(X, k) / total)
        theta = np.linalg.solve(design.T @ W @ design + 1e-3 * np.eye(features), design.T @ W @ z)
        variance = max(np.average((z - design @ theta) ** 2, weights=np.diag(W)), 1e-8)
        weight, mean = kernel(X_test, k) / total_test, design_test @ theta
        normal = np.exp(-0.5 * (z_test - mean) ** 2 / variance) / np.sqrt(2 * np.pi * variance)
        density += (weight + 1e-12) * normal
        mean_z += weight * mean

    np.testing.assert_allclose(outcome.mean_y, mean_z * scale + center, rtol=1e-8)
    received = scores(outcome, dataset.y[split.test])
    assert received["nll_z"] == pytest.approx(-np.log(density).mean(), rel=1e-8)
    assert received["nll_y"] == pytest.approx(-np.log(density).mean() + np.log(scale), rel=1e-8)
    assert received["rmse_y"] == pytest.approx(
        np.sqrt(np.mean((mean_z * scale + center - dataset.y[split.test]) ** 2)), rel=1e-8
    )
    assert (outcome.anchor_stage, outcome.epoch, outcome.calibration_a) == (None, None, None)


def test_kernel_ridge_mixture_is_run_on_kin8nm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few features, for speed: still far better than the mean of the target."""
    monkeypatch.setattr(rff_krr, "NUM_CLUSTERS", 3)
    monkeypatch.setattr(rff_krr, "NUM_FEATURES", 64)
    kin8nm = config("dataset=kin8nm", "protocol=published")
    row = run_split(kin8nm, 1)
    assert (row["status"], row["method"], row["anchor"]) == ("ok", "rff_krr", "none")
    dataset = load_dataset(kin8nm)
    split = make_split(kin8nm, len(dataset.y), 1)
    assert row["rmse_y"] < 0.9 * dataset.y[split.test].std()
    assert row["scale_y"] == pytest.approx(dataset.y[split.train].std())
