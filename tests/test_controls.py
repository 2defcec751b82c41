"""Controls of the cross-fitted recipe: the same stack of anchors, simpler densities around it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from anchormoe import methods
from anchormoe.commands.run import parse
from anchormoe.model import crossfit
from anchormoe.model.anchors.fitted import StackedAnchor
from anchormoe.model.crossfit import Settings
from anchormoe.model.sharing import shared_fits
from anchormoe.model.training_rows import TrainingRows
from anchormoe.report import documents
from anchormoe.running.tasks import make_task

QUICK = (
    "dataset=yacht",
    "protocol=clean",
    "crossfit.folds=3",
    "anchor.members.trees.stages=30",
    "anchor.members.xgboost.stages=30",
    "train.epochs=3",
    "train.min_steps=0",
)
CONTROLS = [name for name in methods.METHODS if name.startswith("control_")]
HEADS = ("control_xgboost_scale", "control_one_variance", "control_residual_quantiles")


def table(num_rows: int = 150, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    stream = np.random.default_rng(seed)
    X = stream.normal(size=(num_rows, 3))
    return X, X[:, 0] + np.abs(X[:, 1]) * stream.normal(0, 0.5, num_rows)


def made(name: str) -> Any:
    (job,) = parse([f"method={name}", *QUICK])
    task = make_task(job.config(), 1)
    return methods.make(task.method, task.arguments)


def settings(name: str) -> Settings:
    (job,) = parse([f"method={name}", *QUICK])
    return Settings(job.crossfit, job.anchor, job.model, job.train, True, job.rules.initial_weights)


def test_there_are_six_controls_and_all_have_the_recipes_anchor() -> None:
    assert len(CONTROLS) == 6
    recipe = settings("anchormoe_crossfit").of_anchor()
    assert recipe.model.num_experts == 4
    for name in CONTROLS:
        assert settings(name).of_anchor() == recipe, name


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("control_one_expert", (1, 1, 3, "dot")),
        ("control_one_gaussian", (1, 1, 1, "dot")),
        ("control_no_router", (4, 2, 3, "none")),
    ],
)
def test_networks_of_controls(name: str, sizes: tuple[Any, ...]) -> None:
    model = settings(name).model
    assert (model.num_experts, model.top_k, model.num_components, model.router.value) == sizes


def test_one_variance_is_that_of_held_out_residuals() -> None:
    X, y = table()
    control = made("control_one_variance").fit(X, y)
    anchor = crossfit.fit_anchor(control.settings, TrainingRows(X, y), control.random_state)[0]
    new, _ = table(5, seed=1)
    distribution = control.predict_dist(new)
    mean = sum(model(new) for model in anchor.models) / 3
    variance = np.mean((y - anchor.mean) ** 2)
    chance = 1 / (len(y) + 1)
    np.testing.assert_allclose(distribution.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(distribution.std**2, (1 - chance) * variance + chance * y.var(), rtol=1e-9)


def test_the_scale_follows_the_noise() -> None:
    """The noise of the table grows with the second column, and the boosted scale sees it."""
    X, y = table(600)
    control = made("control_xgboost_scale").fit(X, y)
    quiet, loud = np.array([[0.0, 0.0, 0.0]]), np.array([[0.0, 2.0, 0.0]])
    assert control.predict_dist(loud).std[0] > 2 * control.predict_dist(quiet).std[0]


def test_residual_quantiles_are_those_of_the_members_average() -> None:
    X, y = table()
    control = made("control_residual_quantiles").fit(X, y)
    anchor = crossfit.fit_anchor(control.settings, TrainingRows(X, y), control.random_state)[0]
    residual = np.empty(len(y))
    for model, fold in zip(anchor.models, control.folds, strict=True):
        assert isinstance(model, StackedAnchor)
        residual[fold] = y[fold] - sum(part(X[fold]) for part in model.parts) / len(model.parts)
    inside = control.predict_dist(X[:1]).quantile([0.25, 0.75])[0]
    assert np.diff(inside)[0] == pytest.approx(np.diff(np.quantile(residual, [0.25, 0.75]))[0], rel=0.05)
    assert control.diagnostics_["density"] == "smoothed residuals"


def test_rows_of_a_run_share_the_anchor(tmp_path, monkeypatch) -> None:
    """In a run the stack is fitted once for the recipe and all controls, and no number depends on that."""
    X, y = table(60)
    alone = {name: made(name).fit(X, y).predict_dist(X[:4]) for name in ("anchormoe_crossfit", *CONTROLS)}
    fitted = []
    original = crossfit.out_of_fold.fit

    def counted(anchor, folds, **named):
        fitted.append(anchor.name)
        return original(anchor, folds, **named)

    monkeypatch.setattr(crossfit.out_of_fold, "fit", counted)
    with shared_fits(str(tmp_path)):
        for name, expected in alone.items():
            np.testing.assert_array_equal(made(name).fit(X, y).predict_dist(X[:4]).mean, expected.mean)
    assert fitted.count("stack") == 1


@pytest.mark.parametrize("name", CONTROLS)
def test_controls_take_categories_and_gaps(name: str) -> None:
    X, y = table(80)
    X[::7, 0] = np.nan
    X[:, 2] = np.arange(80) % 3
    (job,) = parse([f"method={name}", *QUICK])
    task = make_task(job.config(), 1)
    control = methods.make(task.method, task.arguments, categorical=[2])
    distribution = control.fit(X, y).predict_dist(X[:10])
    assert np.isfinite(distribution.log_prob(y[:10])).all()
    assert (np.diff(distribution.interval(0.9)) > 0).all()


@pytest.mark.parametrize("name", HEADS)
def test_a_constant_target_is_predicted(name: str) -> None:
    X, _ = table(40)
    distribution = made(name).fit(X, np.full(40, 3.0)).predict_dist(X[:5])
    np.testing.assert_allclose(distribution.mean, 3.0, atol=1e-6)
    assert np.isfinite(distribution.log_prob(3.0)).all()


def test_the_table_of_controls_counts_what_is_told_apart() -> None:
    stream, rows = np.random.default_rng(0), []
    for method, shift in (("anchormoe_crossfit", 0.0), ("control_one_variance", 1.0), ("control_no_router", 0.0)):
        for dataset in ("yacht", "boston"):
            for split in range(1, 21):
                score = 2 + shift + 0.01 * stream.normal()
                rows.append(
                    {"experiment": "controls", "dataset": dataset, "method": method, "split": split, "seed": 1}
                    | {
                        "ablation": "full",
                        "protocol": "clean",
                        "anchor": "stack",
                        "config_hash": method,
                        "status": "ok",
                    }
                    | {"variant": "standard", "nll_y": score, "nll_cell_y": score, "crps_y": score}
                )
    frame = pd.DataFrame(rows)
    nll, crps = documents.controls_nll(frame), documents.controls_crps(frame)
    (one_variance,) = [line for line in nll.splitlines() if line.startswith("| One variance")]
    assert one_variance.count("**+1.0") + one_variance.count("**+0.99") == 2
    assert one_variance.endswith("| 2 / 0 |")
    (no_router,) = [line for line in crps.splitlines() if line.startswith("| Experts, no router")]
    assert no_router.endswith("| 0 / 0 |")
    assert "**+50" in crps or "**+49" in crps
