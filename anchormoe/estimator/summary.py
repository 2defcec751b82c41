"""The summary that a fitted regressor prints of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, Group
from rich.table import Table

if TYPE_CHECKING:
    from anchormoe.estimator.regressor import AnchorMoERegressor


def print_summary(model: AnchorMoERegressor, console: Console | None = None) -> None:
    """Print the anchors, the networks, the calibration and the scores of held-out rows."""
    fitted = model.fitted_
    (console or Console()).print(Group(_anchors(fitted), _networks(model), _held_out(model)))


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    return table


def _anchors(fitted: Any) -> Table:
    anchor = fitted.anchor
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
    linear_map = fitted.linear_map
    calibration = "none" if linear_map is None else f"{linear_map.slope:.4g} * mean + {linear_map.intercept:.4g}"
    table.add_row("calibration", calibration)
    return table


def _held_out(model: AnchorMoERegressor) -> Table:
    scores = model.fitted_.held_out.scores
    table = _table("Held-out rows: what to expect of new ones", "score", "value")
    for name, title in (("nll", "NLL"), ("crps", "CRPS"), ("rmse", "RMSE")):
        table.add_row(title, f"{scores[name]:.4g}")
    for name, title in (("coverage_50", "coverage of 50% intervals"), ("coverage_90", "coverage of 90% intervals")):
        table.add_row(title, f"{scores[name]:.3f}")
    return table
