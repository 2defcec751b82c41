"""Anchor-MoE by the paper's recipe: anchor, phase 1 on TR/VA, phase 2 on TV, linear map of the mean on CAL."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from anchormoe.data.splits import InnerSplit, inner_split
from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.distributions.recalibrated import Recalibrated
from anchormoe.model.anchors.selection import SelectedAnchor, require_usable, select_anchor
from anchormoe.model.calibration import LinearMap, Recalibration, fit_linear_map
from anchormoe.model.conformal import fit_recalibration
from anchormoe.model.encoding import Encoder, Takes, dense_encoder
from anchormoe.model.held_out import AnchorSummary, HeldOut
from anchormoe.model.kernels.clock import clock
from anchormoe.model.latent_rows import LatentRows
from anchormoe.model.network import AnchorMoE, initial_model
from anchormoe.model.parallel import ONE_WORKER, Workers
from anchormoe.model.settings import (
    AnchorSettings,
    Calibration,
    Fold,
    InitialWeights,
    ModelSettings,
    TrainingSettings,
)
from anchormoe.model.sharing import shared
from anchormoe.model.standardise import Scaling
from anchormoe.model.training import SelectedEpoch, predict, refit, select_epoch
from anchormoe.model.training_rows import TrainingRows


class PaperAnchorMoE:
    """The regressor of the paper, with the quirks of its published runs as arguments.

    inner_seed: the seed of the inner splits and the anchor; None means the random state.
    calibration_fraction, validation_fraction: CAL's share of the training rows, VA's share of the rest.
    feature_fold: the fold whose column statistics phase 2 uses.
    anchor_column: whether the anchor is a column of the network's input.
    weight_draws: the initial weights are this draw of the random state's stream; the published run of split n first
        drew the weights of all splits before it.
    """

    takes = Takes.categories
    categorical_features: Sequence[int] = ()  # positions of the columns of X that hold category codes

    def __init__(
        self,
        *,
        anchor: AnchorSettings | None = None,
        model: ModelSettings | None = None,
        train: TrainingSettings | None = None,
        calibration: Calibration = Calibration.linear,
        calibration_fraction: float = 0.125,
        validation_fraction: float = 0.2,
        feature_fold: Fold = Fold.train_validation,
        anchor_column: bool = True,
        initial_weights: InitialWeights = InitialWeights.own,
        weight_draws: int = 1,
        inner_seed: int | None = None,
        random_state: int = 1,
    ) -> None:
        self.anchor = anchor or AnchorSettings()
        self.model = model or ModelSettings()
        self.train = train or TrainingSettings()
        self.calibration = calibration
        self.calibration_fraction = calibration_fraction
        self.validation_fraction = validation_fraction
        self.feature_fold = feature_fold
        self.anchor_column = anchor_column
        self.initial_weights = initial_weights
        self.weight_draws = weight_draws
        self.inner_seed = random_state if inner_seed is None else inner_seed
        self.random_state = random_state
        require_usable(self.anchor)

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        """Fit to rows X (N, I) and targets y (N,)."""
        return self.fit_rows(TrainingRows(X, y, None, tuple(self.categorical_features)))

    def fit_rows(self, rows: TrainingRows, workers: Workers = ONE_WORKER) -> Self:
        """Fit to rows that may have weights, categories and gaps; there is one network, hence one piece of work."""
        (fitted,) = workers.map("both phases", self._fit, [rows])
        return fitted

    def _fit(self, rows: TrainingRows) -> Self:
        inner = inner_split(
            len(rows),
            self.inner_seed,
            calibration_fraction=self.calibration_fraction,
            validation_fraction=self.validation_fraction,
        )
        network: FittedNetwork = shared(_fit_network)(
            rows,
            inner,
            self.anchor,
            self.model.for_rows(len(rows)),
            self.train,
            self.feature_fold,
            self.anchor_column,
            self.initial_weights,
            self.weight_draws,
            self.inner_seed,
            self.random_state,
        )
        start = clock()
        # Without CAL rows the rows of VA are held out: the stage and the epoch were selected on them.
        judged = rows[inner.cal if len(inner.cal) > 0 else inner.va]
        raw = network.predict(judged.X)
        linear_map, recalibration = None, None
        if self.calibration.maps_cdf and len(inner.cal) > 0:
            recalibration = fit_recalibration(self.calibration, raw.cdf(judged.y), judged.weight)
        elif self.calibration is not Calibration.none and len(inner.cal) > 0:
            spread = raw.std if self.calibration is Calibration.weighted else 1.0
            linear_map = fit_linear_map(raw.mean, judged.y, spread, judged.weight)
        held_out = HeldOut.of(finished(raw, linear_map, recalibration), judged, self.random_state)
        anchor_rmse = math.sqrt(judged.mean((judged.y - network.anchor.predict(judged.X)) ** 2))
        anchor = AnchorSummary(self.anchor.name, anchor_rmse, network.anchor.stage, ())
        latent = LatentRows.of([network], rows.X, self.random_state)
        self.fitted_ = FittedPaper(network, linear_map, anchor, held_out, recalibration, latent)
        self.diagnostics_: dict[str, Any] = {
            "anchor_stage": network.anchor.stage,
            "epoch": network.selected.epoch,
            "longest_wait": network.selected.longest_wait,
            "calibration_a": linear_map.slope if linear_map else None,
            "calibration_b": linear_map.intercept if linear_map else None,
            "fit_seconds": network.seconds + clock() - start,
        }
        return self

    def predict_dist(self, X: np.ndarray) -> GaussianMixture | Recalibrated:
        """Predict densities of rows; a linear calibration maps their reported means and leaves the densities alone."""
        return self.fitted_.predict_dist(X)


@dataclass(frozen=True)
class FittedPaper:
    """Everything that a fitted regressor predicts with, and its estimate of how good it is."""

    network: FittedNetwork
    linear_map: LinearMap | None
    anchor: AnchorSummary
    held_out: HeldOut
    recalibration: Recalibration | None = None
    latent: LatentRows | None = None

    @property
    def networks(self) -> tuple[FittedNetwork, ...]:
        """Return the one network with its encoder and scaling."""
        return (self.network,)

    def predict_dist(self, X: np.ndarray, workers: Workers = ONE_WORKER) -> GaussianMixture | Recalibrated:
        """Predict densities of rows, all at once: one network needs little memory."""
        return finished(self.network.predict(X), self.linear_map, self.recalibration)


def finished(
    raw: GaussianMixture, linear_map: LinearMap | None, recalibration: Recalibration | None
) -> GaussianMixture | Recalibrated:
    """Map the distribution functions; or map the reported means, and leave the densities as they are."""
    if recalibration is not None:
        return recalibration(raw)
    if linear_map is None:
        return raw
    mean = raw.mean
    return dataclasses.replace(raw, reported_mean=linear_map(mean), mean_before_calibration=mean)


@dataclass(frozen=True)
class FittedNetwork:
    """An anchor and a network after both phases, with the units of phase 2.

    `seconds` is the time of the computation, also for a fit that shares it.
    """

    anchor: SelectedAnchor
    encoder: Encoder
    model: AnchorMoE
    scaling: Scaling
    selected: SelectedEpoch
    seconds: float

    def predict(self, X: np.ndarray) -> GaussianMixture:
        batch = self.scaling.batch(self.encoder(X), np.zeros(len(X)), self.anchor.predict(X))
        return predict(self.model, batch).in_units(float(self.scaling.y_mean), float(self.scaling.y_std))


def _fit_network(
    rows: TrainingRows,
    inner: InnerSplit,
    anchor_settings: AnchorSettings,
    model_settings: ModelSettings,
    training_settings: TrainingSettings,
    feature_fold: Fold,
    anchor_column: bool,
    initial_weights: InitialWeights,
    weight_draws: int,
    inner_seed: int,
    random_state: int,
) -> FittedNetwork:
    anchor, anchor_seconds = shared(_timed_anchor)(anchor_settings, rows, inner, inner_seed)
    start = clock()
    tr, va, tv = (rows[part] for part in (inner.tr, inner.va, inner.tv))
    anchor_tv = anchor.predict(tv.X)
    encoder1, encoder2 = (dense_encoder(part, rows) for part in (tr, tv))
    phase1 = Scaling.of_rows(encoder1(tr.X), tr.y, anchor.tr, anchor_column=anchor_column)
    phase2 = Scaling.of_rows(encoder2(tv.X), tv.y, anchor_tv, anchor_column=anchor_column)
    if feature_fold is Fold.train:
        phase2 = dataclasses.replace(phase2, column_mean=phase1.column_mean, column_std=phase1.column_std)
    model = initial_model(
        model_settings,
        input_dim=len(phase1.column_mean),
        seed=random_state,
        number=weight_draws,
        initial_weights=initial_weights,
    ).to(training_settings.device)
    train, validation = (
        phase1.batch(encoder1(part.X), part.y, means, part.weight) for part, means in ((tr, anchor.tr), (va, anchor.va))
    )
    selected = select_epoch(model, train, validation, training_settings)
    both = phase2.batch(encoder2(tv.X), tv.y, anchor_tv, tv.weight)
    refit(model, both, selected.epoch, training_settings)
    return FittedNetwork(anchor, encoder2, model, phase2, selected, anchor_seconds + clock() - start)


def _timed_anchor(
    settings: AnchorSettings, rows: TrainingRows, inner: InnerSplit, seed: int
) -> tuple[SelectedAnchor, float]:
    start = clock()
    anchor = select_anchor(settings, rows, inner, seed=seed)
    return anchor, clock() - start
