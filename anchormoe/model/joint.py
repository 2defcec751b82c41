"""Anchor-MoE cross-fitted for several targets at once.

It is the recipe of one target (model/crossfit.py) with vectors in place of numbers: every target has an out-of-fold
anchor of its own, units are each anchor's out-of-fold error, and the network of a fold predicts mixtures of
multivariate Gaussians around the vector of anchors.

The members' densities are averaged as they are. Drawing them together, as is done for one target, raises the joint NLL
of rows held out of the training rows (Energy, several splits): it narrows every target by itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from anchormoe.distributions.joint import JointMixture
from anchormoe.model.anchors.fitted import Predict
from anchormoe.model.anchors.out_of_fold import Folds, OutOfFold
from anchormoe.model.calibration import LinearMap, fit_linear_map
from anchormoe.model.crossfit import (
    CrossfitAnchorMoE,
    Member,
    Settings,
    TargetStatistics,
    fit_anchor,
    folds_for,
    in_blocks,
    in_row_order,
    member_seed,
    repetition_seeds,
    rounding_error,
)
from anchormoe.model.encoding import EncodedFolds, dense_encoder, encode_folds
from anchormoe.model.held_out import AnchorSummary, JointHeldOut
from anchormoe.model.joint_network import initial_joint_model
from anchormoe.model.kernels.clock import clock
from anchormoe.model.latent_rows import LatentRows
from anchormoe.model.parallel import ONE_WORKER, Workers
from anchormoe.model.settings import Calibration, Loss, ModelSettings, require
from anchormoe.model.sharing import shared
from anchormoe.model.standardise import Scaling
from anchormoe.model.training import select_epoch
from anchormoe.model.training_rows import TrainingRows


class CrossfitJointAnchorMoE(CrossfitAnchorMoE):
    """The cross-fitted regressor of several targets, with the settings of the one for a single target."""

    def __init__(self, *, names: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(**settings)
        self.names = tuple(names)
        calibration, loss = self.calibration, self.train.loss
        several = "with several targets"
        require(not calibration.maps_cdf, "calibration", f"none, linear or weighted {several}", calibration.value)
        require(loss is Loss.nll, "loss", f"nll {several}", loss.value)

    def fit_rows(self, rows: TrainingRows, workers: Workers = ONE_WORKER) -> Self:
        """Fit to rows with targets (N, T) that may have weights, categories and gaps, several folds at a time."""
        settings = Settings(
            self.crossfit, self.anchor, self.model, self.train, self.anchor_column, self.initial_weights
        )
        fitted, seconds = shared(_timed_fit, ignore=["workers"])(settings, rows, self.random_state, workers)
        start = clock()
        targets = tuple(TargetStatistics.of(one.y) for one in rows.by_target)
        linear_maps = fitted.linear_maps(self.calibration)
        held_out = dataclasses.replace(finished(fitted.held_out, linear_maps, targets), names=self.names)
        judged = JointHeldOut.of(held_out, rows, self.random_state)
        self.fitted_ = FittedJoint(
            fitted.members, linear_maps, targets, fitted.anchors, judged, self.names, fitted.latent
        )
        self._seconds = seconds + clock() - start
        return self

    def predict_dist(self, X: np.ndarray) -> JointMixture:
        """Predict calibrated densities of rows, with components for rows unlike all others."""
        return self.fitted_.predict_dist(X)


@dataclass(frozen=True)
class FittedJoint:
    """Everything that a fitted regressor of several targets predicts with, and its estimate of how good it is."""

    members: tuple[Member, ...]
    linear_maps: tuple[LinearMap, ...]  # one per target; empty without calibration
    targets: tuple[TargetStatistics, ...]
    anchors: tuple[AnchorSummary, ...]
    held_out: JointHeldOut
    names: tuple[str, ...]
    latent: LatentRows | None

    @property
    def networks(self) -> tuple[Member, ...]:
        """Return the networks with their encoders and scalings."""
        return self.members

    @property
    def calibration(self) -> tuple[Any, Any]:
        """Return the slopes and the intercepts of the targets' linear maps, None without calibration."""
        if not self.linear_maps:
            return None, None
        return [one.slope for one in self.linear_maps], [one.intercept for one in self.linear_maps]

    def predict_dist(self, X: np.ndarray, workers: Workers = ONE_WORKER) -> JointMixture:
        """Predict calibrated densities of rows, in blocks that bound the memory, several of them at a time."""

        def predict_block(rows: np.ndarray) -> JointMixture:
            average = JointMixture.average([member.predict(rows) for member in self.members])
            return finished(average, self.linear_maps, self.targets)

        mixture = JointMixture.concatenated(in_blocks(predict_block, X, workers))
        return dataclasses.replace(mixture, names=self.names)


@dataclass(frozen=True)
class JointAnchor:
    """The anchors of several targets, whose means are the columns of one array (N, T)."""

    parts: tuple[Predict, ...]

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return np.column_stack([part(X) for part in self.parts])


