"""Boosted trees of several libraries behind one contract: fit many stages, then choose one.

XGBoost and LightGBM take categories and gaps as they are. The rows of the others are encoded before (`ENCODERS`).

Each library is imported when its trees are fitted: importing all of them takes seconds.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

import numpy as np

from anchormoe.errors import UserError
from anchormoe.model.encoding import MakeEncoder, dense_encoder, tree_encoder, unchanged
from anchormoe.model.settings import AnchorKind, AnchorSettings
from anchormoe.model.training_rows import TrainingRows

if TYPE_CHECKING:
    from anchormoe.model.anchors.tree_walk import CompleteTrees

_ROWS_WORTH_CONVERTING = 4096  # from here on XGBoost's own prediction takes longer than reading its trees once


@runtime_checkable
class BoostedModel(Protocol):
    def staged_rmse(self) -> np.ndarray:
        """Return the RMSE on the validation rows after each stage."""

    def predict(self, X: np.ndarray, *, stages: int) -> np.ndarray:
        """Return the mean from the first `stages` stages."""


@dataclass(frozen=True, eq=False)
class StagedTrees:
    """A fitted model of a library, and its RMSE on the validation rows after each stage."""

    model: Any
    validation_rmse: np.ndarray | None

    def staged_rmse(self) -> np.ndarray:
        assert self.validation_rmse is not None
        return self.validation_rmse


class SklearnTrees(StagedTrees):
    """scikit-learn's exact trees: the anchor of the published runs."""

    @classmethod
    def fit(
        cls,
        settings: AnchorSettings,
        rows: TrainingRows,
        stages: int,
        seed: int,
        *,
        validation: TrainingRows | None,
    ) -> Self:
        from sklearn.ensemble import GradientBoostingRegressor

        model = GradientBoostingRegressor(n_estimators=stages, random_state=seed, **settings.params)
        model.fit(rows.X, rows.y, sample_weight=rows.weight)
        rmse = None
        if validation is not None:
            means = model.staged_predict(validation.X)
            rmse = np.array([np.sqrt(validation.mean((validation.y - mean) ** 2)) for mean in means])
        return cls(model, rmse)

    def predict(self, X: np.ndarray, *, stages: int) -> np.ndarray:
        # Stages are sequential, so the first ones of a long fit are the short fit.
        model = copy.copy(self.model)
        model.estimators_ = self.model.estimators_[:stages]
        return model.predict(X)


class ExactTrees(StagedTrees):
    """The same trees as scikit-learn's except for ties, in a tenth of the time, or trees of drawn rows and columns."""

    @classmethod
    def fit(
        cls,
        settings: AnchorSettings,
        rows: TrainingRows,
        stages: int,
        seed: int,
        *,
        validation: TrainingRows | None,
    ) -> Self:
        from anchormoe.model.anchors import exact_trees

        model = exact_trees.fit(
            rows.X,
            rows.y,
            stages=stages,
            weight=rows.weight,
            validation=None if validation is None else (validation.X, validation.y),
            validation_weight=None if validation is None else validation.weight,
            seed=seed,
            **settings.params,
        )
        rmse = None if validation is None else model.staged_rmse(validation.X, validation.y, validation.weight)
        return cls(model, rmse)

    def predict(self, X: np.ndarray, *, stages: int) -> np.ndarray:
        return self.model.predict(X, stages=stages)


