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

METHODS = {"crossfit": "anchormoe_crossfit", "paper": "anchormoe"}  # recipe -> its file in conf/method


@dataclasses.dataclass(frozen=True)
class RecipePreset:
    """The settings of a recipe where the user says nothing."""

    anchor: AnchorSettings
    model: ModelSettings
    train: TrainingSettings
    crossfit: CrossfitSettings
    calibration: Calibration


def recipe_preset(recipe: str) -> RecipePreset:
    """Return the preset of a recipe, `crossfit` or `paper`."""
    if recipe not in METHODS:
        raise ValueError(f"recipe must be one of {', '.join(METHODS)}, received {recipe!r}")
    content = _content("method", METHODS[recipe])
    overridden = [item["override /anchor"] for item in content.get("defaults", []) if "override /anchor" in item]
    return RecipePreset(
        anchor_preset(overridden[0]) if overridden else AnchorSettings(),
        changed(ModelSettings(), content.get("model", {}), "model"),
        changed(TrainingSettings(), content.get("train", {}), "train"),
        CrossfitSettings(),
        as_enum(Calibration, content.get("calibration", "linear"), "calibration"),
    )


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
