"""The cross-fitted recipe on one split: every part is stopped, chosen and calibrated on rows it has not seen.

The training rows are cut into folds. Each fold has a network of its own, trained on the other folds with their
out-of-fold anchors and stopped on the fold itself; all networks together, as one mixture, predict a new row. No row is
given away to VA or CAL: the held-out densities of all training rows serve for the calibration.

Networks work in units of the anchor's out-of-fold error, so that one setting of learning rate, penalties and scales
fits a target that its anchor predicts to a thousandth and one that it hardly predicts at all.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from anchormoe.model.settings import (
    AnchorSettings,
    AnchorKind,
    AnchorMode,
    Calibration,
    Config,
    CrossfitSettings,
    ModelSettings,
    RunRules,
    TrainingSettings,
)
from anchormoe.data.dataset import Dataset
from anchormoe.data.splits import Split
from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.distributions.scores import Outcome
from anchormoe.model import out_of_fold
from anchormoe.model.calibration import LinearMap, fit_linear_map
from anchormoe.model.kernels.compiled import clock
from anchormoe.model.network import AnchorMoE, initial_model
from anchormoe.model.out_of_fold import OutOfFold, Predict
from anchormoe.model.scaling import Scaling
from anchormoe.model.training import SelectedEpoch, predict, select_epoch


def fit_predict(config: Config, dataset: Dataset, split: Split) -> Outcome:
    settings = Settings(config.crossfit, config.anchor, config.model, config.train, config.rules)
    seed = int(np.random.SeedSequence([config.seed, split.number]).generate_state(1)[0])
    start = clock()
    fitted = fit(settings, dataset.X[split.train], dataset.y[split.train], seed=seed)
    linear_map = fitted.linear_map(config.calibration)
    after_fit = clock()
    raw = fitted.predict(dataset.X[split.test])
    mixture = with_the_unexpected(raw if linear_map is None else calibrated(raw, linear_map), fitted.y)
    center, scale = float(fitted.y.mean()), float(fitted.y.std()) + 1e-8
    return Outcome(
        distribution_z=mixture.affine(scale=1 / scale, shift=-center / scale),
        center=center,
        scale=scale,
        mean_y=mixture.mean.numpy(),
        mean_y_uncalibrated=raw.mean.numpy(),
        fit_seconds=after_fit - start,
        predict_seconds=clock() - after_fit,
        epoch=round(np.mean([member.selected.epoch for member in fitted.members])),
        longest_wait=max(member.selected.longest_wait for member in fitted.members),
        calibration_a=None if linear_map is None else linear_map.slope,
        calibration_b=None if linear_map is None else linear_map.intercept,
    )


@dataclass(frozen=True)
class Settings:
    crossfit: CrossfitSettings
    anchor: AnchorSettings
    model: ModelSettings
    train: TrainingSettings
    rules: RunRules


@dataclass(frozen=True)
class Member:
    """A network with the anchor and the units it was trained with."""

    anchor: Predict
    model: AnchorMoE
    scaling: Scaling
    selected: SelectedEpoch

    def predict(self, X: np.ndarray) -> GaussianMixture:
        """In original units."""
        batch = self.scaling.batch(X, np.zeros(len(X)), self.anchor(X))
        mixture = predict(self.model, batch).double()
        return mixture.affine(scale=self.scaling.y_std, shift=self.scaling.y_mean)


@dataclass(frozen=True)
class CrossFit:
    """`held_out` are the densities of the training rows by the members that have not seen them, in their order."""

    members: tuple[Member, ...]
    held_out: GaussianMixture
    y: np.ndarray

    def predict(self, X: np.ndarray) -> GaussianMixture:
        """One mixture of all members', in original units and not calibrated."""
        return pooled([member.predict(X) for member in self.members])

    def linear_map(self, calibration: Calibration) -> LinearMap | None:
        """Least squares of the targets on the held-out means. Where errors grow with the target (Yacht) the plain kind
        moves many small targets for the sake of a few large ones; weighted, a row counts by how sure its density is."""
        if calibration is Calibration.none:
            return None
        spread = self.held_out.variance.sqrt().numpy() if calibration is Calibration.weighted else 1.0
        return fit_linear_map(self.held_out.mean.numpy(), self.y, spread)


