"""A control of several targets: one multivariate Gaussian for all rows around the recipe's stacks of anchors."""

from __future__ import annotations

from typing import Self

import numpy as np

from anchormoe.distributions.joint import JointMixture
from anchormoe.methods.base import SCALE_FLOOR
from anchormoe.methods.stack_controls import OnStack
from anchormoe.model.crossfit import TargetStatistics, fit_anchor
from anchormoe.model.joint import with_outlier_components
from anchormoe.model.kernels.clock import clock
from anchormoe.model.training_rows import TrainingRows


class StackGaussian(OnStack):
    """The stacks' means with the covariance of their out-of-fold residuals, and components for rows unlike all others.

    What it lacks beside the recipe is what the networks buy.
    """

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        """Fit to rows X (N, I), in which nan is a missing value, and targets y (N, T)."""
        rows = TrainingRows(X, y, None, tuple(self.categorical_features))
        timed = [fit_anchor(self.settings, one, self.random_state) for one in rows.by_target]
        start = clock()
        self.anchors = [anchor for anchor, _ in timed]
        self.targets = [TargetStatistics.of(one.y) for one in rows.by_target]
        residuals = y - np.column_stack([anchor.mean for anchor in self.anchors])
        floor = np.array([SCALE_FLOOR * (one.std or 1.0) for one in self.targets])  # for targets that are never missed
        self.covariance = residuals.T @ residuals / len(y) + np.diag(floor**2)
        self.diagnostics_["fit_seconds"] = sum(seconds for _, seconds in timed) + clock() - start
        return self

    def predict_dist(self, X: np.ndarray) -> JointMixture:
        """Predict distributions of rows, in the targets' units."""
        mean = np.column_stack([np.mean([model(X) for model in anchor.models], axis=0) for anchor in self.anchors])
        return with_outlier_components(JointMixture.normal(mean, self.covariance), self.targets)
