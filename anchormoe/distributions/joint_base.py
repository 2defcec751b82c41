"""The base class of predicted distributions of several targets: one per row, in the targets' units, in NumPy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np

from anchormoe.distributions.base import Distribution, Rng

Target = int | str

NUM_DRAWS = 1000  # of each row, for the scores that are means over random draws
NUM_LAGS = 20  # pairs of draws: each with the next, the one after, ...
_BLOCK_ELEMENTS = 2**22  # size of the arrays for a block of rows; it bounds the memory and does not change results


class JointDistribution(ABC):
    """Distributions of N rows over T targets.

    A target is named by its position, counted from 0, or by its name in `names`, which is empty if the targets have
    none. Values y are (N, T) arrays.
    """

    names: tuple[str, ...] = ()

    @property
    @abstractmethod
    def num_rows(self) -> int:
        """Return the number of rows."""

    @property
    @abstractmethod
    def num_targets(self) -> int:
        """Return the number of targets."""

    @property
    @abstractmethod
    def covariance(self) -> np.ndarray:
        """Return the covariance matrix of each row (N, T, T)."""

    @abstractmethod
    def marginal(self, target: Target) -> Distribution:
        """Return the distribution of one target, whatever the others are."""

    @abstractmethod
    def rows(self, index: np.ndarray | slice) -> JointDistribution:
        """Return the distributions of some rows."""

    @abstractmethod
    def _log_prob(self, y: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def _sample(self, num_samples: int, rng: np.random.Generator) -> np.ndarray: ...

    @property
    def mean(self) -> np.ndarray:
        """Return the mean of each row (N, T)."""
        return self._by_target([one.mean for one in self.marginals])

    @property
    def std(self) -> np.ndarray:
        """Return the standard deviation of each row (N, T)."""
        return self._by_target([one.std for one in self.marginals])

    @property
    def marginals(self) -> tuple[Distribution, ...]:
        """Return the distributions of all targets, each by itself."""
        return tuple(self.marginal(number) for number in range(self.num_targets))

    def log_prob(self, y: np.ndarray) -> np.ndarray:
        """Return the log-density at y (N,), per product of the targets' units."""
        return self._log_prob(self._values(y))

    def quantile(self, level: Sequence[float] | float) -> np.ndarray:
        """Return the quantiles of each target by itself: (N, T) for one level, (N, T, Q) for Q levels."""
        return np.stack([one.quantile(level) for one in self.marginals], axis=1)

    def interval(self, coverage: float) -> np.ndarray:
        """Return each target's own central interval that holds a share `coverage`: (N, T, 2), low and high."""
        return np.stack([one.interval(coverage) for one in self.marginals], axis=1)

    def crps(self, y: np.ndarray) -> np.ndarray:
        """Return each target's continuous ranked probability score (N, T), in the unit of the target."""
        return self._by_target([one.crps(value) for one, value in zip(self.marginals, self._values(y).T, strict=True)])

    def sample(self, num_samples: int, rng: Rng) -> np.ndarray:
        """Draw random values (num_samples, N, T); `rng` is a generator or a seed."""
        return self._sample(num_samples, np.random.default_rng(rng))

    def energy_score(self, y: np.ndarray, scale: np.ndarray | float = 1.0) -> np.ndarray:
        """Return the energy score at y (N,), E|X - y| - 1/2 E|X - X'| with Euclidean lengths; lower is better.

        Lengths need targets of one unit: each target is divided by its `scale` (T,) first. The expectations are means
        over 1,000 random draws of each row and over 20,000 pairs of them, with a fixed seed. The standard error of a
        row's score is about 1.5% of the score, and that of a mean over N rows is smaller by the root of N.
        """
        values, scales = self._values(y), self._scales(scale)
        scores = np.empty(self.num_rows)
        for index, drawn in self._draws():
            drawn = drawn / scales
            to_y = np.linalg.norm(drawn - values[index] / scales, axis=2).mean(0)
            apart = np.zeros(drawn.shape[1])
            for lag in range(1, NUM_LAGS + 1):
                apart += np.linalg.norm(drawn - np.roll(drawn, lag, axis=0), axis=2).mean(0)
            scores[index] = to_y - 0.5 * apart / NUM_LAGS
        return scores

    def variogram_score(self, y: np.ndarray, p: float = 0.5, scale: np.ndarray | float = 1.0) -> np.ndarray:
        """Return the variogram score at y (N,), sum over i < j of (|y_i - y_j|^p - E|X_i - X_j|^p)^2; lower is better.

        It looks at the dependence between the targets. Differences need targets of one unit: each is divided by its
        `scale` (T,) first. The expectations are means over 1,000 random draws of each row, with a fixed seed, whose
        standard error is about 2% of them.
        """
        if not p > 0:
            raise ValueError(f"p must be positive, received {p}")
        values, scales = self._values(y) / self._scales(scale), self._scales(scale)
        first, second = np.triu_indices(self.num_targets, 1)
        scores = np.empty(self.num_rows)
        for index, drawn in self._draws():
            drawn, observed = drawn / scales, values[index]
            expected = (np.abs(drawn[..., first] - drawn[..., second]) ** p).mean(0)
            scores[index] = np.square(np.abs(observed[:, first] - observed[:, second]) ** p - expected).sum(1)
        return scores

    def position(self, target: Target) -> int:
        """Return the position of a target that is named by its position or its name."""
        if isinstance(target, str):
            if target not in self.names:
                known = ", ".join(self.names) or f"positions from 0 to {self.num_targets - 1}, for these have no names"
                raise ValueError(f"target must be one of {known}, received {target!r}")
            return self.names.index(target)
        whole = isinstance(target, int | np.integer) and not isinstance(target, bool)
        if not whole or not 0 <= target < self.num_targets:
            raise ValueError(f"target must be a position from 0 to {self.num_targets - 1}, received {target!r}")
        return int(target)

    def _draws(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield blocks of rows with their random draws (NUM_DRAWS, rows, T)."""
        size = max(1, _BLOCK_ELEMENTS // (NUM_DRAWS * self.num_targets**2))
        rng = np.random.default_rng(0)
        for first in range(0, self.num_rows, size):
            index = slice(first, first + size)
            yield index, self.rows(index)._sample(NUM_DRAWS, rng)

    def _by_target(self, columns: Sequence[np.ndarray]) -> np.ndarray:
        return np.column_stack(columns) if self.num_rows else np.empty((0, self.num_targets))

    def _values(self, y: np.ndarray) -> np.ndarray:
        values, shape = np.asarray(y, dtype=np.float64), (self.num_rows, self.num_targets)
        if values.shape != shape:
            raise ValueError(f"y must have the shape {shape}, rows and targets, received {values.shape}")
        return values

    def _scales(self, scale: np.ndarray | float) -> np.ndarray:
        scales = np.asarray(scale, dtype=np.float64)
        if scales.shape not in ((), (self.num_targets,)) or not bool((scales > 0).all()):
            raise ValueError(f"scale must be positive, one number or {self.num_targets} of them, received {scale}")
        return np.broadcast_to(scales, (self.num_targets,))
