"""The paper's recipe on one split: anchor, phase 1 on TR/VA, phase 2 on TV, linear map on CAL, prediction of TEST."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from anchormoe.model.settings import (
    AnchorSettings,
    Calibration,
    Config,
    Fold,
    ModelSettings,
    RunRules,
    TrainingSettings,
)
from anchormoe.data.dataset import Dataset
from anchormoe.data.splits import Split
from anchormoe.distributions.scores import Outcome
from anchormoe.model.anchors.boosted import AnchorMeans, anchor_means
from anchormoe.model.calibration import LinearMap, fit_linear_map
from anchormoe.model.kernels.compiled import clock
from anchormoe.model.network import AnchorMoE, initial_model
from anchormoe.model.scaling import Scaling
from anchormoe.model.sharing import shared
from anchormoe.model.training import Batch, SelectedEpoch, predict, refit, select_epoch


def fit_predict(config: Config, dataset: Dataset, split: Split, *, inner_seed: int) -> Outcome:
    fit: Fit = shared(_fit)(
        config.anchor, config.model, config.train, config.rules, config.seed, dataset, split, inner_seed
    )
    start = clock()
    linear_map = LinearMap()
    calibrated = config.calibration is not Calibration.none and len(split.cal) > 0
    if calibrated:
        cal = predict(fit.model, fit.batch(dataset, split, "cal"))
        spread = cal.variance.sqrt().numpy() if config.calibration is Calibration.weighted else 1.0
        linear_map = fit_linear_map(fit.scaling.to_y(cal.mean), dataset.y[split.cal], spread)
    fitted = clock()

    mixture = predict(fit.model, fit.batch(dataset, split, "test"))
    mean_y = fit.scaling.to_y(mixture.mean)
    return Outcome(
        distribution_z=mixture,
        center=fit.scaling.y_mean,
        scale=fit.scaling.y_std,
        mean_y=linear_map(mean_y),
        mean_y_uncalibrated=mean_y,
        fit_seconds=fit.seconds + fitted - start,
        predict_seconds=clock() - fitted,
        anchor_stage=fit.anchor.stage,
        epoch=fit.selected.epoch,
        longest_wait=fit.selected.longest_wait,
        calibration_a=linear_map.slope if calibrated else None,
        calibration_b=linear_map.intercept if calibrated else None,
    )


@dataclass(frozen=True)
class Fit:
    """An anchor and a network after both phases; `scaling` is phase 2's. `seconds` are those of the computation, also
    for those who share it."""

    anchor: AnchorMeans
    model: AnchorMoE
    scaling: Scaling
    selected: SelectedEpoch
    seconds: float

    def batch(self, dataset: Dataset, split: Split, fold: str) -> Batch:
        return fold_batch(self.scaling, dataset, split, self.anchor, fold)


def _fit(
    anchor_config: AnchorSettings,
    model_config: ModelSettings,
    train_config: TrainingSettings,
    rules: RunRules,
    seed: int,
    dataset: Dataset,
    split: Split,
    inner_seed: int,
) -> Fit:
    anchor, anchor_seconds = shared(_timed_anchor)(anchor_config, dataset, split, inner_seed)
    start = clock()
    phase1 = scaling_of(dataset, split, anchor, "tr", rules)
    phase2 = scaling_of(dataset, split, anchor, "tv", rules)
    if rules.feature_fold is Fold.train:
        phase2 = dataclasses.replace(phase2, column_mean=phase1.column_mean, column_std=phase1.column_std)
    model = initial_model(
        model_config,
        input_dim=len(phase1.column_mean),
        seed=seed,
        number=split.number,
        initial_weights=rules.initial_weights,
    )
    train, validation = (fold_batch(phase1, dataset, split, anchor, fold) for fold in ("tr", "va"))
    selected = select_epoch(model, train, validation, train_config)
    refit(model, fold_batch(phase2, dataset, split, anchor, "tv"), selected.epoch, train_config)
    return Fit(anchor, model, phase2, selected, anchor_seconds + clock() - start)


def _timed_anchor(config: AnchorSettings, dataset: Dataset, split: Split, inner_seed: int) -> tuple[AnchorMeans, float]:
    start = clock()
    anchor = anchor_means(config, dataset.X, dataset.y, split, seed=inner_seed)
    return anchor, clock() - start


def scaling_of(dataset: Dataset, split: Split, anchor: AnchorMeans, fold: str, rules: RunRules) -> Scaling:
    rows = getattr(split, fold)
    return Scaling.of_rows(dataset.X[rows], dataset.y[rows], getattr(anchor, fold), anchor_column=rules.anchor_column)


def fold_batch(scaling: Scaling, dataset: Dataset, split: Split, anchor: AnchorMeans, fold: str) -> Batch:
    rows = getattr(split, fold)
    return scaling.batch(dataset.X[rows], dataset.y[rows], getattr(anchor, fold))
