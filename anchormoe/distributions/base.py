"""The base class of predicted distributions: one per row, in the target's units, NumPy arrays in and out."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from numbers import Real

import numpy as np
from scipy.special import logsumexp

Rng = np.random.Generator | int

_SURE = 1e-8  # a difference of two cdf values above this has at least eight sure digits
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(64)


class Distribution(ABC):
    """Predicted distributions of N rows.

    A subclass works in standard units, z = (y - center) / scale, the ones a model was fitted in; this class turns them
    into the target's units. Values y are (N,) arrays or one number for all rows.
    """

    center: float = 0.0
    scale: float = 1.0
    reported_mean: np.ndarray | None = None  # the mean to report if it is not the density's; see `mean`
    mean_before_calibration: np.ndarray | None = None

    @property
    @abstractmethod
    def num_rows(self) -> int:
        """Return the number of rows."""

    @abstractmethod
    def _mean(self) -> np.ndarray: ...

    @abstractmethod
    def _std(self) -> np.ndarray: ...

    @abstractmethod
    def _log_prob(self, z: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def _cdf(self, z: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def _quantile(self, level: np.ndarray) -> np.ndarray:
        """Return the quantiles of one level per row."""

    @abstractmethod
    def _crps(self, z: np.ndarray) -> np.ndarray: ...

    def _prob(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        return self._cdf(high) - self._cdf(low)

    def _log_cell(self, z: np.ndarray, width: float) -> np.ndarray:
        """Return the log-probabilities of the cells of one width around z.

        A difference of two cdf values has few digits where the cell holds little. There the density is integrated, by
        Gauss and Legendre's rule and in log space.
        """
        probability = self._prob(z - width / 2, z + width / 2)
        sure = probability > _SURE
        if sure.all():
            return np.log(probability)
        nodes = np.stack([self._log_prob(z + node * width / 2) for node in _NODES])
        integral = logsumexp(nodes, axis=0, b=_NODE_WEIGHTS[:, None]) + math.log(width / 2)
        return np.where(sure, np.log(np.where(sure, probability, 1.0)), integral)

    def _sample(self, num_samples: int, rng: np.random.Generator) -> np.ndarray:
        return np.stack([self._quantile(_inside(rng.random(self.num_rows))) for _ in range(num_samples)])

    @property
    def mean(self) -> np.ndarray:
        """Return the mean of each row (N,).

        The paper's recipe calibrates the mean and leaves the density as it is; then this is the calibrated mean.
        """
        return self.reported_mean if self.reported_mean is not None else self.density_mean

    @property
    def density_mean(self) -> np.ndarray:
        """Return the mean of each row's density (N,), also where another one is reported."""
        return np.asarray(self._mean(), dtype=np.float64) * self.scale + self.center

    @property
    def std(self) -> np.ndarray:
        """Return the standard deviation of each row (N,)."""
        return np.asarray(self._std(), dtype=np.float64) * self.scale

    def log_prob(self, y: np.ndarray | float) -> np.ndarray:
        """Return the log-density at y (N,)."""
        return np.asarray(self.standard_log_prob(y), dtype=np.float64) - math.log(self.scale)

    def standard_log_prob(self, y: np.ndarray | float) -> np.ndarray:
        """Return the log-density of the standardised target, in the precision the model computes in."""
        return self._log_prob(self._standardised(y))

    def log_cell(self, y: np.ndarray | float, width: float) -> np.ndarray:
        """Return log [(F(y + width / 2) - F(y - width / 2)) / width] (N,), which for width 0 is the log-density.

        This is the log-probability that a value is recorded as y where values are recorded in steps of `width`, in the
        units of a log-density. It is never above -log(width).
        """
        if width == 0:
            return self.log_prob(y)
        return self._log_cell(self._standardised(y), width / self.scale) - math.log(width)

    def cdf(self, y: np.ndarray | float) -> np.ndarray:
        """Return the probability of a value up to y (N,)."""
        return self._cdf(self._standardised(y))

    def prob(self, low: np.ndarray | float, high: np.ndarray | float) -> np.ndarray:
        """Return the probability of a value between low and high (N,); either may be infinite."""
        return self._prob(self._standardised(low), self._standardised(high))

    def quantile(self, level: np.ndarray | Sequence[float] | float) -> np.ndarray:
        """Return the value below which a share `level` lies: (N,) for one level, (N, Q) for Q levels."""
        levels = np.asarray(level, dtype=np.float64)
        if levels.size == 0 or not bool(((levels > 0) & (levels < 1)).all()):
            raise ValueError(f"level must lie strictly between 0 and 1, received {level}")
        if levels.ndim > 1:
            raise ValueError(f"level must be a number or a list of numbers, received an array of shape {levels.shape}")
        columns = [self._quantile(np.full(self.num_rows, one)) * self.scale + self.center for one in levels.ravel()]
        return columns[0] if levels.ndim == 0 else np.stack(columns, axis=1)

    def interval(self, coverage: float) -> np.ndarray:
        """Return the central interval that holds a share `coverage`: (N, 2), low and high."""
        if not (isinstance(coverage, Real) and 0 < coverage < 1):
            raise ValueError(f"coverage must lie strictly between 0 and 1, received {coverage}")
        return self.quantile([(1 - coverage) / 2, (1 + coverage) / 2])

    def crps(self, y: np.ndarray | float) -> np.ndarray:
        """Return the continuous ranked probability score at y (N,), in the target's units."""
        return self._crps(self._standardised(y)) * self.scale

    def sample(self, num_samples: int, rng: Rng) -> np.ndarray:
        """Draw random values (num_samples, N); `rng` is a generator or a seed."""
        return self._sample(num_samples, np.random.default_rng(rng)) * self.scale + self.center

    def _standardised(self, y: np.ndarray | float) -> np.ndarray:
        values = (np.asarray(y, dtype=np.float64) - self.center) / self.scale
        if values.ndim > 1 or (values.ndim == 1 and len(values) != self.num_rows):
            raise ValueError(f"y must be one number or {self.num_rows} of them, received shape {values.shape}")
        return np.broadcast_to(values, (self.num_rows,))


def _inside(uniform: np.ndarray) -> np.ndarray:
    """Keep uniform draws off 0, which has no finite quantile."""
    return np.maximum(uniform, np.finfo(np.float64).tiny)
