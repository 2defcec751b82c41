"""The same table as markdown, LaTeX, tidy csv or for the terminal."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rich import box
from rich.console import Console, Group
from rich.table import Table as RichTable
from rich.text import Text

from anchormoe.report.grid import Cell, Column, Table

FORMATS = ("md", "csv", "tex", "rich")
_CSV_HEADER = (
    *("form", "table", "dataset", "n", "values", "column"),
    *("metric", "mean", "spread", "spread_kind", "num_splits", "best", "absent", "notes"),
)


@dataclass(frozen=True)
class _Head:
    title: str
    below: str  # what it is measured in, or the number of rows
    marks: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Line:
    labels: tuple[str, ...]
    cells: tuple[Cell, ...]
    starts_group: bool


@dataclass(frozen=True)
class _Layout:
    """A table as its reader sees it: rows as lines, or turned, columns as lines."""

    title: str
    label_heads: tuple[str, ...]
    heads: tuple[_Head, ...]
    lines: tuple[_Line, ...]


def _layout(table: Table) -> _Layout:
    return _turned(table) if table.lines_are else _upright(table)


def _upright(table: Table) -> _Layout:
    """Dataset and N stand once, in the first of the dataset's rows."""
    lines, before = [], None
    for row in table.rows:
        starts = row.dataset != before
        number = "" if row.n is None else str(row.n)
        labels = (row.dataset.capitalize(), number, row.source) if starts else ("", "", row.source)
        lines.append(_Line(labels, row.cells, starts))
        before = row.dataset
    heads = tuple(_Head(column.title, column.measure, column.marks) for column in table.columns)
    return _Layout(table.title, ("Dataset", "N", "Values"), heads, tuple(lines))


def _turned(table: Table) -> _Layout:
    """One row per dataset, all columns in one unit, which goes into the title."""
    heads = tuple(_Head(row.dataset.capitalize(), "" if row.n is None else f"N={row.n}") for row in table.rows)
    lines = [
        _Line((column.title,), tuple(row.cells[index] for row in table.rows), True)
        for index, column in enumerate(table.columns)
    ]
    measures = dict.fromkeys(column.measure for column in table.columns)
    return _Layout(f"{table.title} ({', '.join(measures)})", (table.lines_are,), heads, tuple(lines))


def render(tables: Sequence[Table], format: str, *, width: int = 120) -> str:
    """All tables as one text; `width` is the number of terminal columns and matters to format=rich only."""
    if format == "csv":
        return to_csv(tables)
    if format == "rich":
        console = Console(width=width, file=io.StringIO(), record=True)
        for table in tables:
            console.print(to_rich(table, width=width))
            console.print()
        return console.export_text()
    writers: dict[str, Callable[[Table], str]] = {"md": to_markdown, "tex": to_latex}
    if format not in writers:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}; received {format!r}")
    return "\n".join(writers[format](table) for table in tables)


def to_markdown(table: Table) -> str:
    """GitHub markdown."""

    def cell_text(cell: Cell) -> str:
        return (f"**{cell.text}**" if cell.bold else cell.text) + _sup(cell.marks)

    layout = _layout(table)
    heads = [f"{head.title}<br>({head.below}){_sup(head.marks)}" if head.below else head.title for head in layout.heads]
    lines = [f"### {layout.title}", ""]
    lines += [f"{note}  " for note in table.notes[:-1]] + [table.notes[-1], ""] if table.notes else []
    lines += [_pipe([*layout.label_heads, *heads])]
    lines += [_pipe([*("---:" if label == "N" else "---" for label in layout.label_heads), *["---:"] * len(heads)])]
    lines += [_pipe([*line.labels, *map(cell_text, line.cells)]) for line in layout.lines]
    lines += [""] + [f"{number}. {text}" for number, text in enumerate(table.footnotes, start=1)]
    return "\n".join(lines).rstrip() + "\n"


def to_latex(table: Table) -> str:
    """A booktabs table; needs `\\usepackage{booktabs}` (and graphicx for the wide one)."""

    def sup(marks: Sequence[int]) -> str:
        return f"\\textsuperscript{{{','.join(map(str, marks))}}}" if marks else ""

    def cell_text(cell: Cell) -> str:
        text = _escape(cell.text)
        return (f"\\textbf{{{text}}}" if cell.bold else text) + sup(cell.marks)

    def line(parts: Sequence[str]) -> str:
        return f"    {' & '.join(parts)} \\\\"

    layout = _layout(table)
    labels = ["\\textit{N}" if label == "N" else label for label in layout.label_heads]
    lines = [
        "\\begin{table}[ht]",
        "  \\centering",
        "  \\small",
        f"  \\caption{{{_escape(' '.join([layout.title + '.', *table.notes]))}}}",
        f"  \\label{{tab:{table.key}_{table.form}}}",
        "  \\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%",
        f"  \\begin{{tabular}}{{{''.join('r ' if label == 'N' else 'l ' for label in layout.label_heads)}"
        f"{'c ' * len(layout.heads)}}}",
        "    \\toprule",
        line([*labels, *(_escape(head.title) + sup(head.marks) for head in layout.heads)]),
        line([*[""] * len(labels), *(f"{{\\footnotesize {_escape(head.below)}}}" for head in layout.heads)]),
        "    \\midrule",
    ]
    for index, row in enumerate(layout.lines):
        if index and row.starts_group and not table.lines_are:
            lines.append("    \\addlinespace")
        lines.append(line([*map(_escape, row.labels), *map(cell_text, row.cells)]))
    lines += ["    \\bottomrule", "  \\end{tabular}}"]
    if table.footnotes:
        lines += ["", "  \\vspace{4pt}", "  \\begin{minipage}{\\linewidth}\\footnotesize"]
        lines += [f"    {sup([n])}~{_escape(text)}\\par" for n, text in enumerate(table.footnotes, start=1)]
        lines += ["  \\end{minipage}"]
    return "\n".join([*lines, "\\end{table}", ""])


