"""How unlike the training rows a new row is, by its place in the networks' latent spaces.

Intervals hold for rows that come from where the training rows came from. A network's projection weighs the columns by
what it has learned of them, so a row that is far from all training rows in the latent spaces of all networks is one
that the fit says little about.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.spatial import cKDTree

from anchormoe.model.training_rows import some_rows

if TYPE_CHECKING:
    from anchormoe.model.standardise import Scaling

KEPT_ROWS = 1000  # training rows whose places are kept
NEIGHBOURS = 5  # the distance of a row is that to its fifth nearest training row
FAR = 0.99  # a row is far if it is farther away than this share of the training rows are from each other


@dataclass(frozen=True)
class LatentRows:
    """The places of training rows: latent codes of all networks side by side, each in units of its spread.

    positions: (M, networks * D); distances: (M,), of each row to its neighbours among the others, in order.
    """

    center: np.ndarray
    spread: np.ndarray
    positions: np.ndarray
    distances: np.ndarray

    @classmethod
    def of(cls, networks: Sequence[Any], X: np.ndarray, seed: int) -> LatentRows:
        """Keep the places of some training rows (N, I)."""
        raw = _codes(networks, X[some_rows(len(X), KEPT_ROWS, seed)])
        center, spread = raw.mean(0), raw.std(0) + 1e-8
        positions = (raw - center) / spread
        neighbours = min(NEIGHBOURS + 1, len(positions))  # a row is the nearest to itself
        distances = cKDTree(positions).query(positions, k=[neighbours])[0][:, 0]
        return cls(center, spread, positions, np.sort(distances))

    def unlikeness(self, networks: Sequence[Any], X: np.ndarray) -> np.ndarray:
        """Return the share of training rows that are closer to each other than each new row is to them (N,)."""
        places = (_codes(networks, X) - self.center) / self.spread
        neighbours = min(NEIGHBOURS, len(self.positions))
        distances = cKDTree(self.positions).query(places, k=[neighbours])[0][:, 0]
        return np.searchsorted(self.distances, distances, side="left") / len(self.distances)


def latent_codes(network: Any, X: np.ndarray, scaling: Scaling | None = None) -> tuple[np.ndarray, torch.Tensor]:
    """Return the latent codes (N, D) of rows in one network, and its input."""
    anchor = (network.anchor if callable(network.anchor) else network.anchor.predict)(X)
    batch = (scaling or network.scaling).batch(network.encoder(X), np.zeros_like(anchor), anchor)
    device = next(network.model.parameters()).device
    with torch.no_grad():
        return network.model.projection(batch.x.to(device)).numpy(force=True), batch.x


def _codes(networks: Sequence[Any], X: np.ndarray) -> np.ndarray:
    """Return the codes of all networks side by side; inputs are not limited here, for it is far rows that matter."""
    codes = [latent_codes(one, X, dataclasses.replace(one.scaling, column_limit=None))[0] for one in networks]
    return np.concatenate(codes, axis=1).astype(np.float64)
