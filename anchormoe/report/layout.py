"""How a table is laid out, whatever format it is written in: which cells form a line, and the labels around them."""

from __future__ import annotations

from dataclasses import dataclass

from anchormoe.report.grid import Cell, Table


@dataclass(frozen=True)
class Head:
    """The heading of a column."""

    title: str
    below: str  # what it is measured in, or the number of rows
    marks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Line:
    """A line of values with the labels in front of them."""

    labels: tuple[str, ...]
    cells: tuple[Cell, ...]
    starts_group: bool  # the first line of a dataset


@dataclass(frozen=True)
class Layout:
    """A table as its reader sees it: its rows are the lines or, if it is turned, its columns are."""

    title: str
    label_heads: tuple[str, ...]
    heads: tuple[Head, ...]
    lines: tuple[Line, ...]


def lay_out(table: Table) -> Layout:
    """Lay out a table: turned if it says what its lines are."""
    return _turned(table) if table.lines_are else _upright(table)


def _upright(table: Table) -> Layout:
    """Lay out rows as lines; dataset and N stand once, in the first of the dataset's rows."""
    lines, before = [], None
    for row in table.rows:
        starts = row.dataset != before
        number = "" if row.n is None else str(row.n)
        labels = (_title(row.dataset), number, row.source) if starts else ("", "", row.source)
        lines.append(Line(labels, row.cells, starts))
        before = row.dataset
    heads = tuple(Head(column.title, column.measure, column.marks) for column in table.columns)
    return Layout(table.title, ("Dataset", "N", "Values"), heads, tuple(lines))


def _turned(table: Table) -> Layout:
    """Lay out columns as lines; all have one unit, which goes into the title."""
    heads = tuple(Head(_title(row.dataset), "" if row.n is None else f"N={row.n}") for row in table.rows)
    lines = [
        Line((column.title,), tuple(row.cells[index] for row in table.rows), True)
        for index, column in enumerate(table.columns)
    ]
    measures = dict.fromkeys(column.measure for column in table.columns)
    return Layout(f"{table.title} ({', '.join(measures)})", (table.lines_are,), heads, tuple(lines))


def _title(dataset: str) -> str:
    """Return a dataset's name with a capital first; capitals further on stay."""
    return dataset[:1].upper() + dataset[1:]
