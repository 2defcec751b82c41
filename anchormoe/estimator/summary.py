"""The summary that a fitted regressor prints of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text
from scipy.stats import poisson

from anchormoe.model.calibration import LinearMap
from anchormoe.model.held_out import AnchorSummary
from anchormoe.model.joint import FittedJoint
from anchormoe.model.latent_rows import FAR

if TYPE_CHECKING:
    from anchormoe.estimator.regressor import AnchorMoERegressor


def print_summary(model: AnchorMoERegressor, console: Console | None = None, X: Any = None) -> None:
    """Print the anchors, the networks, the calibration, the scores of held-out rows, and how unlike them rows X are."""
    fitted: Any = model.fitted_
    several = isinstance(fitted, FittedJoint)
    parts: list[RenderableType] = [*(map(_anchors, fitted.anchors) if several else [_anchors(fitted.anchor)])]
    parts += [_networks(model), _joint_held_out(fitted) if several else _held_out(fitted)]
    if X is not None:
        parts.append(_shift(model.unlikeness(X)))
    (console or Console()).print(Group(*parts))


MOST_FAR = 3  # times as many far rows as there should be


def _shift(unlikeness: np.ndarray) -> RenderableType:
    """Return the share of rows that are far from the training rows, and a warning if it is large beside chance."""
    far, expected = int((unlikeness > FAR).sum()), 1 - FAR
    chance = poisson.ppf(0.999, expected * len(unlikeness))
    text = f"{far} of {len(unlikeness)} rows are far from all training rows, {expected * len(unlikeness):.1f} expected"
    if far <= max(MOST_FAR * expected * len(unlikeness), chance):
        return Text(text)
    return Text(f"Warning: {text}. Intervals hold for rows like the training rows; of these rows they may cover less.")


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    return table


def _anchors(anchor: AnchorSummary) -> Table:
    table = _table("Anchor: the mean that the experts correct", "anchor", "weight", "held-out RMSE", "stages")
    for member in anchor.members:
        table.add_row(member.name, f"{member.weight:.3f}", f"{member.rmse:.4g}", _stage(member.stage))
    table.add_row(anchor.name, "" if anchor.members else "1", f"{anchor.rmse:.4g}", _stage(anchor.stage))
    return table


def _stage(stage: int | None) -> str:
    return "" if stage is None else str(stage)


def _networks(model: AnchorMoERegressor) -> Table:
    fitted = model.fitted_
    networks = fitted.networks
    settings = networks[0].model.config
    epochs = [network.selected.epoch for network in networks]
    table = _table("Networks and calibration", "", "")
    table.show_header = False
    columns = model.columns_.columns
    table.add_row("recipe", model.recipe)
    table.add_row("columns", f"{len(columns)}, {len(model.columns_.categorical)} of them categorical")
    table.add_row("networks", str(len(networks)))
    table.add_row("experts, used per row", f"{settings.num_experts}, {settings.top_k}")
    table.add_row("selected epochs", f"{min(epochs)} to {max(epochs)}" if len(epochs) > 1 else str(epochs[0]))
    if isinstance(fitted, FittedJoint):
        table.add_row("covariance", settings.covariance.value)
        for name, linear_map in zip(_target_names(fitted), fitted.linear_maps, strict=False):
            table.add_row(f"calibration of {name}", _mapped(linear_map))
    else:
        table.add_row("calibration", _calibration(fitted))
    return table


def _target_names(fitted: FittedJoint) -> tuple[str, ...]:
    return fitted.names or tuple(f"target {number}" for number in range(len(fitted.targets)))


def _mapped(linear_map: LinearMap) -> str:
    return f"{linear_map.slope:.4g} * mean + {linear_map.intercept:.4g}"


def _calibration(fitted: Any) -> str:
    linear_map, recalibration = fitted.linear_map, fitted.recalibration
    parts = [] if linear_map is None else [_mapped(linear_map)]
    if recalibration is not None:
        kind = "pit" if recalibration.guaranteed_rows is None else "conformal"
        parts.append(f"{kind} map of the cdf, {len(recalibration.map.knots)} knots")
    return "; ".join(parts) or "none"


_SCORES = {
    **{"nll": "NLL", "crps": "CRPS", "rmse": "RMSE"},
    **{"coverage_50": "coverage of 50% intervals", "coverage_90": "coverage of 90% intervals"},
}
_HELD_OUT = "Held-out rows: what to expect of new ones"


def _held_out(fitted: Any) -> Table:
    table = _table(_HELD_OUT, "score", "value")
    for name, title in _SCORES.items():
        table.add_row(title, _score(name, fitted.held_out.scores))
    return table


def _joint_held_out(fitted: FittedJoint) -> Table:
    """Return the scores of each target by itself, and the NLL of all of them together."""
    table = _table(_HELD_OUT, "score", *_target_names(fitted), "together")
    for name, title in _SCORES.items():
        together = f"{fitted.held_out.nll:.4g}" if name == "nll" else ""
        table.add_row(title, *(_score(name, scores) for scores in fitted.held_out.scores), together)
    return table


def _score(name: str, scores: dict[str, float]) -> str:
    return f"{scores[name]:.3f}" if name.startswith("coverage") else f"{scores[name]:.4g}"
