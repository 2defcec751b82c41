"""The scaling of a network's input and target by statistics of a reference fold."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch

from anchormoe.model.training import Batch


@dataclass(frozen=True)
class Scaling:
    """Statistics of one reference fold: those of its target and of the network's input columns.

    Of several targets y_mean and y_std have one number each (T,), and their anchors are one column each.
    """

    y_mean: float | np.ndarray
    y_std: float | np.ndarray
    column_mean: np.ndarray
    column_std: np.ndarray
    anchor_column: bool
    column_limit: np.ndarray | None = None  # standardised columns are kept within plus and minus this

    @classmethod
    def of_rows(
        cls,
        X: np.ndarray,
        y: np.ndarray,
        anchor: np.ndarray,
        *,
        anchor_column: bool,
        unit: float | np.ndarray | None = None,
    ) -> Scaling:
        """Compute the statistics of rows; `unit`, if given, replaces the target's standard deviation."""
        y_mean = float(y.mean()) if y.ndim == 1 else y.mean(0)
        y_std = y.std(0) + 1e-8 if unit is None else unit
        y_std = y_std if isinstance(y_std, np.ndarray) else float(y_std)
        columns = np.column_stack([X, (anchor - y_mean) / y_std]) if anchor_column else X
        return cls(y_mean, y_std, columns.mean(0), columns.std(0) + 1e-8, anchor_column)

    def limited(self, X: np.ndarray, anchor: np.ndarray) -> Scaling:
        """Keep the network's inputs within three times what these rows reach.

        A network is arbitrarily wrong far from the rows it has seen. A column that hardly varies in them is far away
        as soon as it does vary: it is divided by its tiny standard deviation.
        """
        columns = self.batch(X, np.zeros_like(anchor), anchor).x.numpy()
        return dataclasses.replace(self, column_limit=3 * np.abs(columns).max(axis=0))

    def batch(self, X: np.ndarray, y: np.ndarray, anchor: np.ndarray, weight: np.ndarray | None = None) -> Batch:
        """Scale rows to a batch, in float64 until the last step.

        The experts see the anchor as a column that is standardised once more; the component means use it as it is.
        """
        anchor_z = (anchor - self.y_mean) / self.y_std
        columns = np.column_stack([X, anchor_z]) if self.anchor_column else X
        x = (columns - self.column_mean) / self.column_std
        if self.column_limit is not None:
            x = np.clip(x, -self.column_limit, self.column_limit)
        return Batch(
            x=_float32(x),
            anchor=_float32(anchor_z),
            y=_float32((y - self.y_mean) / self.y_std),
            weight=None if weight is None else _float32(weight),
        )


def _float32(values: np.ndarray) -> torch.Tensor:
    return torch.as_tensor(values, dtype=torch.float32)
