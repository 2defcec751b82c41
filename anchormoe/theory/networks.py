"""Arm 2: networks of the project, trained on simulated rows."""

from __future__ import annotations

import numpy as np
import torch

from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.model.network import initial_model
from anchormoe.model.paper import PaperAnchorMoE
from anchormoe.model.settings import (
    AnchorKind,
    AnchorMode,
    AnchorSettings,
    InitialWeights,
    ModelSettings,
    TrainingSettings,
)
from anchormoe.model.standardise import Scaling
from anchormoe.model.training import Phase, predict, temperature


def paper_recipe(num_experts: int, *, anchored: bool, seed: int) -> PaperAnchorMoE:
    """Make the regressor of the paper's recipe with K experts, with boosted trees as its anchor or without one."""
    kind = AnchorKind.xgboost if anchored else AnchorKind.none
    mode = AnchorMode.delta if anchored else AnchorMode.free
    return PaperAnchorMoE(
        anchor=AnchorSettings(name=kind.value, kind=kind),
        model=ModelSettings(num_experts=num_experts, top_k=min(2, num_experts), anchor_mode=mode),
        random_state=seed,
    )


class PlainNetwork:
    """A network without an anchor that is trained on all rows for a fixed number of epochs, with nothing held out."""

    def __init__(self, settings: ModelSettings, training: TrainingSettings, seed: int) -> None:
        self.settings, self.training, self.seed = settings, training, seed

    def fit(self, X: np.ndarray, y: np.ndarray) -> PlainNetwork:
        """Train on rows X (N, I) and targets y (N,)."""
        nothing = np.zeros(len(y))
        self._scaling = Scaling.of_rows(X, y, nothing, anchor_column=False)
        self._model = initial_model(
            self.settings, input_dim=X.shape[1], seed=self.seed, number=1, initial_weights=InitialWeights.own
        )
        phase, batch = Phase(self._model, self.training), self._scaling.batch(X, y, nothing)
        for epoch in range(1, self.training.epochs + 1):
            self._model.temperature = temperature(self.training, epoch - 1)
            phase.run_epoch(batch, epoch)
        self._model.temperature = temperature(self.training, self.training.epochs)
        phase.finish(phase.steps.weights())
        return self

    def predict_dist(self, X: np.ndarray) -> GaussianMixture:
        """Predict densities of rows."""
        nothing = np.zeros(len(X))
        batch = self._scaling.batch(X, nothing, nothing)
        return predict(self._model, batch).in_units(float(self._scaling.y_mean), float(self._scaling.y_std))

    @property
    def num_gate_parameters(self) -> int:
        """Return P: the number of weights that choose the experts, those of projection, windows and router."""
        parts: list[torch.nn.Module | None] = [self._model.projection, self._model.window, self._model.router]
        return sum(weight.numel() for part in parts if part is not None for weight in part.parameters())
