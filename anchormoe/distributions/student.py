"""Student's t-distributions, one per row."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import betaln, gammaln, stdtr, stdtrit

from anchormoe.distributions.base import Distribution


@dataclass(frozen=True, eq=False)
class StudentT(Distribution):
    """Student's t with `degrees` > 1 degrees of freedom, moved to `location` and stretched by `width`.

    location, width: (N,), in standard units.
    """

    location: np.ndarray
    width: np.ndarray
    degrees: float
    center: float = 0.0
    scale: float = 1.0
    reported_mean: np.ndarray | None = None
    mean_before_calibration: np.ndarray | None = None

    @property
    def num_rows(self) -> int:
        return len(self.location)

    def _mean(self) -> np.ndarray:
        return self.location

    def _std(self) -> np.ndarray:
        degrees = self.degrees
        return self.width * (math.sqrt(degrees / (degrees - 2)) if degrees > 2 else math.inf)

    def _log_prob(self, z: np.ndarray) -> np.ndarray:
        return log_density((z - self.location) / self.width, self.degrees) - np.log(self.width)

    def _cdf(self, z: np.ndarray) -> np.ndarray:
        return stdtr(self.degrees, (z - self.location) / self.width)

    def _prob(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        a, b = ((value - self.location) / self.width for value in (low, high))
        upper = a > 0  # both tails have all their digits below the mean
        a, b = np.where(upper, -b, a), np.where(upper, -a, b)
        return stdtr(self.degrees, b) - stdtr(self.degrees, a)

    def _quantile(self, level: np.ndarray) -> np.ndarray:
        return self.location + self.width * stdtrit(self.degrees, level)

    def _crps(self, z: np.ndarray) -> np.ndarray:
        """Compute t (2 F(t) - 1) + 2 f(t) (d + t^2) / (d - 1) - 2 sqrt(d) B(1/2, d - 1/2) / ((d - 1) B(1/2, d/2)^2)."""
        t, degrees = (z - self.location) / self.width, self.degrees
        density = np.exp(log_density(t, degrees))
        spread = 2 * math.sqrt(degrees) / (degrees - 1)
        spread *= math.exp(betaln(0.5, degrees - 0.5) - 2 * betaln(0.5, degrees / 2))
        around = 2 * density * (degrees + np.square(t)) / (degrees - 1)
        return self.width * (t * (2 * stdtr(degrees, t) - 1) + around - spread)


def log_density(t: np.ndarray, degrees: float) -> np.ndarray:
    """Return the log-density of the standard t-distribution."""
    constant = gammaln((degrees + 1) / 2) - gammaln(degrees / 2) - 0.5 * math.log(degrees * math.pi)
    return constant - (degrees + 1) / 2 * np.log1p(np.square(t) / degrees)