@dataclass(frozen=True, eq=False)
class XGBoostTrees(StagedTrees):
    """XGBoost's trees, fitted to the z-scored target; their RMSE is in units of its standard deviation.

    XGBoost drops splits whose gain is below an absolute 1e-6, which on a target as small as Naval's (standard deviation
    0.015) would stop the trees early.

    `rows_per_bin` gives each feature one histogram bin for this number of rows, with 16 to 256 bins in all; XGBoost's
    default is 256. On a few hundred rows most of the time goes into bins, and nearly empty bins do not help.
    """

    y_mean: float
    y_std: float
    feature_types: list[str] | None

    @classmethod
    def fit(
        cls,
        settings: AnchorSettings,
        rows: TrainingRows,
        stages: int,
        seed: int,
        *,
        validation: TrainingRows | None,
    ) -> Self:
        import xgboost

        evaluation: dict[str, dict[str, list[float]]] = {}
        feature_types = _feature_types(rows)
        center, scale = rows.center, rows.scale

        def matrix(part: TrainingRows) -> Any:
            return _matrix(part.X, feature_types, label=(part.y - center) / scale, weight=part.weight)

        parameters = {"objective": "reg:squarederror", "nthread": 1, "seed": seed, **settings.params}
        if feature_types is not None and parameters.get("tree_method") == "exact":
            parameters["tree_method"] = "hist"  # the exact method knows no categories
        patience = parameters.pop("early_stopping_rounds", None)
        if (rows_per_bin := parameters.pop("rows_per_bin", None)) is not None:
            parameters["max_bin"] = max(16, min(len(rows) // rows_per_bin, 256))
        evals = [] if validation is None else [(matrix(validation), "validation")]
        model = xgboost.train(
            parameters,
            matrix(rows),
            stages,
            evals=evals,
            early_stopping_rounds=patience if evals else None,
            evals_result=evaluation,
            verbose_eval=False,
        )
        rmse = np.array(evaluation["validation"]["rmse"]) if evals else None
        return cls(model, rmse, center, scale, feature_types)

    def predict(self, X: np.ndarray, *, stages: int) -> np.ndarray:
        trees = self._complete_trees if self._is_worth_converting(X) else None
        if trees is None:
            mean_z = self.model.predict(_matrix(X, self.feature_types), iteration_range=(0, stages))
        else:
            mean_z = trees.predict(X, stages=stages)
        return mean_z.astype(np.float64) * self.y_std + self.y_mean

    def _is_worth_converting(self, X: np.ndarray) -> bool:
        return len(X) >= _ROWS_WORTH_CONVERTING and self.feature_types is None and not np.isnan(X).any()

    @functools.cached_property
    def _complete_trees(self) -> CompleteTrees | None:
        from anchormoe.model.anchors.xgboost_trees import complete_trees

        return complete_trees(self.model)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the converted trees, which the model holds already."""
        return {name: value for name, value in vars(self).items() if name != "_complete_trees"}


def _matrix(X: np.ndarray, feature_types: list[str] | None, **target: Any) -> Any:
    """Return features in XGBoost's form, with the targets and weights of rows to learn from."""
    import xgboost

    categories = {} if feature_types is None else {"enable_categorical": True}
    return xgboost.DMatrix(X, **target, feature_types=feature_types, **categories)


def _feature_types(rows: TrainingRows) -> list[str] | None:
    """Return XGBoost's kinds of the columns, categorical or quantitative; None where all are numbers."""
    if not rows.categorical:
        return None
    return ["c" if position in rows.categorical else "q" for position in range(rows.X.shape[1])]


class LightGBMTrees(StagedTrees):
    """LightGBM's trees."""

    @classmethod
    def fit(
        cls,
        settings: AnchorSettings,
        rows: TrainingRows,
        stages: int,
        seed: int,
        *,
        validation: TrainingRows | None,
    ) -> Self:
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
        model = lightgbm.train(
            parameters,
            train,
            stages,
            valid_sets=held_out,
            valid_names=["validation"] if held_out else [],
            callbacks=[lightgbm.record_evaluation(evaluation)],
        )
        rmse = np.array(evaluation["validation"]["rmse"]) if held_out else None
        return cls(model, rmse)

    def predict(self, X: np.ndarray, *, stages: int) -> np.ndarray:
        return np.asarray(self.model.predict(X, num_iteration=stages))


BOOSTED: dict[AnchorKind, Callable[..., BoostedModel]] = {
    AnchorKind.gbdt: SklearnTrees.fit,
    AnchorKind.trees: ExactTrees.fit,
    AnchorKind.xgboost: XGBoostTrees.fit,
    AnchorKind.lightgbm: LightGBMTrees.fit,
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
