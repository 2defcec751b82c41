"""LightGBM for the mean, fold models averaged, with a t-distribution from out-of-fold residuals."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import lightgbm
import numpy as np

from anchormoe.methods.fold_stack import Fitter, FoldStack, Part, Predict

# Defaults for regression that Holzmüller, Grinsztajn and Steinwart (2024) tuned on other datasets.
TUNED = {
    "learning_rate": 0.05,
    "num_leaves": 100,
    "min_data_in_leaf": 3,
    "min_sum_hessian_in_leaf": 1e-7,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
}
SHALLOW = {**TUNED, "learning_rate": 0.03, "num_leaves": 16}
SETTINGS = {"tuned": TUNED, "shallow": SHALLOW}


class LightGBM(FoldStack):
    """LightGBM with the setting of the lowest held-out error; each fold stops by its held-out rows."""

    def __init__(
        self,
        *,
        rounds: int = 5000,
        settings: Sequence[str] = ("tuned", "shallow"),
        random_state: int = 0,
    ) -> None:
        super().__init__(random_state=random_state)
        self.rounds, self.settings = rounds, tuple(settings)

    def _members(self) -> dict[str, Sequence[Fitter]]:
        chosen = [SETTINGS[name] for name in self.settings]
        return {"lightgbm": [functools.partial(fit_lightgbm, rounds=self.rounds, settings=item) for item in chosen]}


def fit_lightgbm(part: Part, *, rounds: int, settings: dict[str, Any]) -> Predict:
    """Fit to a part, stopped where its held-out error is lowest, and return the predictions as a function of rows."""
    return boosted(part, {**settings, "objective": "regression"}, rounds=rounds, patience=300)


def boosted(part: Part, settings: dict[str, Any], *, rounds: int, patience: int) -> Predict:
    """Fit trees to a part with some settings, stopped by its held-out rows."""
    rows = lightgbm.Dataset(part.X, part.y)
    model = lightgbm.train(
        {**settings, "seed": part.seed, "num_threads": 1, "deterministic": True, "verbosity": -1},
        rows,
        rounds,
        valid_sets=[lightgbm.Dataset(part.held_out_X, part.held_out_y, reference=rows)],
        callbacks=[lightgbm.early_stopping(patience, verbose=False)],
    )
    return functools.partial(_predicted, model)


def _predicted(model: lightgbm.Booster, X: np.ndarray) -> np.ndarray:
    return np.asarray(model.predict(X, num_threads=1))
