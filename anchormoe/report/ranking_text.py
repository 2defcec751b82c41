"""A ranking of methods as it is shown: for the terminal and for a notebook, with the code that fits the winner."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from anchormoe.config.schema import write_splits
from anchormoe.report import numbers
from anchormoe.report.cells import Summary
from anchormoe.report.ranking import LEVEL, Line, Ranking, average_ranks, p_text

_HEADS = ("", "method", "CRPS", "± SE", "above", "p", "NLL", "RMSE", "90%", "fit s", "pred.")
_NARROW = 92  # in a terminal of fewer columns than these, there is less space between the table's
_NAME_WIDTH = 20  # a longer import path takes several lines
_NOTE = (
    "CRPS, NLL and RMSE in the target's units, lower is better. above: CRPS above the best one; p: of that difference, "
    "from a paired test on the same splits whose variance allows for overlapping training rows, adjusted for the "
    "number of methods (Holm). 90%: share of the targets in 90% intervals; fit, pred.: seconds."
)
_SMOOTHED = "* the method predicts no density: its NLL is that of a smoothed one."


def to_rich(ranking: Ranking, *, width: int, highlight: str | None = None) -> Group:
    """Write the table, the notes and the recommendation for a terminal; a method to find in it is set in reverse."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1 if width >= _NARROW else 0, 0, 0))
    for head in _HEADS:
        table.add_column(head, justify="left" if head == "method" else "right", no_wrap=True)
    for line in ranking.lines:
        told_apart = line.p_value is not None and line.p_value < LEVEL
        style = "reverse" if line.method == highlight else "bold" if line.rank == 1 else "dim" if told_apart else ""
        table.add_row(*_texts(line, ranking), style=style)
    notes: list[RenderableType] = [Text(note, style="dim") for note in _notes(ranking)]
    return Group(
        Text(_title(ranking), style="italic"), table, *notes, Text(""), Text(ranking.recommendation, style="bold")
    )


def to_html(ranking: Ranking) -> str:
    """Write the table, the notes and the recommendation for a notebook."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in _HEADS)
    lines = "".join(
        f"<tr>{''.join(f'<td>{html.escape(text)}</td>' for text in _texts(line, ranking))}</tr>"
        for line in ranking.lines
    )
    notes = "".join(f"<p><small>{html.escape(note)}</small></p>" for note in _notes(ranking))
    return (
        f"<p>{html.escape(_title(ranking))}</p><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
        f"{notes}<p><b>{html.escape(ranking.recommendation)}</b></p>"
    )


def averages_to_rich(rankings: Sequence[Ranking]) -> Group:
    """Write the average ranks over several datasets for the terminal."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("method")
    table.add_column("rank", justify="right")
    for method, rank in average_ranks(rankings).items():
        table.add_row(method, f"{rank:.1f}")
    return Group(Text(f"Average rank by CRPS over {len(rankings)} datasets, 1 is best", style="italic"), table)


def _title(ranking: Ranking) -> str:
    count = len(ranking.splits)
    if not count:
        return f"{ranking.dataset}: no method has finished a split"
    splits = f"split {ranking.splits[0]}" if count == 1 else f"{count} splits ({write_splits(ranking.splits)})"
    return f"{ranking.dataset}: {len(ranking.ranked)} methods on the same {splits}"


def _notes(ranking: Ranking) -> list[str]:
    if not ranking.splits:
        return []
    return [_NOTE, _SMOOTHED] if any(line.density for line in ranking.lines) else [_NOTE]


def _texts(line: Line, ranking: Ranking) -> list[str]:
    place = "–" if line.rank is None else str(line.rank)
    is_partial = line.rank is None and len(ranking.splits) > 0
    name = f"{line.method} ({line.num_splits}/{len(ranking.splits)})" if is_partial else line.method
    nll = _plain(line.nll)
    return [
        place,
        "\n".join(textwrap.wrap(name, _NAME_WIDTH)),
        *_value_and_spread(line.crps),
        "" if line.rank == 1 else "–" if line.excess is None else f"{100 * line.excess:.1f}%",
        ""
        if line.rank == 1
        else "–"
        if line.p_value is None
        else p_text(line.p_value).removeprefix("p").replace(" ", "").strip("="),
        f"{nll}*" if line.density and line.nll is not None else nll,
        _plain(line.rmse),
        "–" if line.coverage is None else f"{line.coverage:.0%}",
        _seconds(line.fit_seconds),
        _seconds(line.predict_seconds),
    ]


def _value_and_spread(summary: Summary | None) -> tuple[str, str]:
    if summary is None:
        return "–", "–"
    value, _, spread = numbers.plus_minus(summary.mean, summary.se, least=3).partition(" ± ")
    return value, spread


def _plain(summary: Summary | None) -> str:
    return "–" if summary is None else f"{summary.mean:.4g}"


def _seconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds:.2f}" if seconds < 10 else f"{seconds:.0f}"


def fit_code(method: str, load: str | None, parameters: dict[str, object] | None = None) -> str:
    """Return the lines of Python that fit a method to all rows.

    load: the call that returns X and y; None if the reader has them already.
    """
    named = "".join(f", {name}={value!r}" for name, value in (parameters or {}).items())
    recipes = {
        "anchormoe_fast": "anchormoe.AnchorMoERegressor(random_state=1)",
        "anchormoe_best": 'anchormoe.AnchorMoERegressor("best", random_state=1)',
        "anchormoe_crossfit": 'anchormoe.AnchorMoERegressor("crossfit", random_state=1)',
        "anchormoe": 'anchormoe.AnchorMoERegressor("paper", anchor="trees", random_state=1)',
    }
    regressor = recipes.get(method, f'anchormoe.MethodRegressor("{method}"{named})')
    loading = [] if load is None else [f"X, y = {load}"]
    return "\n".join(["import anchormoe", *loading, f"model = {regressor}.fit(X, y)"])
