"""Smooth increasing maps of [0, 1] onto itself, which recalibrate distribution functions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

CLOSEST = 1e-9  # knots that lie closer together are one


@dataclass(frozen=True, eq=False)
class MonotoneMap:
    """The monotone rational quadratic spline (Gregory and Delbourgo, 1982) through (0, 0), the knots and (1, 1).

    With s the slope of the line over a piece of width w, d and e the slopes at its ends and t = (u - left) / w,

        R(u) = bottom + w s (s t^2 + d t (1 - t)) / (s + (d + e - 2 s) t (1 - t)).

    Its derivative is continuous and positive everywhere, and its inverse has a closed form. `knots` and `values` (K)
    increase strictly between 0 and 1; without any the map is the identity.
    """

    knots: np.ndarray
    values: np.ndarray

    def __post_init__(self) -> None:
        for name in ("knots", "values"):
            numbers = np.concatenate([[0.0], getattr(self, name), [1.0]])
            if not bool((np.diff(numbers) > 0).all()):
                raise ValueError(f"{name} must increase strictly between 0 and 1, received {getattr(self, name)}")
        if self.knots.shape != self.values.shape:
            raise ValueError(f"values must have the shape {self.knots.shape}, received {self.values.shape}")

    @classmethod
    def identity(cls) -> MonotoneMap:
        """Return the map that changes nothing."""
        return cls(np.empty(0), np.empty(0))

    @classmethod
    def through(cls, knots: np.ndarray, values: np.ndarray) -> MonotoneMap:
        """Make the map through points, without those that lie at the ends of [0, 1] or too close to the one before."""
        kept, last, last_value = [], 0.0, 0.0
        for position, (knot, value) in enumerate(zip(knots.tolist(), values.tolist(), strict=True)):
            if last + CLOSEST <= knot <= 1 - CLOSEST and last_value + CLOSEST <= value <= 1 - CLOSEST:
                kept.append(position)
                last, last_value = knot, value
        return cls(knots[kept], values[kept])

    def __call__(self, u: np.ndarray) -> np.ndarray:
        piece, t = self._place(np.clip(u, 0, 1), self._x)
        slope, left, right = self._slopes(piece)
        part = slope * t * t + left * t * (1 - t)
        rise = self._y[piece + 1] - self._y[piece]
        return self._y[piece] + rise * part / (slope + (left + right - 2 * slope) * t * (1 - t))

    def log_derivative(self, u: np.ndarray) -> np.ndarray:
        """Return log R'(u)."""
        piece, t = self._place(np.clip(u, 0, 1), self._x)
        slope, left, right = self._slopes(piece)
        above = right * t * t + 2 * slope * t * (1 - t) + left * (1 - t) ** 2
        below = slope + (left + right - 2 * slope) * t * (1 - t)
        return 2 * np.log(slope) + np.log(above) - 2 * np.log(below)

    def inverse(self, p: np.ndarray) -> np.ndarray:
        """Return the u with R(u) = p: the root of a quadratic, in the form that loses no digits."""
        piece, t = self._place(np.clip(p, 0, 1), self._y)
        slope, left, right = self._slopes(piece)
        rise, above = self._y[piece + 1] - self._y[piece], t * (self._y[piece + 1] - self._y[piece])
        bend = left + right - 2 * slope
        a, b, c = rise * (slope - left) + above * bend, rise * left - above * bend, -slope * above
        root = np.sqrt(np.maximum(b * b - 4 * a * c, 0))
        share = np.divide(2 * c, -b - root, out=np.zeros_like(c), where=c < 0)
        return self._x[piece] + share * (self._x[piece + 1] - self._x[piece])

    @cached_property
    def _x(self) -> np.ndarray:
        return np.concatenate([[0.0], self.knots, [1.0]])

    @cached_property
    def _y(self) -> np.ndarray:
        return np.concatenate([[0.0], self.values, [1.0]])

    @cached_property
    def _secants(self) -> np.ndarray:
        return np.diff(self._y) / np.diff(self._x)

    @cached_property
    def _derivatives(self) -> np.ndarray:
        """Return the slopes at the knots, the geometric means of the slopes on both sides."""
        secants = self._secants
        inner = np.sqrt(secants[1:] * secants[:-1])
        return np.concatenate([secants[:1], inner, secants[-1:]])

    def _place(self, value: np.ndarray, among: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the piece that holds each value, and how far into the piece it is, from 0 to 1."""
        piece = np.clip(np.searchsorted(among, value, side="right") - 1, 0, len(among) - 2)
        return piece, (value - among[piece]) / (among[piece + 1] - among[piece])

    def _slopes(self, piece: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self._secants[piece], self._derivatives[piece], self._derivatives[piece + 1]
