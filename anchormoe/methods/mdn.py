"""One mixture-density network: Anchor-MoE with a single expert, without anchor and router."""

from __future__ import annotations

import numpy as np
import torch

from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.methods.base import StandardisedRegressor, hold_out, standardiser
from anchormoe.model.network import AnchorMoE
from anchormoe.model.settings import AnchorMode, ModelSettings, RouterKind, TrainingSettings
from anchormoe.model.training import Batch, predict, refit, select_epoch


class MDN(StandardisedRegressor):
    """A network trained on all rows for the number of epochs that has the lowest NLL on 20% held-out rows."""

    def __init__(
        self,
        *,
        num_components: int = 3,
        hidden_dim: int = 128,
        epochs: int = 400,
        batch_size: int = 128,
        sigma_min: float = 0.005,
        random_state: int = 0,
    ) -> None:
        super().__init__(random_state=random_state)
        self.train_config = TrainingSettings(epochs=epochs, batch_size=batch_size, patience=50)
        self.model_config = ModelSettings(
            num_experts=1,
            top_k=1,
            router=RouterKind.none,
            anchor_mode=AnchorMode.free,
            num_components=num_components,
            hidden_dim=hidden_dim,
            sigma_min=sigma_min,
            sigma_max=10.0,
        )

    def _fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> None:
        self.to_columns = standardiser(X)
        train, validation = hold_out(len(y), seed)
        self.model = AnchorMoE(self.model_config, input_dim=X.shape[1])
        self.model.reset_parameters(torch.Generator().manual_seed(seed))
        selected = select_epoch(
            self.model, self._batch(X[train], y[train]), self._batch(X[validation], y[validation]), self.train_config
        )
        refit(self.model, self._batch(X, y), selected.epoch, self.train_config)

    def _predict(self, X: np.ndarray) -> GaussianMixture:
        return predict(self.model, self._batch(X, np.zeros(len(X))))

    def _batch(self, X: np.ndarray, y: np.ndarray) -> Batch:
        x, target = (torch.as_tensor(values, dtype=torch.float32) for values in (self.to_columns(X), y))
        return Batch(x, torch.zeros_like(target), target)
