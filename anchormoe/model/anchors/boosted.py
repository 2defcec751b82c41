"""Boosted trees of several libraries behind one contract: fit many stages, then choose one.

XGBoost and LightGBM take categories and gaps as they are. The rows of the others are encoded before (`ENCODERS`).

Each library is imported when its trees are fitted: importing all of them takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from anchormoe.errors import UserError
from anchormoe.model.encoding import MakeEncoder, dense_encoder, tree_encoder, unchanged
from anchormoe.model.settings import AnchorKind, AnchorSettings
from anchormoe.model.training_rows import TrainingRows


class BoostedModel(Protocol):
    def staged_rmse(self) -> np.ndarray:
        """Return the RMSE on the validation rows after each stage."""

    def predict(self, X: np.ndarray, *, stages: int) -> np.ndarray:
        """Return the mean from the first `stages` stages."""


class SklearnTrees:
    """scikit-learn's exact trees: the anchor of the published runs."""

    def __init__(
        self,
        settings: AnchorSettings,
        rows: TrainingRows,
        stages: int,
        seed: int,
        *,
        validation: TrainingRows | None,
    ) -> None:
        from sklearn.ensemble import GradientBoostingRegressor

        self.model = GradientBoostingRegressor(n_estimators=stages, random_state=seed, **settings.params)
        self.model.fit(rows.X, rows.y, sample_weight=rows.weight)
        self._rmse = None
        if validation is not None:
            means = self.model.staged_predict(validation.X)
            self._rmse = np.array([np.sqrt(validation.mean((validation.y - mean) ** 2)) for mean in means])

    def staged_rmse(self) -> np.ndarray:
        assert self._rmse is not None
        return self._rmse

    def predict(self, X: np.ndarray, *, stages: int) -> np.ndarray:
        # Stages are sequential, so the first ones of a long fit are the short fit.
        self.model.estimators_ = self.model.estimators_[:stages]
        return self.model.predict(X)


class ExactTrees:
    """The same trees as scikit-learn's except for ties, in a tenth of the time and without random numbers."""

    def __init__(
        self,
        settings: AnchorSettings,
        rows: TrainingRows,
        stages: int,
        seed: int,
        *,
        validation: TrainingRows | None,
    ) -> None:
        from anchormoe.model.anchors import exact_trees

        self.model = exact_trees.fit(
            rows.X,
            rows.y,
            stages=stages,
            weight=rows.weight,
            validation=None if validation is None else (validation.X, validation.y),
            validation_weight=None if validation is None else validation.weight,
            **settings.params,
        )
        self._rmse = None
        if validation is not None:
            self._rmse = self.model.staged_rmse(validation.X, validation.y, validation.weight)

    def staged_rmse(self) -> np.ndarray:
        assert self._rmse is not None
        return self._rmse

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
        self,
        settings: AnchorSettings,
        rows: TrainingRows,
        stages: int,
        seed: int,
        *,
        validation: TrainingRows | None,
    ) -> None:
        import xgboost

        evaluation: dict[str, dict[str, list[float]]] = {}
        self.feature_types = _feature_types(rows)
        self.y_mean, self.y_std = rows.center, rows.scale
        parameters = {"objective": "reg:squarederror", "nthread": 1, "seed": seed, **settings.params}
        if self.feature_types is not None and parameters.get("tree_method") == "exact":
            parameters["tree_method"] = "hist"  # the exact method knows no categories
        patience = parameters.pop("early_stopping_rounds", None)
        if (rows_per_bin := parameters.pop("rows_per_bin", None)) is not None:
            parameters["max_bin"] = max(16, min(len(rows) // rows_per_bin, 256))
        evals = [] if validation is None else [(self._matrix(validation.X, validation), "validation")]
        self.model = xgboost.train(
            parameters,
            self._matrix(rows.X, rows),
            stages,
            evals=evals,
            early_stopping_rounds=patience if evals else None,
            evals_result=evaluation,
            verbose_eval=False,
        )
        self._rmse = np.array(evaluation["validation"]["rmse"]) if evals else None

    def _matrix(self, X: np.ndarray, rows: TrainingRows | None = None) -> Any:
        """Return features in the library's form, with the z-scored targets and the weights of rows to learn from."""
        import xgboost

        target = {} if rows is None else {"label": (rows.y - self.y_mean) / self.y_std, "weight": rows.weight}
        categories = {} if self.feature_types is None else {"enable_categorical": True}
        return xgboost.DMatrix(X, **target, feature_types=self.feature_types, **categories)

    def staged_rmse(self) -> np.ndarray:
        """Return the RMSE in units of the target's standard deviation, which does not change the best stage."""
        assert self._rmse is not None
        return self._rmse

    def predict(self, X: np.ndarray, *, stages: int) -> np.ndarray:
        mean_z = self.model.predict(self._matrix(X), iteration_range=(0, stages))
        return mean_z.astype(np.float64) * self.y_std + self.y_mean


def _feature_types(rows: TrainingRows) -> list[str] | None:
    """Return XGBoost's kinds of the columns, categorical or quantitative; None where all are numbers."""
    if not rows.categorical:
        return None
    return ["c" if position in rows.categorical else "q" for position in range(rows.X.shape[1])]


class LightGBMTrees:
    def __init__(
        self,
        settings: AnchorSettings,
        rows: TrainingRows,
        stages: int,
        seed: int,
        *,
        validation: TrainingRows | None,
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
        train = lightgbm.Dataset(
            rows.X, rows.y, weight=rows.weight, categorical_feature=list(rows.categorical), free_raw_data=False
        )
        held_out = []
        if validation is not None:
            held_out = [lightgbm.Dataset(validation.X, validation.y, weight=validation.weight, reference=train)]
        evaluation: dict[str, Any] = {}
        self.model = lightgbm.train(
            parameters,
            train,
            stages,
            valid_sets=held_out,
            valid_names=["validation"] if held_out else [],
            callbacks=[lightgbm.record_evaluation(evaluation)],
        )
        self._rmse = np.array(evaluation["validation"]["rmse"]) if held_out else None

    def staged_rmse(self) -> np.ndarray:
        assert self._rmse is not None
        return self._rmse

    def predict(self, X: np.ndarray, *, stages: int) -> np.ndarray:
        return np.asarray(self.model.predict(X, num_iteration=stages))


BOOSTED: dict[AnchorKind, Callable[..., BoostedModel]] = {
    AnchorKind.gbdt: SklearnTrees,
    AnchorKind.trees: ExactTrees,
    AnchorKind.xgboost: XGBoostTrees,
    AnchorKind.lightgbm: LightGBMTrees,
}

ENCODERS: dict[AnchorKind, MakeEncoder] = {
    AnchorKind.gbdt: dense_encoder,
    AnchorKind.trees: tree_encoder,
    AnchorKind.xgboost: unchanged,
    AnchorKind.lightgbm: unchanged,
}


def import_lightgbm() -> Any:
    try:
        import lightgbm
    except ImportError:
        raise UserError("anchor=lightgbm needs the lightgbm package: pip install 'anchormoe[anchors]'") from None
    return lightgbm
