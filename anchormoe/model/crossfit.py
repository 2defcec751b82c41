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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np

from anchormoe.distributions.joint import JointMixture
from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.distributions.recalibrated import Recalibrated
from anchormoe.model.anchors import out_of_fold
from anchormoe.model.anchors.fitted import Predict
from anchormoe.model.anchors.out_of_fold import Folds, OutOfFold
from anchormoe.model.anchors.selection import require_usable
from anchormoe.model.calibration import NUM_PARTS, LinearMap, Recalibration, fit_linear_map
from anchormoe.model.conformal import fit_recalibration
from anchormoe.model.encoding import EncodedFolds, Encoder, dense_encoder, encode_folds
from anchormoe.model.held_out import AnchorSummary, HeldOut
from anchormoe.model.kernels.clock import clock
from anchormoe.model.latent_rows import LatentRows
from anchormoe.model.network import AnchorMoE, initial_model
from anchormoe.model.parallel import ONE_WORKER, Workers
from anchormoe.model.pool import Spread, narrowed, pooled
from anchormoe.model.settings import (
    AnchorKind,
    AnchorSettings,
    Calibration,
    CrossfitSettings,
    InitialWeights,
    ModelSettings,
    TrainingSettings,
    changed,
)
from anchormoe.model.sharing import shared
from anchormoe.model.standardise import Scaling
from anchormoe.model.training import SelectedEpoch, predict, select_epoch
from anchormoe.model.training_rows import TrainingRows, folds_of

BLOCK_ROWS = 8192  # most rows that are predicted at a time
BLOCK_STEP = 512  # sizes of blocks are multiples of this, so that sums do not depend on the number of threads


