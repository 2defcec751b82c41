"""The classes of this package that a saved file may hold, by their names, and the types of their fields."""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import types
import typing
from enum import Enum
from typing import Any

import numpy as np

from anchormoe.data.columns import Column, Columns
from anchormoe.distributions.joint import JointMixture
from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.distributions.monotone import MonotoneMap
from anchormoe.distributions.recalibrated import Recalibrated
from anchormoe.model import settings
from anchormoe.model.anchors.boosted import ExactTrees, LightGBMTrees, SklearnTrees, XGBoostTrees
from anchormoe.model.anchors.exact_trees import BoostedTrees
from anchormoe.model.anchors.fitted import (
    ConstantAnchor,
    RegressorAnchor,
    StackedAnchor,
    StackMember,
    StagedAnchor,
)
from anchormoe.model.anchors.kernel_machine import Kernel, KernelMachine
from anchormoe.model.anchors.quadratic import QuadraticRidge
from anchormoe.model.anchors.selection import SelectedAnchor
from anchormoe.model.calibration import LinearMap, Recalibration
from anchormoe.model.crossfit import FittedCrossfit, MeanOf, Member, TargetStatistics
from anchormoe.model.encoding import Encoder, IndicatorColumn, LowestColumn, MeanColumn, NumericColumn
from anchormoe.model.held_out import AnchorSummary, HeldOut, JointHeldOut
from anchormoe.model.joint import FittedJoint, JointAnchor
from anchormoe.model.latent_rows import LatentRows
from anchormoe.model.paper import FittedNetwork, FittedPaper
from anchormoe.model.pool import Spread
from anchormoe.model.standardise import Scaling
from anchormoe.model.training import SelectedEpoch

DATACLASSES: dict[str, Any] = {
    one.__name__: one
    for one in (
        *(FittedCrossfit, Spread, Member, MeanOf, TargetStatistics, FittedPaper, FittedNetwork, SelectedAnchor),
        *(Scaling, SelectedEpoch, LinearMap, AnchorSummary, HeldOut, GaussianMixture, StackMember),
        *(Recalibration, Recalibrated, MonotoneMap, LatentRows),
        *(FittedJoint, JointAnchor, JointHeldOut, JointMixture),
        *(ConstantAnchor, RegressorAnchor, StackedAnchor, StagedAnchor),
        *(SklearnTrees, ExactTrees, XGBoostTrees, LightGBMTrees, BoostedTrees, KernelMachine, Kernel, QuadraticRidge),
        *(Encoder, NumericColumn, IndicatorColumn, MeanColumn, LowestColumn, Columns, Column),
        *(settings.ModelSettings, settings.TrainingSettings, settings.AnchorSettings, settings.CrossfitSettings),
    )
}

ENUMS: dict[str, type[Enum]] = {
    one.__name__: one
    for one in (
        *(settings.AnchorMode, settings.RouterKind, settings.Combination, settings.SmoothAt, settings.Loss),
        settings.Covariance,
        *(settings.Calibration, settings.Fold, settings.InitialWeights, settings.AnchorKind, settings.Backend),
    )
}


@functools.cache
def field_types(kind: Any) -> dict[str, Any]:
    """Return the types of a dataclass's fields by their names."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def is_of(value: Any, wanted: Any) -> bool:
    """Tell whether a value is of an annotated type; whole numbers are also real ones, truth values are neither."""
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if wanted is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(is_of(value, one) for one in arguments)
    if origin is tuple:
        return isinstance(value, tuple) and all(is_of(item, arguments[0]) for item in value)
    if origin in (list, collections.abc.Sequence):
        return isinstance(value, list | tuple) and all(is_of(item, arguments[0]) for item in value)
    if origin is dict:
        key, content = arguments
        return isinstance(value, dict) and all(is_of(k, key) and is_of(item, content) for k, item in value.items())
    if origin is collections.abc.Callable:
        return callable(value)
    if wanted in (int, float):
        numbers = (int, np.integer) if wanted is int else (int, float, np.integer, np.floating)
        return isinstance(value, numbers) and not isinstance(value, bool)
    return isinstance(value, wanted)
