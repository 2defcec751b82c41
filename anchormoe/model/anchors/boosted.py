"""Anchors: point regressors whose mean the experts correct.

A boosted anchor is fitted on TR with many stages; the stage with the lowest RMSE on VA is selected. Its first part,
cut at that stage, gives the anchor of phase 1 (TR, VA); a refit of so many stages on TV gives the anchor of phase 2
(TV, CAL, TEST). Other regressors are just fitted, on TR and again on TV.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from sklearn.ensemble import GradientBoostingRegressor

from anchormoe.model.settings import AnchorSettings, AnchorKind
from anchormoe.data.splits import Split
from anchormoe.errors import UserError
from anchormoe.model.anchors import trees
from anchormoe.model.anchors.regressors import import_regressor, parameters_of, with_seed


@dataclass(frozen=True)
class AnchorMeans:
    """Anchor values in original units; stage is None for anchors that have no stages."""

    stage: int | None
    tr: np.ndarray
    va: np.ndarray
    tv: np.ndarray
    cal: np.ndarray
    test: np.ndarray


Predict = Callable[[np.ndarray], np.ndarray]


class BoostedModel(Protocol):
    def staged_rmse(self) -> np.ndarray:
        """RMSE on the validation rows after each stage."""

    def predict(self, X: np.ndarray, *, stages: int) -> np.ndarray:
        """Mean from the first so many stages."""


def anchor_means(config: AnchorSettings, X: np.ndarray, y: np.ndarray, split: Split, *, seed: int) -> AnchorMeans:
    """Select, fit and evaluate the anchor on the rows of one split."""
    stage: int | None = None
    predict_sub: Predict
    predict_final: Predict
    if config.kind is AnchorKind.none:
        predict_sub, predict_final = _constant(y[split.tr].mean()), _constant(y[split.tv].mean())
    elif config.kind is AnchorKind.sklearn:
        predict_sub = regressor(config, seed).fit(X[split.tr], y[split.tr]).predict
        predict_final = regressor(config, seed).fit(X[split.tv], y[split.tv]).predict
    else:
        fit = BOOSTED[config.kind]
        sub = fit(config, X[split.tr], y[split.tr], config.stages, seed, validation=(X[split.va], y[split.va]))
        stage = 1 + int(np.argmin(sub.staged_rmse()))
        final = fit(config, X[split.tv], y[split.tv], stage, seed, validation=None)
        predict_sub = _at_stage(sub, stage)
        predict_final = _at_stage(final, stage)
    return AnchorMeans(
        stage=stage,
        tr=predict_sub(X[split.tr]),
        va=predict_sub(X[split.va]),
        tv=predict_final(X[split.tv]),
        cal=predict_final(X[split.cal]) if len(split.cal) else np.empty(0),
        test=predict_final(X[split.test]),
    )


def _constant(mean: float) -> Predict:
    """No anchor: the mean of the target, which is 0 once z-scored."""
    return lambda X: np.full(len(X), mean)


def _at_stage(model: BoostedModel, stage: int) -> Predict:
    return lambda X: np.asarray(model.predict(X, stages=stage), dtype=np.float64)


Validation = tuple[np.ndarray, np.ndarray] | None


class _Gbdt:
    """scikit-learn's exact trees: the anchor of the published runs."""

    def __init__(
        self, config: AnchorSettings, X: np.ndarray, y: np.ndarray, stages: int, seed: int, *, validation: Validation
    ) -> None:
        self.model = GradientBoostingRegressor(n_estimators=stages, random_state=seed, **config.params).fit(X, y)
        self.validation = validation

    def staged_rmse(self) -> np.ndarray:
        assert self.validation is not None
        X, y = self.validation
        return np.array([np.sqrt(np.mean((y - mean) ** 2)) for mean in self.model.staged_predict(X)])

    def predict(self, X: np.ndarray, *, stages: int) -> np.ndarray:
        # Stages are sequential, so the first ones of a long fit are the short fit.
        self.model.estimators_ = self.model.estimators_[:stages]
        return self.model.predict(X)


