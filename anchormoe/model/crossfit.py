"""Anchor-MoE cross-fitted: every part is stopped, chosen and calibrated on rows it has not seen.

The training rows are cut into folds. Each fold has a network of its own, trained on the other folds with their
out-of-fold anchors and stopped on the fold itself; all networks together, as one mixture, predict a new row. No rows
are set aside as VA or CAL: the calibration uses the held-out densities of all training rows.

Networks work in units of the anchor's out-of-fold error, so that one setting of learning rate, penalties and scales
fits a target that its anchor predicts to a thousandth and one that it hardly predicts at all.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.model.anchors import out_of_fold
from anchormoe.model.anchors.fitted import Predict
from anchormoe.model.anchors.out_of_fold import Folds, OutOfFold
from anchormoe.model.anchors.selection import require_usable
from anchormoe.model.calibration import LinearMap, fit_linear_map
from anchormoe.model.encoding import EncodedFolds, Encoder, dense_encoder, encode_folds
from anchormoe.model.held_out import AnchorSummary, HeldOut
from anchormoe.model.network import AnchorMoE, initial_model
from anchormoe.model.parallel import ONE_WORKER, Workers
from anchormoe.model.settings import (
    AnchorKind,
    AnchorMode,
    AnchorSettings,
    Calibration,
    CrossfitSettings,
    InitialWeights,
    ModelSettings,
    TrainingSettings,
)
from anchormoe.model.standardise import Scaling
from anchormoe.model.training import SelectedEpoch, predict, select_epoch
from anchormoe.model.training_rows import TrainingRows, folds_of

BLOCK_ROWS = 8192  # rows that are predicted at a time


class CrossfitAnchorMoE:
    """The cross-fitted regressor. Its presets are in conf/method/anchormoe_crossfit.yaml.

    anchor_column: whether the anchor is a column of the networks' input.
    """

    def __init__(
        self,
        *,
        anchor: AnchorSettings | None = None,
        model: ModelSettings | None = None,
        train: TrainingSettings | None = None,
        crossfit: CrossfitSettings | None = None,
        calibration: Calibration = Calibration.weighted,
        anchor_column: bool = True,
        initial_weights: InitialWeights = InitialWeights.shared,
        random_state: int = 1,
    ) -> None:
        self.anchor = anchor or AnchorSettings()
        self.model = model or ModelSettings()
        self.train = train or TrainingSettings()
        self.crossfit = crossfit or CrossfitSettings()
        self.calibration = calibration
        self.anchor_column = anchor_column
        self.initial_weights = initial_weights
        self.random_state = random_state
        require_usable(self.anchor, cross_fitted=True)

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        """Fit to rows X (N, I) and targets y (N,)."""
        return self.fit_rows(TrainingRows(X, y))

    def fit_rows(self, rows: TrainingRows, workers: Workers = ONE_WORKER) -> Self:
        """Fit to rows that may have weights, categories and gaps, several folds at a time."""
        settings = Settings(
            self.crossfit, self.anchor, self.model, self.train, self.anchor_column, self.initial_weights
        )
        fitted = fit(settings, rows, seed=self.random_state, workers=workers)
        linear_map = fitted.linear_map(self.calibration)
        target = TargetStatistics.of(rows.y)
        held_out = finished(fitted.held_out, linear_map, target)
        self.fitted_ = FittedCrossfit(
            fitted.members, linear_map, target, fitted.anchor, HeldOut.of(held_out, rows, self.random_state)
        )
        return self

    @property
    def diagnostics_(self) -> dict[str, Any]:
        """Return facts about the fit for the row: the mean epoch, the longest wait, the calibration."""
        selected, linear_map = [member.selected for member in self.fitted_.members], self.fitted_.linear_map
        return {
            "anchor_stage": None,
            "epoch": round(np.mean([one.epoch for one in selected])),
            "longest_wait": max(one.longest_wait for one in selected),
            "calibration_a": None if linear_map is None else linear_map.slope,
            "calibration_b": None if linear_map is None else linear_map.intercept,
        }

    def predict_dist(self, X: np.ndarray) -> GaussianMixture:
        """Predict calibrated densities of rows, with a component for rows unlike all others."""
        return self.fitted_.predict_dist(X)


@dataclass(frozen=True)
class FittedCrossfit:
    """Everything that a fitted regressor predicts with, and its honest estimate of how good it is."""

    members: tuple[Member, ...]
    linear_map: LinearMap | None
    target: TargetStatistics
    anchor: AnchorSummary
    held_out: HeldOut

    @property
    def networks(self) -> tuple[Member, ...]:
        """Return the networks with their encoders and scalings."""
        return self.members

    def predict_dist(self, X: np.ndarray, workers: Workers = ONE_WORKER) -> GaussianMixture:
        """Predict calibrated densities of rows, in blocks that bound the memory, several of them at a time."""

        def predict_block(rows: np.ndarray) -> GaussianMixture:
            return finished(pooled([member.predict(rows) for member in self.members]), self.linear_map, self.target)

        blocks = [X[first : first + BLOCK_ROWS] for first in range(0, max(len(X), 1), BLOCK_ROWS)]
        parts = workers.map("rows", predict_block, blocks)
        return parts[0] if len(parts) == 1 else GaussianMixture.concatenated(parts)


def finished(raw: GaussianMixture, linear_map: LinearMap | None, target: TargetStatistics) -> GaussianMixture:
    """Calibrate densities, add the component for rows unlike all others, and state the units of the target."""
    mixture = raw if linear_map is None else calibrated(raw, linear_map)
    mixture = with_outlier_component(mixture, target)
    center, scale = target.mean, target.std + 1e-8
    standard = mixture.affine(scale=1 / scale, shift=-center / scale)
    return dataclasses.replace(standard, center=center, scale=scale, mean_before_calibration=raw.mean)


@dataclass(frozen=True)
class TargetStatistics:
    """The number of training rows, and the mean and standard deviation of their targets."""

    num_rows: int
    mean: float
    std: float

    @classmethod
    def of(cls, y: np.ndarray) -> TargetStatistics:
        return cls(len(y), float(y.mean()), float(y.std()))


@dataclass(frozen=True)
class Settings:
    """The settings that all members of one fit share."""

    crossfit: CrossfitSettings
    anchor: AnchorSettings
    model: ModelSettings
    train: TrainingSettings
    anchor_column: bool = True
    initial_weights: InitialWeights = InitialWeights.own


@dataclass(frozen=True)
class Member:
    """A network with the anchor and the units it was trained with."""

    anchor: Predict
    encoder: Encoder
    model: AnchorMoE
    scaling: Scaling
    selected: SelectedEpoch

    def predict(self, X: np.ndarray) -> GaussianMixture:
        """Predict densities in original units."""
        batch = self.scaling.batch(self.encoder(X), np.zeros(len(X)), self.anchor(X))
        mixture = predict(self.model, batch).float64()
        return mixture.affine(scale=self.scaling.y_std, shift=self.scaling.y_mean)


@dataclass(frozen=True)
class CrossFit:
    """All members, and the density of each training row by the member that has not seen it, in row order."""

    members: tuple[Member, ...]
    held_out: GaussianMixture
    rows: TrainingRows
    anchor: AnchorSummary

    def predict(self, X: np.ndarray) -> GaussianMixture:
        """Predict one mixture of all members, in original units and not calibrated."""
        return pooled([member.predict(X) for member in self.members])

    def linear_map(self, calibration: Calibration) -> LinearMap | None:
        """Fit the targets by least squares on the held-out means.

        Where errors grow with the target (Yacht), plain least squares moves many small targets to fit a few large ones;
        in the weighted form a row counts by the precision of its density.
        """
        if calibration is Calibration.none:
            return None
        spread = np.sqrt(self.held_out.variance) if calibration is Calibration.weighted else 1.0
        return fit_linear_map(self.held_out.mean, self.rows.y, spread, self.rows.weight)


def pooled(parts: Sequence[GaussianMixture]) -> GaussianMixture:
    """Average the members' densities, and draw the components together until the variance is the members' average.

    A member's spread covers its own errors on rows it has not seen. Where members disagree, the average of their
    densities is wider, although the average of their means has a smaller error. So the disagreement is removed again.
    """
    mixture = GaussianMixture.average(parts)
    center = mixture.mean
    within = (mixture.weights * np.square(mixture.scales)).sum(1)
    between = mixture.variance - within
    disagreement = np.stack([np.square(part.mean - center) for part in parts]).mean(0)
    share = np.divide(disagreement, between, out=np.zeros_like(between), where=between > 0)
    kept = np.sqrt(np.clip(1 - share, 0, 1))
    means = center[:, None] + (mixture.means - center[:, None]) * kept[:, None]
    return dataclasses.replace(mixture, means=means)


def calibrated(mixture: GaussianMixture, linear_map: LinearMap) -> GaussianMixture:
    """Move every density so that its mean becomes the mapped mean."""
    mean = mixture.mean
    return dataclasses.replace(mixture, means=mixture.means + (linear_map(mean) - mean)[:, None])


def with_outlier_component(mixture: GaussianMixture, target: TargetStatistics) -> GaussianMixture:
    """Add a wide component of weight 1 / (N + 1), for a row unlike all N before it.

    The weight is the probability of such a row by the rule of succession, and the width is the spread of all targets.
    Without it, one odd row in a thousand (Energy has one) outweighs all others in a mean log score.
    """
    chance = 1 / (target.num_rows + 1)
    wide = GaussianMixture.normal(mixture.mean, target.std or 1e-8)
    return GaussianMixture.average([mixture, wide], [1 - chance, chance])


def fit(settings: Settings, rows: TrainingRows, *, seed: int, workers: Workers = ONE_WORKER) -> CrossFit:
    """Fit the out-of-fold anchor, then a network per fold."""
    folds = Folds(rows, folds_of(len(rows), settings.crossfit.num_folds(len(rows)), seed=seed), seed, workers)
    encoded = encode_folds(dense_encoder, rows, folds.held_out)

    def network() -> OutOfFold:
        """Fit the recipe itself without an anchor, as a point regressor."""
        none = AnchorSettings(name="none", kind=AnchorKind.none)
        free = dataclasses.replace(settings.model, anchor_mode=AnchorMode.free)
        constant = out_of_fold.fit(none, folds, network=network)
        members = _members(dataclasses.replace(settings, anchor=none, model=free), folds, encoded, constant, "network")
        return OutOfFold(_held_out(members, folds).mean, tuple(MeanOf(member) for member in members))

    anchor = out_of_fold.fit(settings.anchor, folds, network=network)
    members = _members(settings, folds, encoded, anchor, "experts")
    summary = AnchorSummary(settings.anchor.name, anchor.rmse(rows), anchor.stage, anchor.members)
    return CrossFit(members, _held_out(members, folds), rows, summary)


def num_pieces(settings: AnchorSettings, num_folds: int) -> int:
    """Return the number of pieces of work that a fit reports: the models of all anchors, and the networks."""
    anchors = settings.stack_members() if settings.kind is AnchorKind.stack else [settings]
    return num_folds * (1 + sum(anchor.kind is not AnchorKind.none for anchor in anchors))


@dataclass(frozen=True)
class MeanOf:
    """A member as a point regressor."""

    member: Member

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return self.member.predict(X).mean


def _members(
    settings: Settings, folds: Folds, encoded: EncodedFolds, anchor: OutOfFold, title: str
) -> tuple[Member, ...]:
    rows = encoded.rows
    unit = anchor.rmse(rows) or 1e-8  # zero for a target that never varies
    scaling = Scaling.of_rows(rows.X, rows.y, anchor.mean, anchor_column=settings.anchor_column, unit=unit)
    scaling = scaling.limited(rows.X, anchor.mean)
    sigma_min = max(settings.model.sigma_min, rounding_error(rows.y, unit) / unit)
    model_settings = dataclasses.replace(
        settings.model, sigma_min=sigma_min, sigma_max=max(settings.model.sigma_max, sigma_min)
    )

    def member(number: int) -> Member:
        model = initial_model(
            model_settings,
            input_dim=len(scaling.column_mean),
            seed=int(np.random.SeedSequence([folds.seed, number]).generate_state(1)[0]),
            number=1,
            initial_weights=settings.initial_weights,
        ).to(settings.train.device)
        train, held_out = (
            scaling.batch(part.X, part.y, anchor.mean[index], part.weight)
            for index, part in ((index, rows[index]) for index in (folds.kept(number), folds.held_out[number]))
        )
        selected = select_epoch(model, train, held_out, settings.train)
        return Member(anchor.models[number], encoded.encoders[number], model, scaling, selected)

    return tuple(folds.workers.map(title, member, range(len(folds))))


def rounding_error(y: np.ndarray, anchor_error: float) -> float:
    """Return the standard deviation that rounding gives a target recorded in steps: step / sqrt(12).

    A narrower component would describe the recording, not the quantity: on grades such as Wine's, spikes at the whole
    numbers can reach any density. The result is 0 where the anchor's error is smaller than the rounding error (Naval).
    """
    values = np.unique(y)
    error = float(np.diff(values).min()) / math.sqrt(12) if len(values) > 1 else 0.0
    return error if error < anchor_error else 0.0


def _held_out(members: Sequence[Member], folds: Folds) -> GaussianMixture:
    parts = [member.predict(folds.rows.X[fold]) for member, fold in zip(members, folds.held_out, strict=True)]
    return GaussianMixture.concatenated(parts).rows(np.argsort(np.concatenate(folds.held_out)))
