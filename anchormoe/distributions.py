"""What a method predicts: one distribution per row, with exactly the questions a score asks of it."""

from __future__ import annotations

from typing import Protocol, Self

from torch import Tensor


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
