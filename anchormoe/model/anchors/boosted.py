"""Boosted trees of several libraries behind one contract: fit many stages, then choose one.

Each library is imported when its trees are fitted: importing all of them takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from anchormoe.errors import UserError
from anchormoe.model.settings import AnchorKind, AnchorSettings


class BoostedModel(Protocol):
    def staged_rmse(self) -> np.ndarray:
        """Return the RMSE on the validation rows after each stage."""

    def predict(self, X: np.ndarray, *, stages: int) -> np.ndarray:
        """Return the mean from the first `stages` stages."""


Validation = tuple[np.ndarray, np.ndarray] | None


class SklearnTrees:
    """scikit-learn's exact trees: the anchor of the published runs."""

    def __init__(
        self, settings: AnchorSettings, X: np.ndarray, y: np.ndarray, stages: int, seed: int, *, validation: Validation
    ) -> None:
        from sklearn.ensemble import GradientBoostingRegressor

        self.model = GradientBoostingRegressor(n_estimators=stages, random_state=seed, **settings.params).fit(X, y)
        self.validation = validation

    def staged_rmse(self) -> np.ndarray:
        assert self.validation is not None
        X, y = self.validation
        return np.array([np.sqrt(np.mean((y - mean) ** 2)) for mean in self.model.staged_predict(X)])

    def predict(self, X: np.ndarray, *, stages: int) -> np.ndarray:
        # Stages are sequential, so the first ones of a long fit are the short fit.
        self.model.estimators_ = self.model.estimators_[:stages]
        return self.model.predict(X)


class ExactTrees:
    """The same trees as scikit-learn's except for ties, in a tenth of the time and without random numbers."""

    def __init__(
        self, settings: AnchorSettings, X: np.ndarray, y: np.ndarray, stages: int, seed: int, *, validation: Validation
    ) -> None:
        from anchormoe.model.anchors import exact_trees

        self.model = exact_trees.fit(X, y, stages=stages, validation=validation, **settings.params)
        self.validation = validation

    def staged_rmse(self) -> np.ndarray:
        assert self.validation is not None
        return self.model.staged_rmse(*self.validation)

    def predict(self, X: np.ndarray, *, stages: int) -> np.ndarray:
        return self.model.predict(X, stages=stages)


class XGBoostTrees:
    """XGBoost's trees, fitted to the z-scored target.

    XGBoost drops splits whose gain is below an absolute 1e-6, which on a target as small as Naval's (standard deviation
    0.015) would stop the trees early.

    `rows_per_bin` gives each feature one histogram bin for this number of rows, with 16 to 256 bins in all; XGBoost's
    default is 256. On a few hundred rows most of the time goes into bins, and nearly empty bins do not help.
    """

    def __init__(
        self, settings: AnchorSettings, X: np.ndarray, y: np.ndarray, stages: int, seed: int, *, validation: Validation
    ) -> None:
        import xgboost

        self.evaluation: dict[str, dict[str, list[float]]] = {}
        self.matrix = xgboost.DMatrix
        self.y_mean, self.y_std = y.mean(), y.std() or 1.0
        parameters = {"objective": "reg:squarederror", "nthread": 1, "seed": seed, **settings.params}
        patience = parameters.pop("early_stopping_rounds", None)
        if (rows_per_bin := parameters.pop("rows_per_bin", None)) is not None:
            parameters["max_bin"] = max(16, min(len(y) // rows_per_bin, 256))
        evals = []
        if validation is not None:
            evals = [(xgboost.DMatrix(validation[0], self._to_z(validation[1])), "validation")]
        self.model = xgboost.train(
            parameters,
            xgboost.DMatrix(X, self._to_z(y)),
            stages,
            evals=evals,
            early_stopping_rounds=patience if evals else None,
            evals_result=self.evaluation,
            verbose_eval=False,
        )

    def _to_z(self, y: np.ndarray) -> np.ndarray:
        return (y - self.y_mean) / self.y_std

    def staged_rmse(self) -> np.ndarray:
        """Return the RMSE in units of the target's standard deviation, which does not change the best stage."""
        return np.array(self.evaluation["validation"]["rmse"])

    def predict(self, X: np.ndarray, *, stages: int) -> np.ndarray:
        mean_z = self.model.predict(self.matrix(X), iteration_range=(0, stages))
        return mean_z.astype(np.float64) * self.y_std + self.y_mean


class LightGBMTrees:
    def __init__(
        self, settings: AnchorSettings, X: np.ndarray, y: np.ndarray, stages: int, seed: int, *, validation: Validation
    ) -> None:
        lightgbm = import_lightgbm()
        parameters = {
            "objective": "regression",
            "metric": "rmse",
            "num_threads": 1,
            "deterministic": True,
            "seed": seed,
            "verbosity": -1,
            **settings.params,
        }
        train = lightgbm.Dataset(X, y)
        self.evaluation: dict[str, Any] = {}
        self.model = lightgbm.train(
            parameters,
            train,
            stages,
            valid_sets=[] if validation is None else [lightgbm.Dataset(*validation, reference=train)],
            valid_names=[] if validation is None else ["validation"],
            callbacks=[lightgbm.record_evaluation(self.evaluation)],
        )

    def staged_rmse(self) -> np.ndarray:
        return np.array(self.evaluation["validation"]["rmse"])

    def predict(self, X: np.ndarray, *, stages: int) -> np.ndarray:
        return np.asarray(self.model.predict(X, num_iteration=stages))


BOOSTED: dict[AnchorKind, Callable[..., BoostedModel]] = {
    AnchorKind.gbdt: SklearnTrees,
    AnchorKind.trees: ExactTrees,
    AnchorKind.xgboost: XGBoostTrees,
    AnchorKind.lightgbm: LightGBMTrees,
}


def import_lightgbm() -> Any:
    try:
        import lightgbm
    except ImportError:
        raise UserError("anchor=lightgbm needs the lightgbm package: pip install 'anchormoe[anchors]'") from None
    return lightgbm
