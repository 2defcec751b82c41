"""The presets of the regressor are those of the harness, and large tables get cheaper ones."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from anchormoe import AnchorMoERegressor
from anchormoe.config.compose import jobs
from anchormoe.config.presets import RECIPES, recipe_preset
from anchormoe.estimator.sizing import LARGE_ROWS, at_size
from anchormoe.model.settings import SMALL_TABLE, WIDTHS, AnchorKind

CROSSFITTED = sorted(set(RECIPES) - {"paper"})


@pytest.mark.parametrize("recipe", CROSSFITTED)
def test_a_recipe_of_the_regressor_is_the_method_of_the_harness(recipe: str) -> None:
    (job,) = jobs(["dataset=yacht", "protocol=clean", f"method={RECIPES[recipe]}"])
    config, preset = job.config(), recipe_preset(recipe)
    assert preset.anchor == config.anchor
    assert preset.model == config.model
    assert preset.train == config.train
    assert preset.crossfit == config.crossfit
    assert preset.calibration == config.calibration


def test_recipes_differ() -> None:
    presets = [recipe_preset(recipe) for recipe in RECIPES]
    assert all(first != second for number, first in enumerate(presets) for second in presets[:number])


@pytest.mark.parametrize("recipe", CROSSFITTED)
def test_large_tables_get_histograms_in_place_of_exact_trees(recipe: str) -> None:
    preset = recipe_preset(recipe)
    assert at_size(preset, LARGE_ROWS) is preset
    large = at_size(preset, 16 * LARGE_ROWS)
    kinds = [member.kind for member in large.anchor.stack_members()]
    assert kinds.count(AnchorKind.xgboost) == 1
    assert AnchorKind.trees not in kinds
    others = {member.kind for member in preset.anchor.stack_members()} - {AnchorKind.trees, AnchorKind.xgboost}
    assert set(kinds) == {AnchorKind.xgboost, *others}
    assert large.train.epochs == preset.train.epochs / 4
    assert large.train.batch_size == preset.train.batch_size * 4


def test_the_number_of_rows_decides_the_width_unless_it_is_stated() -> None:
    settings = recipe_preset("best").model
    assert [settings.for_rows(rows).width for rows in (SMALL_TABLE, SMALL_TABLE + 1)] == list(WIDTHS)
    stated = dataclasses.replace(settings, hidden_dim=7)
    assert stated.for_rows(SMALL_TABLE + 1).width == 7
    X = np.random.default_rng(0).uniform(-1, 1, (60, 2))
    quick = {"anchor": "ridge", "folds": 2, "training": {"epochs": 1, "min_steps": 0}, "random_state": 0}
    for hidden_dim, width in ((None, WIDTHS[0]), (5, 5)):
        model = AnchorMoERegressor("best", hidden_dim=hidden_dim, **quick).fit(X, X[:, 0])
        assert {member.model.config.width for member in model.fitted_.members} == {width}


@pytest.mark.parametrize("recipe", CROSSFITTED)
def test_every_recipe_fits_a_table(recipe: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (120, 3))
    y = X[:, 0] * X[:, 1] + 0.05 * rng.standard_normal(120)
    model = AnchorMoERegressor(recipe, training={"epochs": 5, "min_steps": 0}, random_state=0).fit(X[:100], y[:100])
    assert model.predict_dist(X[100:]).crps(y[100:]).mean() < 0.5 * np.abs(y[100:] - np.median(y[:100])).mean()