@dataclass(frozen=True)
class JointFit:
    """All members, and the density of each training row by the member that has not seen it, in row order."""

    members: tuple[Member, ...]
    held_out: JointMixture
    rows: TrainingRows
    anchors: tuple[AnchorSummary, ...]
    latent: LatentRows

    def linear_maps(self, calibration: Calibration) -> tuple[LinearMap, ...]:
        """Fit each target by least squares on its held-out means, in the weighted form by its densities' precision."""
        if calibration is Calibration.none:
            return ()
        weighted = calibration is Calibration.weighted
        mean, std = self.held_out.mean, self.held_out.std
        return tuple(
            fit_linear_map(mean[:, k], one.y, std[:, k] if weighted else 1.0, one.weight)
            for k, one in enumerate(self.rows.by_target)
        )


def finished(raw: JointMixture, linear_maps: Sequence[LinearMap], targets: Sequence[TargetStatistics]) -> JointMixture:
    """Calibrate the means of densities, and add the components for rows unlike all others."""
    if linear_maps:
        mean = raw.mean
        mapped = np.column_stack([one(mean[:, k]) for k, one in enumerate(linear_maps)])
        raw = dataclasses.replace(raw, means=raw.means + (mapped - mean)[:, None, :])
    return with_outlier_components(raw, targets)


def with_outlier_components(mixture: JointMixture, targets: Sequence[TargetStatistics]) -> JointMixture:
    """Add wide components, for a row that is unlike all N before it in one target or in all of them.

    As for one target, each target is odd with the probability 1 / (N + 1), and is then as wide as all its values. Half
    of the time it is odd alone, and the others are predicted as ever; half of the time all are odd together.
    """
    chance = 0.5 / (targets[0].num_rows + 1)
    wide = np.array([one.std or 1e-8 for one in targets])
    mean, covariance = mixture.mean, mixture.covariance
    together = JointMixture.normal(mean, np.diag(wide**2))
    alone = []
    for number in range(len(targets)):
        matrix = covariance.copy()
        matrix[:, number, :] = matrix[:, :, number] = 0
        matrix[:, number, number] = wide[number] ** 2
        alone.append(JointMixture.normal(mean, matrix))
    total = chance * (1 + len(alone))
    return JointMixture.average([mixture, together, *alone], [1 - total, *[chance] * (1 + len(alone))])


def _timed_fit(settings: Settings, rows: TrainingRows, seed: int, workers: Workers) -> tuple[JointFit, float]:
    # An anchor does not depend on the covariance, so that all covariances share it, and a model of one target too.
    of_one_target = dataclasses.replace(settings.model, covariance=ModelSettings.covariance, rank=ModelSettings.rank)
    settings_of_anchors = dataclasses.replace(settings, model=of_one_target)
    total, anchors = 0.0, []
    members: list[Member] = []
    held_out: list[JointMixture] = []
    for own_seed in repetition_seeds(settings, len(rows), seed):
        timed = [fit_anchor(settings_of_anchors, one, own_seed, workers) for one in rows.by_target]
        start = clock()
        folds = folds_for(settings, rows, own_seed, workers)
        stacks = [anchor for anchor, _ in timed]
        of_folds = _members(settings, folds, encode_folds(dense_encoder, rows, folds.held_out), stacks)
        parts = [member.predict(rows.X[fold]) for member, fold in zip(of_folds, folds.held_out, strict=True)]
        held_out.append(in_row_order(JointMixture.concatenated(parts), folds))
        members += of_folds
        anchors.append(
            [
                AnchorSummary(settings.anchor.name, anchor.rmse(one), anchor.stage, anchor.members)
                for anchor, one in zip(stacks, rows.by_target, strict=True)
            ]
        )
        total += sum(seconds for _, seconds in timed) + clock() - start
    summaries = tuple(map(AnchorSummary.average, zip(*anchors, strict=True)))
    latent = LatentRows.of(members, rows.X, seed)
    return JointFit(tuple(members), JointMixture.average(held_out), rows, summaries, latent), total


def _members(
    settings: Settings, folds: Folds, encoded: EncodedFolds, anchors: Sequence[OutOfFold]
) -> tuple[Member, ...]:
    rows = encoded.rows
    mean = np.column_stack([anchor.mean for anchor in anchors])
    unit = np.array([anchor.rmse(one) or 1e-8 for anchor, one in zip(anchors, rows.by_target, strict=True)])
    scaling = Scaling.of_rows(rows.X, rows.y, mean, anchor_column=settings.anchor_column, unit=unit)
    scaling = scaling.limited(rows.X, mean)
    rounding = [rounding_error(one.y, error) / error for one, error in zip(rows.by_target, unit, strict=True)]
    sigma_min = np.maximum(settings.model.sigma_min, rounding)

    def member(number: int) -> Member:
        model = initial_joint_model(
            settings.model.for_rows(len(rows)),
            input_dim=len(scaling.column_mean),
            sigma_min=sigma_min,
            sigma_max=np.maximum(settings.model.sigma_max, sigma_min),
            seed=member_seed(folds, number),
        ).to(settings.train.device)
        train, held_out = (
            scaling.batch(part.X, part.y, mean[index], part.weight)
            for index, part in ((index, rows[index]) for index in (folds.kept(number), folds.held_out[number]))
        )
        selected = select_epoch(model, train, held_out, settings.train)
        anchor = JointAnchor(tuple(one.models[number] for one in anchors))
        return Member(anchor, encoded.encoders[number], model, scaling, selected)

    return tuple(folds.workers.map("experts", member, range(len(folds))))