class _ExactTrees:
    """The same trees as scikit-learn's, ties apart, in a tenth of the time; nothing in them is random."""

    def __init__(
        self, config: AnchorSettings, X: np.ndarray, y: np.ndarray, stages: int, seed: int, *, validation: Validation
    ) -> None:
        self.model = trees.fit(X, y, stages=stages, validation=validation, **config.params)
        self.validation = validation

    def staged_rmse(self) -> np.ndarray:
        assert self.validation is not None
        return self.model.staged_rmse(*self.validation)

    def predict(self, X: np.ndarray, *, stages: int) -> np.ndarray:
        return self.model.predict(X, stages=stages)


class _XGBoost:
    """Fitted to the z-scored target: XGBoost drops splits whose gain is under an absolute 1e-6, which on a target as
    small as Naval's (standard deviation 0.015) would stop the trees early.

    `rows_per_bin` gives a feature one histogram bin for so many rows, 16 to 256 in all; XGBoost's own number is 256. On
    a few hundred rows most of the time goes into bins, and they are no better for being nearly empty.
    """

    def __init__(
        self, config: AnchorSettings, X: np.ndarray, y: np.ndarray, stages: int, seed: int, *, validation: Validation
    ) -> None:
        import xgboost

        self.evaluation: dict[str, dict[str, list[float]]] = {}
        self.matrix = xgboost.DMatrix
        self.y_mean, self.y_std = y.mean(), y.std() or 1.0
        parameters = {"objective": "reg:squarederror", "nthread": 1, "seed": seed, **config.params}
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
        """In units of the training target's standard deviation, which leaves the best stage where it is."""
        return np.array(self.evaluation["validation"]["rmse"])

    def predict(self, X: np.ndarray, *, stages: int) -> np.ndarray:
        mean_z = self.model.predict(self.matrix(X), iteration_range=(0, stages))
        return mean_z.astype(np.float64) * self.y_std + self.y_mean


class _LightGBM:
    def __init__(
        self, config: AnchorSettings, X: np.ndarray, y: np.ndarray, stages: int, seed: int, *, validation: Validation
    ) -> None:
        lightgbm = _import_lightgbm()
        parameters = {
            "objective": "regression",
            "metric": "rmse",
            "num_threads": 1,
            "deterministic": True,
            "seed": seed,
            "verbosity": -1,
            **config.params,
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
    AnchorKind.gbdt: _Gbdt,
    AnchorKind.trees: _ExactTrees,
    AnchorKind.xgboost: _XGBoost,
    AnchorKind.lightgbm: _LightGBM,
}


def require_usable(config: AnchorSettings, *, cross_fitted: bool = False) -> None:
    """An import path that is a regressor's and parameters it knows; XGBoost and LightGBM judge theirs."""
    if config.kind in (AnchorKind.stack, AnchorKind.network) and not cross_fitted:
        raise UserError(f"anchor.kind={config.kind.value} must be cross-fitted: add model=crossfit")
    if config.kind is AnchorKind.stack:
        for member in config.members():
            require_usable(member, cross_fitted=cross_fitted)
        return
    if config.kind is AnchorKind.sklearn:
        assert config.target is not None
        accepted = parameters_of(import_regressor("anchor.target", config.target))
    elif config.kind is AnchorKind.gbdt:
        # anchor.stages and seed are the other two
        accepted = set(GradientBoostingRegressor().get_params()) - {"n_estimators", "random_state"}
    elif config.kind is AnchorKind.trees:
        accepted = {"learning_rate", "max_depth", "early_stopping_rounds"}
    else:
        if config.kind is AnchorKind.lightgbm:
            _import_lightgbm()
        rows_per_bin = config.params.get("rows_per_bin", 1)
        if config.kind is AnchorKind.xgboost and not (isinstance(rows_per_bin, int) and rows_per_bin >= 1):
            raise UserError(f"anchor.params.rows_per_bin must be a whole number from 1, received {rows_per_bin}")
        return
    if accepted is None:
        return
    unknown = sorted(set(config.params) - accepted)
    if unknown:
        names = f"among {', '.join(sorted(accepted))}" if accepted else "none: it takes no parameters"
        raise UserError(f"anchor.params must be {names}, received {', '.join(unknown)}")


def _import_lightgbm() -> Any:
    try:
        import lightgbm
    except ImportError:
        raise UserError("anchor=lightgbm needs the lightgbm package: pip install 'anchormoe[anchors]'") from None
    return lightgbm


def regressor(config: AnchorSettings, seed: int) -> Any:
    assert config.target is not None
    return with_seed(import_regressor("anchor.target", config.target), config.params, seed)