class CrossfitAnchorMoE:
    """The cross-fitted regressor. Its presets are conf/method/anchormoe_{crossfit,fast,best}.yaml.

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
        fitted, seconds = shared(_timed_fit, ignore=["workers"])(settings, rows, self.random_state, workers)
        start = clock()
        target, spread = TargetStatistics.of(rows.y), fitted.spread
        linear_map = fitted.linear_map(self.calibration)
        raw, recalibration = finished(fitted.held_out, linear_map, target), None
        if self.calibration.maps_cdf:
            recalibration = fit_recalibration(self.calibration, raw.cdf(rows.y), rows.weight)
        held_out = raw if recalibration is None else recalibration(raw)
        judged = HeldOut.of(held_out, rows, self.random_state)
        self.fitted_: Any = FittedCrossfit(
            fitted.members, linear_map, target, fitted.anchor, judged, recalibration, fitted.latent, spread
        )
        self._seconds = seconds + clock() - start
        return self

    @property
    def diagnostics_(self) -> dict[str, Any]:
        """Return facts about the fit for the row: the mean epoch, the longest wait, the calibration."""
        selected, (slope, intercept) = [member.selected for member in self.fitted_.members], self.fitted_.calibration
        return {
            "anchor_stage": None,
            "epoch": round(np.mean([one.epoch for one in selected])),
            "longest_wait": max(one.longest_wait for one in selected),
            "calibration_a": slope,
            "calibration_b": intercept,
            "fit_seconds": self._seconds,
        }

    def predict_dist(self, X: np.ndarray) -> Any:
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
    recalibration: Recalibration | None = None
    latent: LatentRows | None = None
    spread: Spread = dataclasses.field(default_factory=Spread)

    @property
    def networks(self) -> tuple[Member, ...]:
        """Return the networks with their encoders and scalings."""
        return self.members

    @property
    def calibration(self) -> tuple[Any, Any]:
        """Return slope and intercept of the linear map, None without one."""
        return (None, None) if self.linear_map is None else (self.linear_map.slope, self.linear_map.intercept)

    def predict_dist(self, X: np.ndarray, workers: Workers = ONE_WORKER) -> GaussianMixture | Recalibrated:
        """Predict calibrated densities of rows, in blocks that bound the memory, several of them at a time."""
        recalibration = self.recalibration

        def predict_block(rows: np.ndarray) -> GaussianMixture:
            parts = [member.predict(rows) for member in self.members]
            mixture = pooled(parts, self.spread.of_all)
            if recalibration is not None and not self.spread.is_measured:
                mixture = narrowed(mixture, parts)
            return finished(mixture, self.linear_map, self.target)

        parts = in_blocks(predict_block, X, workers)
        mixture = parts[0] if len(parts) == 1 else GaussianMixture.concatenated(parts)
        return mixture if recalibration is None else recalibration(mixture)


Predicted = TypeVar("Predicted")
Mixture = TypeVar("Mixture", GaussianMixture, JointMixture)


def in_blocks(predict_block: Callable[[np.ndarray], Predicted], X: np.ndarray, workers: Workers) -> list[Predicted]:
    """Return what is predicted for blocks of rows, several of them at a time."""
    size = _block_size(len(X), workers.num_threads)
    blocks = [X[first : first + size] for first in range(0, max(len(X), 1), size)]
    return workers.map("rows", predict_block, blocks)


def _block_size(num_rows: int, num_threads: int) -> int:
    """Return the rows of a block: at most BLOCK_ROWS, and about the same number of blocks for every thread."""
    num_blocks = num_threads * max(1, math.ceil(num_rows / (num_threads * BLOCK_ROWS)))
    return min(BLOCK_ROWS, max(BLOCK_STEP, math.ceil(num_rows / num_blocks / BLOCK_STEP) * BLOCK_STEP))


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

    def of_anchor(self) -> Settings:
        """Return the settings that the anchor depends on; `model` is that of the network in a stack, if it has one."""
        networks = [name for name, member in self.anchor.members.items() if member["kind"] == AnchorKind.network.value]
        if not networks:
            return dataclasses.replace(self, model=ModelSettings())
        (name,) = networks
        own = self.anchor.members[name].get("params", {})
        model = changed(self.model, {**own, "anchor_mode": "free"}, f"anchor.members.{name}.params")
        member = {key: value for key, value in self.anchor.members[name].items() if key != "params"}
        members = {**self.anchor.members, name: member}
        return dataclasses.replace(
            self,
            anchor=dataclasses.replace(self.anchor, members=members),
            model=dataclasses.replace(model, name="network"),
        )


@dataclass(frozen=True)
class Member:
    """A network with the anchor and the units it was trained with."""

    anchor: Predict
    encoder: Encoder
    model: AnchorMoE
    scaling: Scaling
    selected: SelectedEpoch

    def predict(self, X: np.ndarray) -> Any:
        """Predict densities in original units, of several targets joint ones."""
        anchor = self.anchor(X)
        batch = self.scaling.batch(self.encoder(X), np.zeros_like(anchor), anchor)
        mixture: Any = predict(self.model, batch).float64()
        return mixture.affine(scale=self.scaling.y_std, shift=self.scaling.y_mean)


@dataclass(frozen=True)
class CrossFit:
    """All members, and the densities of the training rows, in row order, by the members that have not seen them.

    Each repetition of the folds has one such density for every row.
    """

    members: tuple[Member, ...]
    by_repetition: tuple[GaussianMixture, ...]
    rows: TrainingRows
    anchor: AnchorSummary
    latent: LatentRows

    def predict(self, X: np.ndarray) -> GaussianMixture:
        """Predict one mixture of all members, in original units and not calibrated."""
        return pooled([member.predict(X) for member in self.members], self.spread.of_all)

    @cached_property
    def spread(self) -> Spread:
        return Spread.measured(self.by_repetition, self.rows.y, self.rows.weight, len(self.members))

    @cached_property
    def held_out(self) -> GaussianMixture:
        """Return each row's density by all members together that have not seen it."""
        if len(self.by_repetition) == 1:
            return self.by_repetition[0]
        return pooled(self.by_repetition, self.spread.held_out)

    def linear_map(self, calibration: Calibration) -> LinearMap | None:
        """Fit the targets by least squares on the held-out means.

        Where errors grow with the target (Yacht), plain least squares moves many small targets to fit a few large ones;
        in the weighted form a row counts by the precision of its density.
        """
        if calibration is Calibration.none:
            return None
        if calibration.maps_cdf:
            return self._fit_linear_map(slice(None), True) if self._is_improved_by_linear_map() else None
        return self._fit_linear_map(slice(None), calibration is Calibration.weighted)

    def _fit_linear_map(self, index: np.ndarray | slice, weighted: bool) -> LinearMap:
        held_out, weight = self.held_out.rows(index), self.rows.weight
        spread = np.sqrt(held_out.variance) if weighted else 1.0
        return fit_linear_map(held_out.mean, self.rows.y[index], spread, None if weight is None else weight[index])

    def _is_improved_by_linear_map(self) -> bool:
        """Tell whether maps fitted to other rows improve the CRPS of rows; on a skewed target they may not."""
        part = np.random.default_rng(0).permutation(len(self.rows)) % NUM_PARTS
        gain = np.zeros(len(self.rows))
        for number in range(NUM_PARTS):
            mine = np.flatnonzero(part == number)
            linear_map = self._fit_linear_map(np.flatnonzero(part != number), weighted=True)
            densities, y = self.held_out.rows(mine), self.rows.y[mine]
            gain[mine] = densities.crps(y) - calibrated(densities, linear_map).crps(y)
        return self.rows.mean(gain) > 0


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
    return _timed_fit(settings, rows, seed, workers)[0]


