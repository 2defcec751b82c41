"""The presets of conf/ without Hydra, for those who use the regressor as a library.

A recipe is a file of conf/method, an anchor one of conf/anchor: the same files that a run of the harness composes.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import yaml

from anchormoe.model.settings import (
    AnchorKind,
    AnchorSettings,
    Calibration,
    CrossfitSettings,
    ModelSettings,
    TrainingSettings,
    as_enum,
    changed,
    hint,
)
from anchormoe.paths import shipped

# recipe -> the method of the harness, whose file in conf/method holds its settings
RECIPES = {
    "crossfit": "anchormoe_crossfit",
    "fast": "anchormoe_fast",
    "best": "anchormoe_best",
    "paper": "anchormoe",
}


@dataclasses.dataclass(frozen=True)
class RecipePreset:
    """The settings of a recipe where the user says nothing."""

    anchor: AnchorSettings
    model: ModelSettings
    train: TrainingSettings
    crossfit: CrossfitSettings
    calibration: Calibration


def recipe_preset(recipe: str) -> RecipePreset:
    """Return the preset of a recipe: `crossfit`, `fast`, `best` or `paper`."""
    if recipe not in RECIPES:
        raise ValueError(f"recipe must be one of {', '.join(RECIPES)}, received {recipe!r}")
    content, anchor = _method(RECIPES[recipe])
    return RecipePreset(
        changed(AnchorSettings(), anchor, "anchor"),
        changed(ModelSettings(), content.get("model", {}), "model"),
        changed(TrainingSettings(), content.get("train", {}), "train"),
        changed(CrossfitSettings(), content.get("crossfit", {}), "crossfit"),
        as_enum(Calibration, content.get("calibration", "linear"), "calibration"),
    )


def default_calibration(method: str) -> Calibration | None:
    """Return the calibration of a recipe by the name of its method in the harness; None for any other method."""
    recipes = {name: recipe for recipe, name in RECIPES.items()}
    return recipe_preset(recipes[method]).calibration if method in recipes else None


@functools.cache
def _method(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the content of a method's file, on top of that which it is based on, and its anchor's."""
    own = _content("method", name)
    content: dict[str, Any] = {}
    anchor: dict[str, Any] = {}
    for item in own.get("defaults", []):
        if isinstance(item, dict):
            anchor = _content("anchor", item["override /anchor"])
        elif item != "_self_":
            content, anchor = _method(item)
    groups = {name: {**content.get(name, {}), **own.get(name, {})} for name in ("model", "train", "crossfit")}
    return {**content, **own, **groups}, anchor


def anchor_preset(name: str) -> AnchorSettings:
    """Return the settings of a named anchor."""
    names = sorted(path.stem for path in (shipped("conf") / "anchor").glob("*.yaml") if path.stem != "sklearn")
    if name not in names:
        raise ValueError(
            f"anchor must be a regressor, None or one of {', '.join(names)}, received {name!r}{hint(name, names)}"
        )
    return changed(AnchorSettings(), _content("anchor", name), "anchor")


def foreign_anchor(regressor: Any) -> AnchorSettings:
    """Return the settings of an anchor that is a regressor of the user's."""
    return AnchorSettings(name=type(regressor).__name__, kind=AnchorKind.sklearn, regressor=regressor)


@functools.cache
def _content(group: str, name: str) -> dict[str, Any]:
    return yaml.safe_load((shipped("conf") / group / f"{name}.yaml").read_text(encoding="utf-8")) or {}
