"""Fitted anchors: functions from rows to means in the target's units.

They are classes and not closures, so that a fitted anchor can be stored and sent to another process. Rows have the
columns of the training rows; an anchor encodes categories and gaps itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anchormoe.model.anchors.boosted import BoostedModel
from anchormoe.model.encoding import Encoder

Predict = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class ConstantAnchor:
    """The mean of the target, where there is no anchor."""

    value: float

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return np.full(len(X), self.value)


@dataclass(frozen=True)
class RegressorAnchor:
    """A fitted regressor of the target (y - center) / scale."""

    model: Any
    encoder: Encoder
    center: float = 0.0
    scale: float = 1.0

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(self.model.predict(self.encoder(X)), dtype=np.float64).reshape(-1) * self.scale + self.center


@dataclass(frozen=True)
class StagedAnchor:
    """A boosted model cut at a stage."""

    model: BoostedModel
    encoder: Encoder
    stage: int

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(self.model.predict(self.encoder(X), stages=self.stage), dtype=np.float64)


@dataclass(frozen=True)
class StackedAnchor:
    """A combination of anchors: center + sum_k weights_k (part_k - center), kept between `low` and `high`."""

    center: float
    weights: np.ndarray
    parts: Sequence[Predict]
    low: float
    high: float

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Combine the parts that have a weight; the others are not computed."""
        used = [(weight, part) for weight, part in zip(self.weights, self.parts, strict=True) if weight > 0]
        mean = self.center + sum((weight * (part(X) - self.center) for weight, part in used), np.zeros(len(X)))
        return np.clip(mean, self.low, self.high)


@dataclass(frozen=True)
class StackMember:
    """A member of a stack: its weight, its own out-of-fold error, and its stage if it has stages."""

    name: str
    weight: float
    rmse: float
    stage: int | None
