"""What a method predicts: one distribution per row, with exactly the questions a score asks of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from anchormoe.distributions.mixture import GaussianMixture


class Distribution(Protocol):
    """Distributions of N rows; values y are (N), in the units the method was fitted in."""

    @property
    def mean(self) -> Tensor: ...

    def log_prob(self, y: Tensor) -> Tensor: ...

    def cdf(self, y: Tensor) -> Tensor: ...

    def quantile(self, probability: float | Tensor) -> Tensor: ...

    def crps(self, y: Tensor) -> Tensor: ...

    def double(self) -> Self:
        """In float64; scores are computed from this form."""


class ForeignDistribution:
    """Another library's distribution under our names. Its CRPS is computed from its quantiles."""

    NUM_LEVELS = 500  # of the CRPS

    def __init__(self, foreign: Any, num_rows: int) -> None:
        self.foreign, self.num_rows = foreign, num_rows

    @property
    def mean(self) -> Tensor:
        mean = self._attribute("mean")
        return self._values(mean() if callable(mean) else mean)

    def log_prob(self, y: Tensor) -> Tensor:
        return self._ask(("log_prob", "logpdf", "log_pdf"), y.numpy())

    def cdf(self, y: Tensor) -> Tensor:
        return self._ask(("cdf",), y.numpy())

    def quantile(self, probability: float | Tensor) -> Tensor:
        levels = np.broadcast_to(np.asarray(probability, dtype=np.float64), self.num_rows).copy()
        return self._ask(("ppf", "icdf", "quantile"), levels)

    def crps(self, y: Tensor) -> Tensor:
        """2 times the mean over levels p of the quantile loss (1[y < q_p] - p) (q_p - y)."""
        total = torch.zeros(self.num_rows, dtype=torch.float64)
        for level in (np.arange(self.NUM_LEVELS) + 0.5) / self.NUM_LEVELS:
            quantile = self.quantile(float(level))
            total += ((y < quantile).double() - level) * (quantile - y)
        return 2 * total / self.NUM_LEVELS

    def double(self) -> Self:
        return self

    def _ask(self, names: tuple[str, ...], values: np.ndarray) -> Tensor:
        return self._values(self._attribute(*names)(self._like_its_rows(values)))

    def _attribute(self, *names: str) -> Any:
        for name in names:
            found = getattr(self.foreign, name, None)  # ngboost's have every attribute, as None
            if found is not None:
                return found
        raise TypeError(f"a predicted distribution must have {' or '.join(names)}, received {type(self.foreign)}")

    def _like_its_rows(self, values: np.ndarray) -> Any:
        """skpro wants a column, torch a tensor, the others an array."""
        if isinstance(self.foreign, torch.distributions.Distribution):
            return torch.as_tensor(values)
        return values[:, None] if callable(getattr(self.foreign, "log_pdf", None)) else values

    def _values(self, answer: Any) -> Tensor:
        return torch.as_tensor(np.asarray(answer, dtype=np.float64).reshape(self.num_rows))


def as_distribution(predicted: Any, num_rows: int) -> Distribution:
    return predicted if isinstance(predicted, GaussianMixture) else ForeignDistribution(predicted, num_rows)


_PREDICTS_DISTRIBUTIONS = ("predict_dist", "pred_dist", "predict_proba")


def distribution_predictor(regressor: Any) -> Callable[[np.ndarray], Any] | None:
    """How a regressor predicts distributions; None if it predicts points only."""
    names = [name for name in _PREDICTS_DISTRIBUTIONS if hasattr(regressor, name)]
    return getattr(regressor, names[0]) if names else None
