"""Adapters for distributions of other libraries and for the regressors that predict them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from anchormoe.distributions.base import Distribution

_NUM_LEVELS = 500  # number of quantiles that represent a distribution where it has no formula
_LOG_DENSITIES = ("log_prob", "logpdf", "log_pdf")
_DISTINCT = 0.99  # a tail this much smaller than another is subtracted from it without losing many digits
_LEVELS = (np.arange(_NUM_LEVELS) + 0.5) / _NUM_LEVELS


@dataclass(frozen=True, eq=False)
class ForeignDistribution(Distribution):
    """A distribution of scipy, torch, skpro or ngboost; what it has no formula for is computed from its quantiles."""

    foreign: Any
    rows: int
    center: float = 0.0
    scale: float = 1.0
    reported_mean: np.ndarray | None = None
    mean_before_calibration: np.ndarray | None = None

    @property
    def num_rows(self) -> int:
        return self.rows

    @property
    def has_density(self) -> bool:
        """Tell whether there is a density: skpro says of a distribution whether it is discrete, others lack one."""
        if callable(getattr(self.foreign, "get_tag", None)):
            return self.foreign.get_tag("distr:measuretype", "continuous", raise_error=False) == "continuous"
        return any(getattr(self.foreign, name, None) is not None for name in _LOG_DENSITIES)

    def _mean(self) -> np.ndarray:
        mean = self._attribute("mean")
        return self._values(mean() if callable(mean) else mean)

    def _std(self) -> np.ndarray:
        return np.std([self._quantile(np.full(self.rows, level)) for level in _LEVELS], axis=0)

    def _log_prob(self, z: np.ndarray) -> np.ndarray:
        return self._ask(_LOG_DENSITIES, z)

    def _cdf(self, z: np.ndarray) -> np.ndarray:
        return self._ask(("cdf",), z)

    def _quantile(self, level: np.ndarray) -> np.ndarray:
        return self._ask(("ppf", "icdf", "quantile"), level)

    def _log_cell(self, z: np.ndarray, width: float) -> np.ndarray:
        """Return the log-probabilities of cells, from the nearer tail where the library has both in log space."""
        plain = super()._log_cell(z, width)
        if getattr(self.foreign, "logcdf", None) is None or getattr(self.foreign, "logsf", None) is None:
            return plain
        low, high = z - width / 2, z + width / 2
        below = self._ask(("logcdf",), high), self._ask(("logcdf",), low)
        above = self._ask(("logsf",), low), self._ask(("logsf",), high)
        larger, smaller = np.where(above[0] < below[0], above, below)
        with np.errstate(invalid="ignore", divide="ignore"):  # the density is taken where both tails are empty
            ratio = np.exp(smaller - larger)
            return np.where(ratio < _DISTINCT, larger + np.log1p(-ratio), plain)

    def _crps(self, z: np.ndarray) -> np.ndarray:
        """Return twice the mean over levels p of the quantile loss (1[z < q_p] - p) (q_p - z)."""
        total = np.zeros(self.rows)
        for level in _LEVELS:
            quantile = self._quantile(np.full(self.rows, level))
            total += ((z < quantile) - level) * (quantile - z)
        return 2 * total / _NUM_LEVELS

    def _ask(self, names: tuple[str, ...], values: np.ndarray) -> np.ndarray:
        return self._values(self._attribute(*names)(self._as_its_rows(values)))

    def _attribute(self, *names: str) -> Any:
        for name in names:
            found = getattr(self.foreign, name, None)  # ngboost has every attribute, some of them None
            if found is not None:
                return found
        raise TypeError(f"a predicted distribution must have {' or '.join(names)}, received {type(self.foreign)}")

    def _as_its_rows(self, values: np.ndarray) -> Any:
        """Return values in the library's form: a column for skpro, a tensor for torch, an array for the others."""
        values = np.array(values)  # torch needs memory of its own, which a broadcast view does not have
        if type(self.foreign).__module__.startswith("torch."):
            import torch

            return torch.as_tensor(values)
        return values[:, None] if callable(getattr(self.foreign, "log_pdf", None)) else values

    def _values(self, answer: Any) -> np.ndarray:
        return np.asarray(answer, dtype=np.float64).reshape(self.rows)


def as_distribution(predicted: Any, num_rows: int) -> Distribution:
    """Return a distribution of ours as it is, and wrap one of another library."""
    return predicted if isinstance(predicted, Distribution) else ForeignDistribution(predicted, num_rows)


_PREDICTS_DISTRIBUTIONS = ("predict_dist", "pred_dist", "predict_proba")


def distribution_predictor(regressor: Any) -> Callable[[np.ndarray], Any] | None:
    """Return the method by which a regressor predicts distributions, None if it predicts points only."""
    names = [name for name in _PREDICTS_DISTRIBUTIONS if hasattr(regressor, name)]
    return getattr(regressor, names[0]) if names else None
