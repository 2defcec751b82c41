"""The presets of conf/ without Hydra, for those who use the regressor as a library.

A recipe is a file of conf/method, an anchor one of conf/anchor: the same files that a run of the harness composes.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

import yaml

from anchormoe.model.settings import (
    AnchorKind,
    AnchorSettings,
    Calibration,
    CrossfitSettings,
    ModelSettings,
    TrainingSettings,
)
from anchormoe.paths import shipped

METHODS = {"crossfit": "anchormoe_crossfit", "paper": "anchormoe"}  # recipe -> its file in conf/method

Settings = TypeVar("Settings", ModelSettings, TrainingSettings, CrossfitSettings, AnchorSettings)


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
            f"anchor must be a regressor, None or one of {', '.join(names)}, received {name!r}{_hint(name, names)}"
        )
    return changed(AnchorSettings(), _content("anchor", name), "anchor")


def changed(settings: Settings, values: Mapping[str, Any], what: str) -> Settings:
    """Return settings with some values replaced; choices may be written as their names."""
    kinds = typing.get_type_hints(type(settings))
    converted = {}
    for name, value in values.items():
        if name not in kinds:
            raise ValueError(
                f"{what} must have settings among {', '.join(kinds)}, received {name!r}{_hint(name, list(kinds))}"
            )
        kind = kinds[name]
        is_choice = isinstance(kind, type) and issubclass(kind, Enum)
        converted[name] = as_enum(kind, value, f"{what}.{name}") if is_choice else value
    return dataclasses.replace(settings, **converted)


Choice = TypeVar("Choice", bound=Enum)


def as_enum(kind: type[Choice], value: Any, what: str) -> Choice:
    """Return a choice by its name; a choice is returned as it is."""
    if isinstance(value, kind):
        return value
    names = [item.name for item in kind]
    if value not in names:
        raise ValueError(f"{what} must be one of {', '.join(names)}, received {value!r}")
    return kind[value]


def foreign_anchor(regressor: Any) -> AnchorSettings:
    """Return the settings of an anchor that is a regressor of the user's."""
    return AnchorSettings(name=type(regressor).__name__, kind=AnchorKind.sklearn, regressor=regressor)


@functools.cache
def _content(group: str, name: str) -> dict[str, Any]:
    return yaml.safe_load((shipped("conf") / group / f"{name}.yaml").read_text(encoding="utf-8")) or {}


def _hint(name: object, names: list[str]) -> str:
    near = difflib.get_close_matches(str(name), names, n=1)
    return f"; did you mean {near[0]}?" if near else ""
