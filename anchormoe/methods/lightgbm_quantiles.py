"""LightGBM for quantiles: one model for each of 20 levels, averaged over folds."""

from __future__ import annotations

import numpy as np

from anchormoe.methods.fold_stack import Part, Predict
from anchormoe.methods.lightgbm import SHALLOW, boosted
from anchormoe.methods.quantile_folds import LEVELS, QuantileFolds


class LightGBMQuantiles(QuantileFolds):
    """Trees for the pinball loss of every level; each stops by its held-out rows."""

    def __init__(self, *, rounds: int = 2000, folds_up_to: int = 2000, random_state: int = 0) -> None:
        super().__init__(folds_up_to=folds_up_to, random_state=random_state)
        self.rounds = rounds

    def _fit_part(self, part: Part) -> Predict:
        models = [
            boosted(part, {**SHALLOW, "objective": "quantile", "alpha": level}, rounds=self.rounds, patience=50)
            for level in LEVELS
        ]
        return lambda X: np.column_stack([model(X) for model in models])
