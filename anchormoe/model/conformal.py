"""Conformal maps of the distribution function: their central intervals have a guaranteed coverage at every level.

Let u_1 <= ... <= u_n be the cdf at n targets, and let the value of a new row be exchangeable with them. Then it lies
below u_k with probability at most k / (n + 1), and above u_k with probability at most 1 - k / (n + 1). So the quantile
of a level p < 1/2 must not lie above u_k for k the whole part of p (n + 1), nor that of a level p > 1/2 below u_k for k
the same rounded up. For the map R this means

    R(u_k) >= (k + 1) / (n + 1) where that is below 1/2,    R(u_k) <= (k - 1) / (n + 1) where that is above 1/2,

and the central interval of coverage c holds a new row with probability at least c, for every c from 4 / (n + 1) up to
1 - 2 / (n + 1). The added or subtracted 1 is the correction for a finite number of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from anchormoe.distributions.monotone import CLOSEST, MonotoneMap
from anchormoe.errors import UserError
from anchormoe.model.calibration import Recalibration, fit_pit_map
from anchormoe.model.settings import Calibration

CORRECTION = 1  # see above; without it the intervals are those of n rows' own quantiles, and cover too little
NEAR_THE_LAST = 0.9
LIFT = 0.3  # share of a shortfall by which knots are raised at a time; neighbours then need less


def fit_recalibration(calibration: Calibration, pit: np.ndarray, weight: np.ndarray | None = None) -> Recalibration:
    """Fit the map that a calibration asks for to the cdf at held-out targets (n)."""
    if calibration is Calibration.pit:
        return fit_pit_map(pit, weight)
    if weight is not None:
        raise UserError(
            "calibration must be other than conformal for rows with sample_weight, received conformal: "
            "its guarantee is for rows that count alike; calibration='pit' takes weights"
        )
    return fit_conformal_map(pit)


def fit_conformal_map(pit: np.ndarray) -> Recalibration:
    """Fit the map to the cdf at held-out targets (n).

    It meets the condition at every row. Its knots are at some of them, about sqrt(n) / 2 apart and closer towards the
    ends, so that its derivative, a factor of the density, is no more ragged than need be; where the curve between two
    knots would miss the condition, both are moved until it does not.
    """
    # The upper half is the lower half of the values 1 - u, turned round.
    tails = [_Tail(np.sort(pit)), _Tail(np.sort(1 - pit))]
    while True:
        low, high = tails
        fitted = _joined(low.knots, low.values, 1 - high.knots[::-1], 1 - high.values[::-1])
        lifts = [low.lift(fitted), high.lift(lambda u, fitted=fitted: 1 - fitted(1 - u))]  # type: ignore[misc]
        if not any(lifts):
            return Recalibration(fitted, len(pit))


def _joined(low: np.ndarray, low_values: np.ndarray, high: np.ndarray, high_values: np.ndarray) -> MonotoneMap:
    """Return the map through the knots of both halves; where the halves meet in one value, it becomes 1/2."""
    if len(low) > 0 and len(high) > 0 and high[0] - low[-1] < CLOSEST:
        low_values = np.append(low_values[:-1], 0.5)
        high, high_values = high[1:], high_values[1:]
    return MonotoneMap(np.concatenate([low, high]), np.concatenate([low_values, high_values]))


class _Tail:
    """The knots in one half of a conformal map, whose values are raised until the map meets the condition."""

    def __init__(self, ordered: np.ndarray) -> None:
        num_rows = len(ordered)
        last = max(0, math.ceil((num_rows + 1) / 2) - 1 - CORRECTION)  # the last k with (k + 1) / (n + 1) below 1/2
        k = np.arange(1, last + 1)
        self._positions, self._required = np.clip(ordered[:last], CLOSEST, None), (k + CORRECTION) / (num_rows + 1)
        self._least_lift = max(CLOSEST, 1e-2 / (num_rows + 1))
        chosen, step, longest = [], 1, max(4, round(math.sqrt(num_rows) / 2))
        at = 0
        while at < last - 1:
            chosen.append(at)
            step = min(2 * step, longest)
            at += step
        index = np.array([*chosen, last - 1] if last > 0 else [], dtype=np.intp)
        # Of knots that are too close to be told apart, the first keeps its place and the last its value.
        knots, values = self._positions[index], self._required[index]
        first = np.concatenate([[True], np.diff(knots) >= CLOSEST]) if len(knots) else np.empty(0, dtype=bool)
        self.knots = knots[first]
        self.values = np.maximum.reduceat(values, np.flatnonzero(first)) if len(knots) else values
        if len(knots) and (1 - NEAR_THE_LAST) * knots[0] >= CLOSEST:
            # The levels from 1 / (n + 1) to 2 / (n + 1) need the last row and nothing beyond: they are kept near it.
            self.knots = np.insert(self.knots, 0, NEAR_THE_LAST * knots[0])
            self.values = np.insert(self.values, 0, (1 + CORRECTION) / 2 / (num_rows + 1))

    def lift(self, lower: Callable[[np.ndarray], np.ndarray]) -> bool:
        """Raise the knots beside each row where the map is too low; return whether there was any."""
        missing = self._required - lower(self._positions)
        short = missing > 0
        if not short.any():
            return False
        after = np.searchsorted(self.knots, self._positions[short])
        raised = np.zeros(len(self.knots))
        for side in (after - 1, after):
            np.maximum.at(raised, np.clip(side, 0, len(raised) - 1), LIFT * missing[short] + self._least_lift)
        steps = CLOSEST * np.arange(len(raised))
        increasing = np.maximum.accumulate(self.values + raised - steps) + steps
        self.values = np.minimum(increasing, 0.5 - CLOSEST * (len(raised) - np.arange(len(raised))))
        return True