def _timed_fit(settings: Settings, rows: TrainingRows, seed: int, workers: Workers) -> tuple[CrossFit, float]:
    total, anchors = 0.0, []
    members: list[Member] = []
    held_out: list[GaussianMixture] = []
    for own_seed in repetition_seeds(settings, len(rows), seed):
        anchor, seconds = fit_anchor(settings, rows, own_seed, workers)
        start = clock()
        folds = folds_for(settings, rows, own_seed, workers)
        of_folds = _members(settings, folds, encode_folds(dense_encoder, rows, folds.held_out), anchor, "experts")
        held_out.append(_held_out(of_folds, folds))
        members += of_folds
        anchors.append(AnchorSummary(settings.anchor.name, anchor.rmse(rows), anchor.stage, anchor.members))
        total += seconds + clock() - start
    start = clock()
    latent = LatentRows.of(members, rows.X, seed)
    fitted = CrossFit(tuple(members), tuple(held_out), rows, AnchorSummary.average(anchors), latent)
    return fitted, total + clock() - start


def repetition_seeds(settings: Settings, num_rows: int, seed: int) -> list[int]:
    """Return the seed of each repetition of the folds; the first is that of the fit itself."""
    more = np.random.SeedSequence(seed).generate_state(settings.crossfit.num_repetitions(num_rows) - 1)
    return [seed, *map(int, more)]


def fit_anchor(
    settings: Settings, rows: TrainingRows, seed: int, workers: Workers = ONE_WORKER
) -> tuple[OutOfFold, float]:
    """Fit the out-of-fold anchor and return it with its seconds; rows of a run that have it in common share it."""
    rows.require_fittable()
    return shared(_timed_anchor, ignore=["workers"])(settings.of_anchor(), rows, seed, workers)


def _timed_anchor(settings: Settings, rows: TrainingRows, seed: int, workers: Workers) -> tuple[OutOfFold, float]:
    start = clock()
    folds = folds_for(settings, rows, seed, workers)

    def network() -> OutOfFold:
        """Fit the recipe itself without an anchor, as a point regressor."""
        none = AnchorSettings(name="none", kind=AnchorKind.none)
        constant = out_of_fold.fit(none, folds, network=network)
        encoded = encode_folds(dense_encoder, rows, folds.held_out)
        members = _members(dataclasses.replace(settings, anchor=none), folds, encoded, constant, "network")
        return OutOfFold(_held_out(members, folds).mean, tuple(MeanOf(member) for member in members))

    return out_of_fold.fit(settings.anchor, folds, network=network), clock() - start


def folds_for(settings: Settings, rows: TrainingRows, seed: int, workers: Workers) -> Folds:
    """Cut the rows into the folds of a fit."""
    return Folds(rows, folds_of(len(rows), settings.crossfit.num_folds(len(rows)), seed=seed), seed, workers)


def num_pieces(settings: AnchorSettings, num_rows: int, num_folds: int, num_targets: int = 1) -> int:
    """Return the number of pieces of work that a fit reports: the models of all anchors, and the networks."""
    anchors = settings.stack_members(num_rows) if settings.kind is AnchorKind.stack else [settings]
    return num_folds * (1 + num_targets * sum(anchor.kind is not AnchorKind.none for anchor in anchors))


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
    model_settings = settings.model.for_rows(len(rows))
    sigma_min = max(model_settings.sigma_min, rounding_error(rows.y, unit) / unit)
    model_settings = dataclasses.replace(
        model_settings, sigma_min=sigma_min, sigma_max=max(model_settings.sigma_max, sigma_min)
    )

    def member(number: int) -> Member:
        model = initial_model(
            model_settings,
            input_dim=len(scaling.column_mean),
            seed=member_seed(folds, number),
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


def member_seed(folds: Folds, number: int) -> int:
    """Return the seed of the initial weights of a fold's network."""
    return int(np.random.SeedSequence([folds.seed, number]).generate_state(1)[0])


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
    return in_row_order(GaussianMixture.concatenated(parts), folds)


def in_row_order(densities: Mixture, folds: Folds) -> Mixture:
    """Return densities of the folds one after the other in the order of the rows."""
    return densities.rows(np.argsort(np.concatenate(folds.held_out)))
