"""Slopes on the log-log scale with bootstrap intervals, from rows that hold one value per replicate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

DRAWS = 2000
LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A number with its bootstrap interval."""

    value: float
    low: float
    high: float

    @property
    def text(self) -> str:
        """Return the number and its interval, such as `-0.50 [-0.52, -0.48]`."""
        return f"{signed(self.value)} [{signed(self.low)}, {signed(self.high)}]"


def signed(value: float) -> str:
    """Write a number with two decimals and a real minus sign."""
    return f"{value:.2f}".replace("-", "−")


@dataclass(frozen=True)
class Curve:
    """Values of replicates (lists of any length) at places x."""

    x: np.ndarray
    values: tuple[np.ndarray, ...]

    @classmethod
    def of_rows(cls, rows: pd.DataFrame, x: str, y: str, minus: str | None = None) -> Curve:
        """Read a curve from rows; with `minus`, the values are differences of two columns."""
        rows = rows.sort_values(x)
        values = [np.asarray(value, dtype=float) for value in rows[y]]
        if minus is not None:
            values = [value - np.asarray(other) for value, other in zip(values, rows[minus], strict=True)]
        return cls(rows[x].to_numpy(dtype=float), tuple(values))

    @property
    def mean(self) -> np.ndarray:
        """Return the mean over replicates at every place."""
        return np.array([value.mean() for value in self.values])

    def from_(self, least: float) -> Curve:
        """Return the part of the curve at places of at least this."""
        kept = self.x >= least
        return Curve(self.x[kept], tuple(value for value, keep in zip(self.values, kept, strict=True) if keep))

    def bootstrapped(self) -> np.ndarray:
        """Return means of replicates drawn with replacement (draws, places)."""
        rng = np.random.default_rng(0)
        return np.stack(
            [value[rng.integers(0, len(value), size=(DRAWS, len(value)))].mean(axis=1) for value in self.values], axis=1
        )

    def slope(self) -> Estimate:
        """Return the slope of log mean against log x; draws in which a mean is not positive do not count."""
        draws = self.bootstrapped()
        slopes = _slopes(self.x, draws[(draws > 0).all(axis=1)])
        return Estimate(float(_slopes(self.x, self.mean[None, :])[0]), *interval(slopes))


def interval(values: np.ndarray) -> tuple[float, float]:
    """Return the central interval of bootstrap draws."""
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _slopes(x: np.ndarray, means: np.ndarray) -> np.ndarray:
    centred = np.log(x) - np.log(x).mean()
    return np.log(means) @ centred / (centred @ centred)


def mean_estimate(groups: Sequence[np.ndarray]) -> Estimate:
    """Return the mean over groups of the groups' means; each group's values are drawn with replacement."""
    curve = Curve(np.arange(1.0, len(groups) + 1), tuple(groups))
    return Estimate(float(curve.mean.mean()), *interval(curve.bootstrapped().mean(axis=1)))
