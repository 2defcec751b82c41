"""The paper's recipe on one split: anchor, phase 1 on TR/VA, phase 2 on TV, linear map on CAL, prediction of TEST."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from joblib import Memory

from anchormoe.anchors import AnchorMeans, anchor_means
from anchormoe.calibrate import LinearMap, fit_linear_map
from anchormoe.config import (
    AnchorConfig,
    Calibration,
    Config,
    Fold,
    InitialWeights,
    ModelConfig,
    RouterKind,
    RunRules,
    TrainConfig,
)
from anchormoe.data import Dataset
from anchormoe.metrics import Outcome
from anchormoe.model import AnchorMoE
from anchormoe.splits import Split
from anchormoe.train import Batch, SelectedEpoch, predict, refit, select_epoch

# Rows of one run share the fits they have in common: in protocol=clean all ablations but no_anchor have one anchor, and
# no_cal is the full model without its linear map. A call outside a run shares with nobody.
_memory = Memory(None, verbose=0)


@contextmanager
def shared_fits(folder: str) -> Iterator[None]:
    """Keep every anchor and network in a folder, for whoever in this or another process needs the same."""
    global _memory
    before, _memory = _memory, Memory(folder, verbose=0)
    try:
        yield
    finally:
        _memory = before


def fit_predict(config: Config, dataset: Dataset, split: Split, *, inner_seed: int) -> Outcome:
    fit: Fit = _memory.cache(_fit)(
        config.anchor, config.model, config.train, config.rules, config.seed, dataset, split, inner_seed
    )
    start = time.perf_counter()
    linear_map = LinearMap()
    calibrated = config.calibration is Calibration.linear and len(split.cal) > 0
    if calibrated:
        cal_mean = fit.scaling.to_y(predict(fit.model, fit.batch(dataset, split, "cal")).mean)
        linear_map = fit_linear_map(cal_mean, dataset.y[split.cal])
    fitted = time.perf_counter()

    mixture = predict(fit.model, fit.batch(dataset, split, "test"))
    mean_y = fit.scaling.to_y(mixture.mean)
    return Outcome(
        distribution_z=mixture,
        center=fit.scaling.y_mean,
        scale=fit.scaling.y_std,
        mean_y=linear_map(mean_y),
        mean_y_uncalibrated=mean_y,
        fit_seconds=fit.seconds + fitted - start,
        predict_seconds=time.perf_counter() - fitted,
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
    anchor_config: AnchorConfig,
    model_config: ModelConfig,
    train_config: TrainConfig,
    rules: RunRules,
    seed: int,
    dataset: Dataset,
    split: Split,
    inner_seed: int,
) -> Fit:
    anchor, anchor_seconds = _memory.cache(_timed_anchor)(anchor_config, dataset, split, inner_seed)
    start = time.perf_counter()
    phase1 = Scaling.of(dataset, split, anchor, fold="tr", anchor_column=rules.anchor_column)
    phase2 = Scaling.of(dataset, split, anchor, fold="tv", anchor_column=rules.anchor_column)
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
    return Fit(anchor, model, phase2, selected, anchor_seconds + time.perf_counter() - start)


def _timed_anchor(config: AnchorConfig, dataset: Dataset, split: Split, inner_seed: int) -> tuple[AnchorMeans, float]:
    start = time.perf_counter()
    anchor = anchor_means(config, dataset.X, dataset.y, split, seed=inner_seed)
    return anchor, time.perf_counter() - start


def initial_model(
    config: ModelConfig, *, input_dim: int, seed: int, number: int, initial_weights: InitialWeights
) -> AnchorMoE:
    """The model of the number-th split, with the weights it would have had in a run of all splits in order.

    One stream feeds the models of all splits one after the other, so earlier models are drawn and overwritten. With
    shared weights the full model is drawn and an ablated router removed afterwards: all other weights stay equal.
    """
    drawn = config
    if initial_weights is InitialWeights.shared and config.router is RouterKind.none:
        drawn = dataclasses.replace(config, router=RouterKind.dot)
    model = AnchorMoE(drawn, input_dim=input_dim)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(number):
        model.reset_parameters(generator)
    if drawn is not config:
        model.router, model.config = None, config
    return model


@dataclass(frozen=True)
class Scaling:
    """Statistics of one reference fold: of its target and of the network's input columns."""

    y_mean: float
    y_std: float
    column_mean: np.ndarray
    column_std: np.ndarray
    anchor_column: bool

    @classmethod
    def of(cls, dataset: Dataset, split: Split, anchor: AnchorMeans, *, fold: str, anchor_column: bool) -> Scaling:
        rows = getattr(split, fold)
        y = dataset.y[rows]
        y_mean, y_std = float(y.mean()), float(y.std()) + 1e-8
        columns = dataset.X[rows]
        if anchor_column:
            columns = np.column_stack([columns, (getattr(anchor, fold) - y_mean) / y_std])
        return cls(y_mean, y_std, columns.mean(0), columns.std(0) + 1e-8, anchor_column)

    def batch(self, X: np.ndarray, y: np.ndarray, anchor: np.ndarray) -> Batch:
        """float64 until the last step. The experts see the anchor standardised once more as a column; the component
        means use it as it is."""
        anchor_z = (anchor - self.y_mean) / self.y_std
        columns = np.column_stack([X, anchor_z]) if self.anchor_column else X
        return Batch(
            x=_float32((columns - self.column_mean) / self.column_std),
            anchor=_float32(anchor_z),
            y=_float32((y - self.y_mean) / self.y_std),
        )

    def to_y(self, mean_z: torch.Tensor) -> np.ndarray:
        return mean_z.double().numpy() * self.y_std + self.y_mean


def fold_batch(scaling: Scaling, dataset: Dataset, split: Split, anchor: AnchorMeans, fold: str) -> Batch:
    rows = getattr(split, fold)
    return scaling.batch(dataset.X[rows], dataset.y[rows], getattr(anchor, fold))


def _float32(values: np.ndarray) -> torch.Tensor:
    return torch.as_tensor(values, dtype=torch.float32)
