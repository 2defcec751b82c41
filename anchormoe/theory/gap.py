"""The study of the generalisation gap: test CRPS minus training CRPS of trained networks, one size at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.model.settings import ModelSettings, TrainingSettings
from anchormoe.rows import Row
from anchormoe.theory.problems import Cube, inputs

DIMENSION, SMOOTHNESS = 4, 1.0
_MEMORISED_SCALE = 0.01  # of the target's standard deviation


def gap(settings: dict[str, Any], replicates: int, seed: int) -> Row:
    """Measure the CRPS on the training rows and on fresh rows, of a network or of the control that memorises rows."""
    problem, num_rows = Cube(SMOOTHNESS, DIMENSION, DIMENSION), int(settings["num_rows"])
    found: dict[str, list[float]] = {"train_crps": [], "test_crps": []}
    parameters = 0
    for number in range(1, replicates + 1):
        rng = np.random.default_rng([seed, number, num_rows])
        function = problem.function(rng)
        X, X_test = (inputs(problem, size, rng) for size in (num_rows, int(settings["points"])))
        y, y_test = (_observed(function(rows), rows, rng) for rows in (X, X_test))
        regressor = _regressor(settings, number).fit(X, y)
        for name, rows, targets in (("train_crps", X, y), ("test_crps", X_test, y_test)):
            found[name].append(float(regressor.predict_dist(rows).crps(targets).mean()))
        parameters = regressor.num_gate_parameters
    return {"gate_parameters": parameters, **found}


def _observed(values: np.ndarray, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Add noise whose standard deviation grows with the first input."""
    return values + (0.25 + 0.5 * X[:, 0]) * rng.standard_normal(len(X))


def _regressor(settings: dict[str, Any], number: int) -> Any:
    if settings["object"] == "memoriser":
        return Memoriser()
    from anchormoe.theory.networks import PlainNetwork

    model = ModelSettings(
        num_experts=int(settings["num_experts"]),
        top_k=int(settings["top_k"]),
        hidden_dim=int(settings["hidden_dim"]),
        num_components=int(settings["num_components"]),
        router_dim=int(settings["router_dim"]),
    )
    return PlainNetwork(model, TrainingSettings(epochs=int(settings["epochs"])), number)


class Memoriser:
    """The control: a narrow normal around the target of the nearest training row. Its gap does not close."""

    num_gate_parameters = 0

    def fit(self, X: np.ndarray, y: np.ndarray) -> Memoriser:
        """Keep the rows."""
        self._tree, self._y = cKDTree(X), y
        return self

    def predict_dist(self, X: np.ndarray) -> GaussianMixture:
        """Predict what was observed nearest by."""
        _, nearest = self._tree.query(X)
        return GaussianMixture.normal(self._y[nearest], _MEMORISED_SCALE * float(self._y.std()))
