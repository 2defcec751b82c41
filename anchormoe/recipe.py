"""The paper's recipe on one split: anchor, phase 1 on TR/VA, phase 2 on TV, linear map on CAL, prediction of TEST."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

from anchormoe.anchors import AnchorMeans, anchor_means
from anchormoe.calibrate import LinearMap, fit_linear_map
from anchormoe.config import Calibration, Config, Fold, InitialWeights, ModelConfig, RouterKind
from anchormoe.data import Dataset
from anchormoe.metrics import Outcome
from anchormoe.model import AnchorMoE
from anchormoe.splits import Split
from anchormoe.train import Batch, predict, refit, select_epoch


def fit_predict(config: Config, dataset: Dataset, split: Split, *, inner_seed: int) -> Outcome:
    start = time.perf_counter()
    anchor = anchor_means(config.anchor, dataset.X, dataset.y, split, seed=inner_seed)
    phase1 = Scaling.of(config, dataset, split, anchor, fold="tr")
    phase2 = Scaling.of(config, dataset, split, anchor, fold="tv")
    if config.rules.feature_fold is Fold.train:
        phase2 = dataclasses.replace(phase2, column_mean=phase1.column_mean, column_std=phase1.column_std)

    batches = _batches(phase1, dataset, split, anchor, ("tr", "va"))
    model = initial_model(
        config.model,
        input_dim=len(phase1.column_mean),
        seed=config.seed,
        number=split.number,
        initial_weights=config.rules.initial_weights,
    )
    selected = select_epoch(model, batches["tr"], batches["va"], config.train)

    batches = _batches(phase2, dataset, split, anchor, ("tv", "cal", "test"))
    refit(model, batches["tv"], selected.epoch, config.train)

    linear_map = LinearMap()
    calibrated = config.calibration is Calibration.linear and len(split.cal) > 0
    if calibrated:
        cal_mean = phase2.to_y(predict(model, batches["cal"]).mean)
        linear_map = fit_linear_map(cal_mean, dataset.y[split.cal])
    fitted = time.perf_counter()

    mixture = predict(model, batches["test"])
    mean_y = phase2.to_y(mixture.mean)
    return Outcome(
        mixture_z=mixture,
        center=phase2.y_mean,
        scale=phase2.y_std,
        mean_y=linear_map(mean_y),
        mean_y_uncalibrated=mean_y,
        fit_seconds=fitted - start,
        predict_seconds=time.perf_counter() - fitted,
        anchor_stage=anchor.stage,
        epoch=selected.epoch,
        calibration_a=linear_map.slope if calibrated else None,
        calibration_b=linear_map.intercept if calibrated else None,
    )


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
    def of(cls, config: Config, dataset: Dataset, split: Split, anchor: AnchorMeans, *, fold: str) -> Scaling:
        rows = getattr(split, fold)
        y = dataset.y[rows]
        y_mean, y_std = float(y.mean()), float(y.std()) + 1e-8
        columns = dataset.X[rows]
        if config.rules.anchor_column:
            columns = np.column_stack([columns, (getattr(anchor, fold) - y_mean) / y_std])
        return cls(y_mean, y_std, columns.mean(0), columns.std(0) + 1e-8, config.rules.anchor_column)

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


def _batches(
    scaling: Scaling, dataset: Dataset, split: Split, anchor: AnchorMeans, folds: Iterable[str]
) -> dict[str, Batch]:
    return {
        fold: scaling.batch(dataset.X[getattr(split, fold)], dataset.y[getattr(split, fold)], getattr(anchor, fold))
        for fold in folds
    }


def _float32(values: np.ndarray) -> torch.Tensor:
    return torch.as_tensor(values, dtype=torch.float32)