def pooled(parts: Sequence[GaussianMixture]) -> GaussianMixture:
    """The mean of the members' densities, with its components drawn together until its variance is theirs on average.

    A member's spread covers its own errors on rows it has not seen. Where members disagree, the mean of their densities
    is wider than that, though the mean of their predictions errs less than each: the disagreement is taken out again.
    """
    mixture = GaussianMixture.average(parts)
    center = mixture.mean
    within = (mixture.weights * mixture.scales.square()).sum(-1)
    between = mixture.variance - within
    disagreement = torch.stack([(part.mean - center).square() for part in parts]).mean(0)
    kept = torch.where(between > 0, 1 - disagreement / between, 1).clamp(0, 1).sqrt()
    means = center.unsqueeze(-1) + (mixture.means - center.unsqueeze(-1)) * kept.unsqueeze(-1)
    return dataclasses.replace(mixture, means=means)


def calibrated(mixture: GaussianMixture, linear_map: LinearMap) -> GaussianMixture:
    """Every density moved so that its mean is mapped."""
    mean = mixture.mean
    return mixture.shifted(torch.as_tensor(linear_map(mean.numpy())) - mean)


def with_the_unexpected(mixture: GaussianMixture, y: np.ndarray) -> GaussianMixture:
    """A row may be unlike all N before it; by the rule of succession that has a chance of 1 in N + 1, and then the
    target may lie as far off as targets lie from each other. Without this, one odd row in a thousand (Energy has one)
    outweighs all others in a mean log score."""
    chance = 1 / (len(y) + 1)
    anywhere = GaussianMixture.normal(mixture.mean.numpy(), float(y.std()) or 1e-8)
    return GaussianMixture.average([mixture, anywhere], [1 - chance, chance])


def fit(settings: Settings, X: np.ndarray, y: np.ndarray, *, seed: int) -> CrossFit:
    folds = out_of_fold.folds_of(len(y), settings.crossfit.num_folds(len(y)), seed=seed)

    def network() -> OutOfFold:
        """The recipe itself without an anchor, as a point regressor."""
        none = AnchorSettings(name="none", kind=AnchorKind.none)
        free = dataclasses.replace(settings.model, anchor_mode=AnchorMode.free)
        fitted = fit(dataclasses.replace(settings, anchor=none, model=free), X, y, seed=seed)
        return OutOfFold(fitted.held_out.mean.numpy(), tuple(_Mean(member) for member in fitted.members))

    anchor = out_of_fold.fit(settings.anchor, X, y, folds, seed=seed, network=network)
    members = _members(settings, X, y, folds, anchor, seed)
    return CrossFit(members, _held_out(members, X, folds), y)


@dataclass(frozen=True)
class _Mean:
    member: Member

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return self.member.predict(X).mean.numpy()


def _members(
    settings: Settings, X: np.ndarray, y: np.ndarray, folds: Sequence[np.ndarray], anchor: OutOfFold, seed: int
) -> tuple[Member, ...]:
    unit = anchor.rmse(y) or 1e-8  # zero: a target that never varies
    scaling = Scaling.of_rows(X, y, anchor.mean, anchor_column=settings.rules.anchor_column, unit=unit)
    sigma_min = max(settings.model.sigma_min, rounding_error(y, unit) / unit)
    model_config = dataclasses.replace(
        settings.model, sigma_min=sigma_min, sigma_max=max(settings.model.sigma_max, sigma_min)
    )
    members = []
    for number, fold in enumerate(folds):
        kept = out_of_fold.others(fold, len(y))
        model = initial_model(
            model_config,
            input_dim=len(scaling.column_mean),
            seed=int(np.random.SeedSequence([seed, number]).generate_state(1)[0]),
            number=1,
            initial_weights=settings.rules.initial_weights,
        )
        train, held_out = (scaling.batch(X[rows], y[rows], anchor.mean[rows]) for rows in (kept, fold))
        selected = select_epoch(model, train, held_out, settings.train)
        members.append(Member(anchor.models[number], model, scaling, selected))
    return tuple(members)


def rounding_error(y: np.ndarray, anchor_error: float) -> float:
    """The standard deviation that rounding gives a target recorded in steps: step / sqrt(12).

    A component narrower than that would describe the record, not the quantity: on grades such as Wine's, spikes at the
    whole numbers have any density one likes. Where the anchor errs by less than that (Naval), the steps are no limit.
    """
    values = np.unique(y)
    error = float(np.diff(values).min()) / math.sqrt(12) if len(values) > 1 else 0.0
    return error if error < anchor_error else 0.0


def _held_out(members: Sequence[Member], X: np.ndarray, folds: Sequence[np.ndarray]) -> GaussianMixture:
    parts = [member.predict(X[fold]) for member, fold in zip(members, folds, strict=True)]
    position = torch.as_tensor(np.argsort(np.concatenate(folds)))
    return GaussianMixture(
        *(torch.cat([getattr(part, name) for part in parts])[position] for name in ("log_weights", "means", "scales"))
    )
