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
from anchormoe.model.anchors.out_of_fold import OutOfFold
from anchormoe.model.anchors.selection import require_usable
from anchormoe.model.calibration import LinearMap, fit_linear_map
from anchormoe.model.network import AnchorMoE, initial_model
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
        settings = Settings(
            self.crossfit, self.anchor, self.model, self.train, self.anchor_column, self.initial_weights
        )
        self.fitted_ = fit(settings, X, y, seed=self.random_state)
        self.linear_map_ = self.fitted_.linear_map(self.calibration)
        selected = [member.selected for member in self.fitted_.members]
        self.diagnostics_: dict[str, Any] = {
            "anchor_stage": None,
            "epoch": round(np.mean([one.epoch for one in selected])),
            "longest_wait": max(one.longest_wait for one in selected),
            "calibration_a": None if self.linear_map_ is None else self.linear_map_.slope,
            "calibration_b": None if self.linear_map_ is None else self.linear_map_.intercept,
        }
        return self

    def predict_dist(self, X: np.ndarray) -> GaussianMixture:
        """Predict calibrated densities of rows, with a component for rows unlike all others."""
        raw = self.fitted_.predict(X)
        mixture = raw if self.linear_map_ is None else calibrated(raw, self.linear_map_)
        mixture = with_outlier_component(mixture, self.fitted_.y)
        center, scale = float(self.fitted_.y.mean()), float(self.fitted_.y.std()) + 1e-8
        standard = mixture.affine(scale=1 / scale, shift=-center / scale)
        return dataclasses.replace(standard, center=center, scale=scale, mean_before_calibration=raw.mean)


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
    model: AnchorMoE
    scaling: Scaling
    selected: SelectedEpoch

    def predict(self, X: np.ndarray) -> GaussianMixture:
        """Predict densities in original units."""
        batch = self.scaling.batch(X, np.zeros(len(X)), self.anchor(X))
        mixture = predict(self.model, batch).float64()
        return mixture.affine(scale=self.scaling.y_std, shift=self.scaling.y_mean)


@dataclass(frozen=True)
class CrossFit:
    """All members, and the density of each training row by the member that has not seen it, in row order."""

    members: tuple[Member, ...]
    held_out: GaussianMixture
    y: np.ndarray

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
        return fit_linear_map(self.held_out.mean, self.y, spread)


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


def with_outlier_component(mixture: GaussianMixture, y: np.ndarray) -> GaussianMixture:
    """Add a wide component of weight 1 / (N + 1), for a row unlike all N before it.

    The weight is the probability of such a row by the rule of succession, and the width is the spread of all targets.
    Without it, one odd row in a thousand (Energy has one) outweighs all others in a mean log score.
    """
    chance = 1 / (len(y) + 1)
    wide = GaussianMixture.normal(mixture.mean, float(y.std()) or 1e-8)
    return GaussianMixture.average([mixture, wide], [1 - chance, chance])


def fit(settings: Settings, X: np.ndarray, y: np.ndarray, *, seed: int) -> CrossFit:
    """Fit the out-of-fold anchor, then a network per fold."""
    folds = out_of_fold.folds_of(len(y), settings.crossfit.num_folds(len(y)), seed=seed)

    def network() -> OutOfFold:
        """Fit the recipe itself without an anchor, as a point regressor."""
        none = AnchorSettings(name="none", kind=AnchorKind.none)
        free = dataclasses.replace(settings.model, anchor_mode=AnchorMode.free)
        fitted = fit(dataclasses.replace(settings, anchor=none, model=free), X, y, seed=seed)
        return OutOfFold(fitted.held_out.mean, tuple(_MeanOf(member) for member in fitted.members))

    anchor = out_of_fold.fit(settings.anchor, X, y, folds, seed=seed, network=network)
    members = _members(settings, X, y, folds, anchor, seed)
    return CrossFit(members, _held_out(members, X, folds), y)


@dataclass(frozen=True)
class _MeanOf:
    """A member as a point regressor."""

    member: Member

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return self.member.predict(X).mean


def _members(
    settings: Settings, X: np.ndarray, y: np.ndarray, folds: Sequence[np.ndarray], anchor: OutOfFold, seed: int
) -> tuple[Member, ...]:
    unit = anchor.rmse(y) or 1e-8  # zero for a target that never varies
    scaling = Scaling.of_rows(X, y, anchor.mean, anchor_column=settings.anchor_column, unit=unit)
    sigma_min = max(settings.model.sigma_min, rounding_error(y, unit) / unit)
    model_settings = dataclasses.replace(
        settings.model, sigma_min=sigma_min, sigma_max=max(settings.model.sigma_max, sigma_min)
    )
    members = []
    for number, fold in enumerate(folds):
        kept = out_of_fold.rows_outside(fold, len(y))
        model = initial_model(
            model_settings,
            input_dim=len(scaling.column_mean),
            seed=int(np.random.SeedSequence([seed, number]).generate_state(1)[0]),
            number=1,
            initial_weights=settings.initial_weights,
        )
        train, held_out = (scaling.batch(X[rows], y[rows], anchor.mean[rows]) for rows in (kept, fold))
        selected = select_epoch(model, train, held_out, settings.train)
        members.append(Member(anchor.models[number], model, scaling, selected))
    return tuple(members)


def rounding_error(y: np.ndarray, anchor_error: float) -> float:
    """Return the standard deviation that rounding gives a target recorded in steps: step / sqrt(12).

    A narrower component would describe the recording, not the quantity: on grades such as Wine's, spikes at the whole
    numbers can reach any density. The result is 0 where the anchor's error is smaller than the rounding error (Naval).
    """
    values = np.unique(y)
    error = float(np.diff(values).min()) / math.sqrt(12) if len(values) > 1 else 0.0
    return error if error < anchor_error else 0.0


def _held_out(members: Sequence[Member], X: np.ndarray, folds: Sequence[np.ndarray]) -> GaussianMixture:
    parts = [member.predict(X[fold]) for member, fold in zip(members, folds, strict=True)]
    position = np.argsort(np.concatenate(folds))
    return GaussianMixture(
        *(
            np.concatenate([getattr(part, name) for part in parts])[position]
            for name in ("log_weights", "means", "scales")
        )
    )
