"""Whole splits: against the published value of that very split, and against themselves."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest

from anchormoe.config.compose import jobs
from anchormoe.config.schema import Config
from anchormoe.data.dataset import Dataset
from anchormoe.report import published
from anchormoe.rows import Row
from anchormoe.running import evaluate as evaluation
from anchormoe.running.evaluate import evaluate, load_dataset
from anchormoe.running.tasks import make_task
from anchormoe.running.threads import one_thread

METRICS = ("rmse_y", "rmse_y_uncalibrated", "nll_z", "nll_y", "crps_y", "coverage_90", "epoch", "calibration_a")


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Use one thread, as workers do: the order of float32 sums, hence the last digits, depends on it."""
    with one_thread():
        yield


def config(*overrides: str) -> Config:
    (job,) = jobs(list(overrides))
    return job.config()


def run_split(config: Config, split: int) -> Row:
    return evaluate(make_task(config, split))


def numbers(row: Row) -> dict[str, float]:
    assert row["status"] == "ok", row
    return {name: row[name] for name in METRICS}


# --- against the published splits

# The published runs trained all 400 epochs; the best epoch of these splits comes early. Patience ends phase 1 soon
# after it and does not change phase 2, as fewer epochs would (its temperature is the one after 400 epochs).
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
    """In units 2^10 times smaller, scores of z stay and scores of y scale, because target and anchor are z-scored."""
    overrides = ("dataset=yacht", "anchor.stages=20", "train.epochs=5", f"ablation={ablation}")
    row = run_split(config(*overrides), 1)
    monkeypatch.setattr(evaluation, "load_dataset", lambda task: in_other_units(load_dataset(task)))
    other = run_split(config(*overrides), 1)
    assert other["epoch"] == row["epoch"]
    assert other["nll_z"] == pytest.approx(row["nll_z"], abs=1e-4)
    assert other["nll_y"] == pytest.approx(row["nll_y"] + 10 * np.log(2), abs=1e-4)
    for name in ("rmse_y", "crps_y"):
        assert other[name] == pytest.approx(1024 * row[name], rel=1e-4)


def in_other_units(dataset: Dataset) -> Dataset:
    return dataclasses.replace(dataset, y=1024 * dataset.y)
