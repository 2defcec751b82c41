"""Both recipes of Anchor-MoE are regressors: fitted once, they predict any rows any number of times."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from anchormoe import AnchorMoERegressor, methods
from anchormoe.config.compose import jobs
from anchormoe.config.presets import RECIPES
from anchormoe.distributions.scores import scores
from anchormoe.rows import Row, identity
from anchormoe.running.evaluate import evaluate, load_dataset
from anchormoe.running.store import read
from anchormoe.running.tasks import Task, make_task
from anchormoe.running.threads import one_thread

RESULTS = Path(__file__).parent.parent / "results"
# The largest difference of a recomputed score. The cross-fitted rows were made by the same compiled code; those of the
# paper's recipe were made by code whose float32 sums have another order.
CASES = {
    "anchormoe": (["anchor=trees"], "corrected", 1e-3),
    "anchormoe_crossfit": ([], "crossfit", 1e-9),
    "anchormoe_fast": ([], "crossfit", 1e-9),
}
SCORES = ("rmse_y", "rmse_y_uncalibrated", "nll_z", "nll_y", "crps_y", "coverage_90")


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


def stored_row(task: Task, experiment: str) -> Row:
    rows = {identity(row): row for row in read(RESULTS / experiment / "boston.jsonl")}
    return rows[identity(task.labels)]


@pytest.mark.parametrize("recipe", ["fast", "best", "crossfit"])
def test_the_class_used_by_hand_gives_the_harness_its_numbers_bit_for_bit(recipe: str) -> None:
    (job,) = jobs(["dataset=yacht", "protocol=clean", f"method={RECIPES[recipe]}"])
    task = make_task(job.config(), 1)
    dataset = load_dataset(task)
    train, test = task.split.rows(len(dataset.y))
    seed = int(np.random.SeedSequence([1, 1]).generate_state(1)[0])  # of seed 1, split 1
    model = AnchorMoERegressor(recipe, random_state=seed).fit(dataset.X[train], dataset.y[train])
    row, by_hand = evaluate(task), scores(model.predict_dist(dataset.X[test]), dataset.y[test], dataset.step)
    assert {name: row[name] for name in by_hand} == by_hand


@pytest.mark.parametrize("method", CASES)
def test_new_rows_are_predicted_in_batches_with_the_numbers_of_the_stored_row(method: str) -> None:
    settings, experiment, tolerance = CASES[method]
    (job,) = jobs(["dataset=boston", "protocol=clean", f"method={method}", *settings])
    task = make_task(job.config(), 1)
    dataset = load_dataset(task)
    train, test = task.split.rows(len(dataset.y))
    regressor = methods.make(task.method, task.arguments).fit(dataset.X[train], dataset.y[train])

    whole = regressor.predict_dist(dataset.X[test])
    received, expected = scores(whole, dataset.y[test]), stored_row(task, experiment)
    for name in SCORES:
        assert received[name] == pytest.approx(expected[name], rel=tolerance, abs=tolerance), name
    for name in ("epoch", "anchor_stage"):
        assert regressor.diagnostics_[name] == expected[name]

    halves = np.array_split(test, 2)
    for _ in range(2):
        parts = [regressor.predict_dist(dataset.X[rows]) for rows in halves]
        np.testing.assert_allclose(np.concatenate([part.mean for part in parts]), whole.mean, rtol=1e-5)
        log_prob = [part.log_prob(dataset.y[rows]) for part, rows in zip(parts, halves, strict=True)]
        np.testing.assert_allclose(np.concatenate(log_prob), whole.log_prob(dataset.y[test]), rtol=1e-3, atol=1e-4)
    assert np.array_equal(regressor.predict_dist(dataset.X[test]).mean, whole.mean)
