"""The honest estimate of a fit: its anchor's error, and the scores of rows that it has not been trained on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from anchormoe.distributions.base import Distribution
from anchormoe.distributions.joint import JointMixture
from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.distributions.recalibrated import Recalibrated
from anchormoe.model.anchors.fitted import StackMember
from anchormoe.model.training_rows import TrainingRows

KEPT_ROWS = 5000  # held-out rows whose densities are kept after the fit
LEVELS = (0.5, 0.9)  # of the central intervals whose coverage is measured


@dataclass(frozen=True)
class AnchorSummary:
    """The anchor's out-of-fold error in the target's units, and the members of a stack."""

    name: str
    rmse: float
    stage: int | None
    members: tuple[StackMember, ...]

    @classmethod
    def average(cls, of_repetitions: Sequence[AnchorSummary]) -> AnchorSummary:
        """Summarise the same anchor fitted on several cuts into folds by the means of its numbers."""
        parts = zip(*(one.members for one in of_repetitions), strict=True)
        members = tuple(
            StackMember(same[0].name, _mean(one.weight for one in same), _mean(one.rmse for one in same), _stage(same))
            for same in parts
        )
        return cls(of_repetitions[0].name, _mean(one.rmse for one in of_repetitions), _stage(of_repetitions), members)


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _stage(summaries: Sequence[AnchorSummary | StackMember]) -> int | None:
    stages = [one.stage for one in summaries if one.stage is not None]
    return round(_mean(stages)) if stages else None


@dataclass(frozen=True)
class HeldOut:
    """Calibrated densities of rows that a fit has not been trained on.

    In the cross-fitted recipe these are all training rows, each predicted by the one member that has not seen it; all
    members together, which predict a new row, do a little better. In the paper's recipe they are those of CAL.
    `scores` are those of all rows, in the target's units; `y` and `densities` are some of the rows, to look at.
    """

    scores: dict[str, float]
    y: np.ndarray
    densities: GaussianMixture | Recalibrated

    @classmethod
    def of(cls, densities: GaussianMixture | Recalibrated, rows: TrainingRows, seed: int) -> HeldOut:
        """Score held-out densities of rows, and keep some of them."""
        some = _kept(rows, seed)
        return cls(_scores(densities, rows), rows.y[some], densities.rows(some))


@dataclass(frozen=True)
class JointHeldOut:
    """Calibrated joint densities of the training rows, each predicted by the one member that has not seen it.

    `nll` is the mean of -log p of all targets together, `scores` are those of each target by itself, in its units; `y`
    and `densities` are some of the rows, to look at.
    """

    nll: float
    scores: tuple[dict[str, float], ...]
    y: np.ndarray
    densities: JointMixture

    @classmethod
    def of(cls, densities: JointMixture, rows: TrainingRows, seed: int) -> JointHeldOut:
        """Score held-out densities of rows, and keep some of them."""
        scores = tuple(_scores(one, of_one) for one, of_one in zip(densities.marginals, rows.by_target, strict=True))
        some = _kept(rows, seed)
        return cls(rows.mean(-densities.log_prob(rows.y)), scores, rows.y[some], densities.rows(some))


def _scores(densities: Distribution, rows: TrainingRows) -> dict[str, float]:
    """Return the mean scores of one target, in its units."""
    y = rows.y
    cdf = densities.cdf(y)
    return {
        "nll": rows.mean(-densities.log_prob(y)),
        "crps": rows.mean(densities.crps(y)),
        "rmse": math.sqrt(rows.mean((y - densities.mean) ** 2)),
        **{
            f"coverage_{round(100 * level)}": rows.mean((np.abs(cdf - 0.5) <= level / 2).astype(np.float64))
            for level in LEVELS
        },
    }


def _kept(rows: TrainingRows, seed: int) -> np.ndarray:
    return np.sort(np.random.default_rng(seed).permutation(len(rows))[:KEPT_ROWS])