def to_csv(tables: Sequence[Table]) -> str:
    """Tidy: one line per cell at full precision, all tables in one file, footnotes spelled out."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_CSV_HEADER)
    for table in tables:
        for row in table.rows:
            for column, cell in zip(table.columns, row.cells, strict=True):
                writer.writerow(
                    [table.form, table.key, row.dataset, row.n, row.source, *_csv_cell(column, cell, table)]
                )
    return text.getvalue()


def _csv_cell(column: Column, cell: Cell, table: Table) -> list[object]:
    notes = " | ".join(table.footnotes[mark - 1] for mark in cell.marks)
    if cell.mean is None:
        return [column.title, " or ".join(column.metrics), "", "", column.spread, "", "", cell.absent, notes]
    deviation = "" if cell.deviation is None else cell.deviation
    numbers = [cell.metric, cell.mean, deviation, cell.spread, cell.num_splits, int(cell.bold)]
    return [column.title, *numbers, "", notes]


def to_rich(table: Table, *, width: int | None = None) -> Group:
    """For the terminal. If the table is wider than `width`, ± goes on a line of its own in every cell; if that does not
    do, the table goes on below, as often as it takes."""
    layout = _layout(table)
    grids = [_rich_grid(layout, stacked=False)]
    if width is not None and _width(grids) > width:
        grids, num_parts = [_rich_grid(layout, stacked=True)], 1
        while _width(grids) > width and num_parts < len(layout.heads):
            num_parts += 1
            grids = [_rich_grid(part, stacked=True) for part in _split(layout, num_parts)]
    parts: list[RichTable | Text] = [Text(layout.title, style="bold")]
    for grid in grids:
        parts += [grid, Text("")]
    parts += [Text(note, style="dim") for note in table.notes]
    parts += [Text(f"[{number}] {text}", style="dim") for number, text in enumerate(table.footnotes, start=1)]
    return Group(*parts)


def _width(grids: Sequence[RichTable]) -> int:
    return max(Console(width=10_000).measure(grid).maximum for grid in grids)


def _split(layout: _Layout, num_parts: int) -> Iterator[_Layout]:
    """The same lines, with a part of the columns each."""
    size = math.ceil(len(layout.heads) / num_parts)
    for first in range(0, len(layout.heads), size):
        these = slice(first, first + size)
        lines = tuple(replace(line, cells=line.cells[these]) for line in layout.lines)
        yield replace(layout, heads=layout.heads[these], lines=lines)


def _rich_grid(layout: _Layout, *, stacked: bool) -> RichTable:
    grid = RichTable(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 0 if stacked else 2, 0, 0))
    for position, label in enumerate(layout.label_heads):
        widest = max(len(line.labels[position]) for line in layout.lines)
        grid.add_column(label, justify="right" if label == "N" else "left", min_width=max(widest, len(label)))
    for head in layout.heads:
        title = head.title + _bracketed(head.marks)
        title = title.replace(" ", "\n") if stacked else title.replace(" (", "\n(")
        below = head.below.replace(" ±", "\n±").replace("as ", "as\n" if stacked else "as ")
        grid.add_column(Text(f"{title}\n{below}"), justify="right")
    apart = stacked and any(cell.deviation is not None for line in layout.lines for cell in line.cells)
    for index, line in enumerate(layout.lines):
        if apart and index and line.starts_group:
            grid.add_row()
        grid.add_row(*line.labels, *(_rich_cell(cell, stacked) for cell in line.cells))
    return grid


def _rich_cell(cell: Cell, stacked: bool) -> Text:
    style = "bold" if cell.bold else "yellow" if cell.mean is None else ""
    marks = (_bracketed(cell.marks), "dim")
    if not stacked:
        return Text.assemble((cell.text, style), marks)
    mean, *rest = cell.text.replace(" ±", "\n±").replace(" (", "\n(").split("\n")
    return Text.assemble((mean, style), marks, ("".join(f"\n{line}" for line in rest), style))


def _bracketed(marks: Sequence[int]) -> str:
    return f" [{','.join(map(str, marks))}]" if marks else ""


def _sup(marks: Sequence[int]) -> str:
    return f"<sup>{','.join(map(str, marks))}</sup>" if marks else ""


def _pipe(parts: Sequence[str]) -> str:
    return f"| {' | '.join(parts)} |"


def _escape(text: str) -> str:
    for plain, latex in (("\\", r"\textbackslash "), ("±", r"$\pm$"), ("–", "--")):
        text = text.replace(plain, latex)
    for character in "&%#_":
        text = text.replace(character, f"\\{character}")
    return text
