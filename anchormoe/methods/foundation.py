"""TabPFN and TabICL: pretrained networks whose weights are read from a local file.

Neither library is installed with this package, and nothing is downloaded: `pip install tabpfn` or `pip install tabicl`,
then `method=tabpfn method.params.weights=<file>`.
"""

from __future__ import annotations

import importlib
from abc import abstractmethod
from pathlib import Path
from typing import Any

import numpy as np

from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.errors import UserError
from anchormoe.methods.base import StandardisedRegressor, hold_out
from anchormoe.methods.smoothing import best_bandwidth, smoothed

NUM_LEVELS = 50
LEVELS = [float(level) for level in (np.arange(NUM_LEVELS) + 0.5) / NUM_LEVELS]


class FoundationModel(StandardisedRegressor):
    """A pretrained network that predicts quantiles; a density comes from smoothing them.

    The bandwidth has the lowest NLL of held-out rows, whose quantiles are predicted from the other training rows.
    """

    library: str
    class_name: str

    def __init__(self, *, weights: str | None = None, random_state: int = 0, **parameters: Any) -> None:
        super().__init__(random_state=random_state)
        if weights is None or not Path(weights).is_file():
            raise UserError(
                f"method.params.weights must be a file with the weights of {self.class_name}, received {weights}; "
                "download it from the authors' page"
            )
        self.weights, self.parameters = weights, parameters

    def _model(self, seed: int) -> Any:
        try:
            library = importlib.import_module(self.library)
        except ModuleNotFoundError as error:
            raise UserError(f"method={self.library} needs the {error.name} package: pip install {error.name}") from None
        settings = {"model_path": self.weights, "device": "cpu", "random_state": seed, **self.parameters}
        return getattr(library, self.class_name)(**settings)

    @abstractmethod
    def _quantiles(self, model: Any, X: np.ndarray) -> np.ndarray:
        """Return the quantiles of `LEVELS` (N, 50)."""

    def _fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> None:
        train, validation = hold_out(len(y), seed)
        partial = self._model(seed).fit(X[train], y[train])
        self.bandwidth = best_bandwidth(self._quantiles(partial, X[validation]), y[validation])
        self.diagnostics_ |= {"density": "smoothed quantiles", "bandwidth": self.bandwidth}
        self.model = self._model(seed).fit(X, y)

    def _predict(self, X: np.ndarray) -> GaussianMixture:
        return smoothed(np.sort(self._quantiles(self.model, X), axis=1), self.bandwidth)


class TabPFN(FoundationModel):
    """TabPFN (Hollmann et al., 2025) with the weights of a local file."""

    library, class_name = "tabpfn", "TabPFNRegressor"

    def _quantiles(self, model: Any, X: np.ndarray) -> np.ndarray:
        """Return the quantiles, which the library gives as a list with an array for each level."""
        return np.column_stack(model.predict(X, output_type="quantiles", quantiles=LEVELS))


class TabICL(FoundationModel):
    """TabICL (Qu et al., 2025 and 2026) with the weights of a local file."""

    library, class_name = "tabicl", "TabICLRegressor"

    def _quantiles(self, model: Any, X: np.ndarray) -> np.ndarray:
        """Return the quantiles, which the library gives as one array."""
        return np.asarray(model.predict(X, output_type="quantiles", alphas=LEVELS))
