"""Tables for the terminal, fitted to its width.

They are drawn here rather than by rich's own Table, which takes several times as long for tables of this size.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group
from rich.text import Span, Text

from anchormoe.report.grid import Cell, Table
from anchormoe.report.layout import Head, Layout, lay_out

TextLine = list[tuple[str, str]]  # pieces of text, each with its style


@dataclass(frozen=True)
class _Column:
    """A column of text: heading and cells, each of one or several lines."""

    aligned_right: bool
    cells: list[list[TextLine]]  # the heading first

    @functools.cached_property
    def width(self) -> int:
        """Return the length of the longest line."""
        return max(_length(line) for cell in self.cells for line in cell)


def to_rich(table: Table, *, width: int | None = None) -> Group:
    """Write a table for the terminal.

    If it is wider than `width`, ± goes on a line of its own in every cell. If that is not enough, the table continues
    below with further columns.
    """
    layout = lay_out(table)
    parts = [Text(layout.title, style="bold")]
    for grid in _grids(layout, width):
        parts += [grid, Text("")]
    parts += [Text(note, style="dim") for note in table.notes]
    parts += [Text(f"[{number}] {text}", style="dim") for number, text in enumerate(table.footnotes, start=1)]
    return Group(*parts)


def _grids(layout: Layout, width: int | None) -> list[Text]:
    """Draw a table, in as many parts as it takes to fit into the width."""
    labels, values = _columns(layout, stacked=False)
    if width is None or _width(labels + values, gap=3) <= width:
        return [_draw(layout, labels + values, gap=3)]
    labels, values = _columns(layout, stacked=True)
    for num_parts in range(1, len(values) + 1):
        size = math.ceil(len(values) / num_parts)
        parts = [labels + values[first : first + size] for first in range(0, len(values), size)]
        if all(_width(part, gap=1) <= width for part in parts):
            break
    return [_draw(layout, part, gap=1) for part in parts]


def _columns(layout: Layout, *, stacked: bool) -> tuple[list[_Column], list[_Column]]:
    """Return the columns of labels and the columns of values."""
    labels = [
        _Column(label == "N", [[[(label, "bold")]], *([[(line.labels[position], "")]] for line in layout.lines)])
        for position, label in enumerate(layout.label_heads)
    ]
    values = [
        _Column(True, [_head(head, stacked), *(_cell(line.cells[position], stacked) for line in layout.lines)])
        for position, head in enumerate(layout.heads)
    ]
    return labels, values


def _head(head: Head, stacked: bool) -> list[TextLine]:
    title = head.title + _bracketed(head.marks)
    title = title.replace(" ", "\n") if stacked else title.replace(" (", "\n(")
    below = head.below.replace(" ±", "\n±").replace("as ", "as\n" if stacked else "as ")
    return [[(line, "bold")] for line in f"{title}\n{below}".rstrip("\n").split("\n")]


def _cell(cell: Cell, stacked: bool) -> list[TextLine]:
    style = "bold" if cell.bold else "yellow" if cell.mean is None else ""
    text = cell.text.replace(" ±", "\n±").replace(" (", "\n(") if stacked else cell.text
    first, *rest = text.split("\n")
    return [[(first, style), (_bracketed(cell.marks), "dim")], *([(line, style)] for line in rest)]


def _width(columns: Sequence[_Column], *, gap: int) -> int:
    return sum(column.width for column in columns) + gap * (len(columns) - 1)


def _draw(layout: Layout, columns: Sequence[_Column], *, gap: int) -> Text:
    """Draw the columns beside each other, headings above a rule, with a blank line between groups of tall cells."""
    tall = any(len(cell) > 1 for column in columns for cell in column.cells[1:])
    heads, *rows = zip(*(column.cells for column in columns), strict=True)
    height = max(map(len, heads))
    lines = _beside([[[]] * (height - len(head)) + head for head in heads], columns, gap)
    lines.append([("─" * _width(columns, gap=gap), "")])
    for index, row in enumerate(rows):
        if tall and index and layout.lines[index].starts_group:
            lines.append([])
        lines += _beside(row, columns, gap)
    return _to_text(lines)


def _beside(cells: Sequence[list[TextLine]], columns: Sequence[_Column], gap: int) -> list[TextLine]:
    """Set the cells of one row beside each other, each padded to the width of its column."""
    lines: list[TextLine] = []
    for number in range(max(map(len, cells))):
        line: TextLine = []
        for position, (column, cell) in enumerate(zip(columns, cells, strict=True)):
            pieces = cell[number] if number < len(cell) else []
            space = (" " * (column.width - _length(pieces)), "")
            between = [(" " * gap, "")] if position else []
            line += [*between, space, *pieces] if column.aligned_right else [*between, *pieces, space]
        lines.append(line)
    return lines


def _to_text(lines: Sequence[TextLine]) -> Text:
    plain, spans, position = [], [], 0
    for line in lines:
        for text, style in line:
            if style and text:
                spans.append(Span(position, position + len(text), style))
            plain.append(text)
            position += len(text)
        plain.append("\n")
        position += 1
    return Text("".join(plain[:-1]), spans=spans, no_wrap=True, overflow="ignore")


def _length(line: TextLine) -> int:
    return sum(len(text) for text, _ in line)


def _bracketed(marks: Sequence[int]) -> str:
    return f" [{','.join(map(str, marks))}]" if marks else ""
