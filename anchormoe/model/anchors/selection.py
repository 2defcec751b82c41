"""The anchor of the paper's recipe: its stage is selected on VA, then it is fitted again on TR and VA together."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from anchormoe.data.splits import InnerSplit
from anchormoe.errors import UserError
from anchormoe.model.anchors.boosted import BOOSTED, ENCODERS, import_lightgbm
from anchormoe.model.anchors.exact_trees import Shares
from anchormoe.model.anchors.fitted import ConstantAnchor, Predict, RegressorAnchor, StagedAnchor
from anchormoe.model.anchors.imported import fit_regressor, make_regressor, parameters_of, regressor_of
from anchormoe.model.encoding import dense_encoder, encoded
from anchormoe.model.settings import AnchorKind, AnchorSettings, ModelSettings
from anchormoe.model.training_rows import TrainingRows


@dataclass(frozen=True)
class SelectedAnchor:
    """The anchors of both phases.

    Phase 1 needs only its means of TR and VA; `predict` is phase 2's, fitted on both. `stage` is None for anchors that
    have no stages.
    """

    stage: int | None
    tr: np.ndarray
    va: np.ndarray
    predict: Predict


def select_anchor(settings: AnchorSettings, rows: TrainingRows, inner: InnerSplit, *, seed: int) -> SelectedAnchor:
    """Fit on TR, select the stage with the lowest RMSE on VA, and fit this number of stages on TV.

    Stages are sequential, so the fit on TR cut at the stage gives phase 1's anchor. Regressors without stages are
    fitted on TR and again on TV.
    """
    stage = None
    first: Predict
    final: Predict
    if settings.kind is AnchorKind.none:
        first, final = (ConstantAnchor(rows[part].center) for part in (inner.tr, inner.tv))
    elif settings.kind in BOOSTED:
        fit = BOOSTED[settings.kind]
        encoder_tr, encoder_tv = (ENCODERS[settings.kind](rows[part], rows) for part in (inner.tr, inner.tv))
        tr, va = (encoded(rows[part], encoder_tr) for part in (inner.tr, inner.va))
        staged = fit(settings, tr, settings.stages, seed, validation=va)
        stage = 1 + int(np.argmin(staged.staged_rmse()))
        first = StagedAnchor(staged, encoder_tr, stage)
        tv = encoded(rows[inner.tv], encoder_tv)
        final = StagedAnchor(fit(settings, tv, stage, seed, validation=None), encoder_tv, stage)
    else:
        first, final = (_regressor(settings, rows[part], rows, seed) for part in (inner.tr, inner.tv))
    return SelectedAnchor(stage, first(rows.X[inner.tr]), first(rows.X[inner.va]), final)


def _regressor(settings: AnchorSettings, part: TrainingRows, whole: TrainingRows, seed: int) -> RegressorAnchor:
    encoder, model = dense_encoder(part, whole), make_regressor(settings, seed)
    fit_regressor(settings.name, model, encoder(part.X), part.y, part.weight)
    return RegressorAnchor(model, encoder)


def require_usable(settings: AnchorSettings, *, cross_fitted: bool = False) -> None:
    """Refuse an import path that does not name a regressor, and parameters that an anchor does not have.

    XGBoost and LightGBM check their parameters themselves.
    """
    if settings.kind in (AnchorKind.stack, AnchorKind.network) and not cross_fitted:
        raise UserError(f"anchor.kind={settings.kind.value} must be cross-fitted: use method=anchormoe_crossfit")
    if settings.kind is AnchorKind.stack:
        for member in settings.stack_members():
            require_usable(member, cross_fitted=cross_fitted)
        return
    accepted = _accepted_parameters(settings)
    unknown = [] if accepted is None else sorted(set(settings.params) - accepted)
    if unknown:
        names = f"among {', '.join(sorted(accepted or ()))}" if accepted else "none: it takes no parameters"
        raise UserError(f"anchor.params must be {names}, received {', '.join(unknown)}")


def _accepted_parameters(settings: AnchorSettings) -> set[str] | None:
    """Return the names of the parameters that an anchor takes, None if it takes any."""
    kind = settings.kind
    if kind is AnchorKind.lightgbm:
        import_lightgbm()
        return None
    if kind is AnchorKind.xgboost:
        rows_per_bin = settings.params.get("rows_per_bin", 1)
        if not (isinstance(rows_per_bin, int) and rows_per_bin >= 1):
            raise UserError(f"anchor.params.rows_per_bin must be a whole number from 1, received {rows_per_bin}")
        return None
    if kind is AnchorKind.gbdt:
        from sklearn.ensemble import GradientBoostingRegressor

        # these two are set by anchor.stages and the seed
        return set(GradientBoostingRegressor().get_params()) - {"n_estimators", "random_state"}
    if kind is AnchorKind.trees:
        shares = {"row_share", "column_share", "penalty"}
        Shares(**{name: value for name, value in settings.params.items() if name in shares})
        return {"learning_rate", "max_depth", "early_stopping_rounds", *shares}
    if kind is AnchorKind.sklearn:
        return parameters_of(regressor_of(settings))
    if kind in (AnchorKind.quadratic, AnchorKind.kernel):
        unseeded = AnchorSettings(settings.name, kind)
        return parameters_of(type(make_regressor(unseeded, 0)))
    if kind is AnchorKind.network:  # settings in which the network of a stack differs from the recipe's
        return {field.name for field in dataclasses.fields(ModelSettings)} - {"name", "anchor_mode"}
    return set()
