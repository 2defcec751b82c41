"""The same table as markdown, LaTeX, tidy csv or for the terminal."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence

from rich import box
from rich.console import Console, Group
from rich.table import Table as RichTable
from rich.text import Text

from anchormoe.grid import Cell, Column, Row, Table

FORMATS = ("md", "csv", "tex", "rich")
_LABELS = ("Dataset", "N", "Values")
_CSV_HEADER = (
    *("form", "table", "dataset", "n", "values", "column"),
    *("metric", "mean", "spread", "spread_kind", "num_splits", "best", "absent", "notes"),
)


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

    header = [*_LABELS, *(f"{column.title}<br>({column.measure}){_sup(column.marks)}" for column in table.columns)]
    lines = [f"### {table.title}", ""]
    lines += [f"{note}  " for note in table.notes[:-1]] + [table.notes[-1], ""] if table.notes else []
    lines += [_pipe(header), _pipe(["---", "---:", "---", *["---:"] * len(table.columns)])]
    lines += [_pipe([*_labels(table, index), *map(cell_text, row.cells)]) for index, row in enumerate(table.rows)]
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

    lines = [
        "\\begin{table}[ht]",
        "  \\centering",
        "  \\small",
        f"  \\caption{{{_escape(' '.join([table.title + '.', *table.notes]))}}}",
        f"  \\label{{tab:{table.key}_{table.form}}}",
        "  \\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%",
        f"  \\begin{{tabular}}{{l r l {'c ' * len(table.columns)}}}",
        "    \\toprule",
        line(["Dataset", "\\textit{N}", "Values", *(_escape(c.title) + sup(c.marks) for c in table.columns)]),
        line(["", "", "", *(f"{{\\footnotesize {_escape(c.measure)}}}" for c in table.columns)]),
        "    \\midrule",
    ]
    for index, row in enumerate(table.rows):
        if index and _starts_dataset(table, index):
            lines.append("    \\addlinespace")
        lines.append(line([*map(_escape, _labels(table, index)), *map(cell_text, row.cells)]))
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
    """For the terminal. If the table is wider than `width`, ± goes on a line of its own in every cell."""
    grid = _rich_grid(table, stacked=False)
    if width is not None and Console(width=10_000).measure(grid).maximum > width:
        grid = _rich_grid(table, stacked=True)
    parts: list[RichTable | Text] = [Text(table.title, style="bold"), grid, Text("")]
    parts += [Text(note, style="dim") for note in table.notes]
    parts += [Text(f"[{number}] {text}", style="dim") for number, text in enumerate(table.footnotes, start=1)]
    return Group(*parts)


def _rich_grid(table: Table, *, stacked: bool) -> RichTable:
    grid = RichTable(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 0 if stacked else 2, 0, 0))
    for position, label in enumerate(_LABELS):
        widest = max(len(_labels(table, index)[position]) for index in range(len(table.rows)))
        grid.add_column(label, justify="right" if label == "N" else "left", min_width=max(widest, len(label)))
    for column in table.columns:
        title = column.title + _bracketed(column.marks)
        title = title.replace(" ", "\n") if stacked else title.replace(" (", "\n(")
        measure = column.measure.replace(" ±", "\n±").replace("as ", "as\n" if stacked else "as ")
        grid.add_column(Text(f"{title}\n{measure}"), justify="right")
    for index, row in enumerate(table.rows):
        if stacked and index and _starts_dataset(table, index):
            grid.add_row()
        grid.add_row(*_labels(table, index), *(_rich_cell(cell, stacked) for cell in row.cells))
    return grid


def _rich_cell(cell: Cell, stacked: bool) -> Text:
    style = "bold" if cell.bold else "yellow" if cell.mean is None else ""
    marks = (_bracketed(cell.marks), "dim")
    if not stacked:
        return Text.assemble((cell.text, style), marks)
    mean, *rest = cell.text.replace(" ±", "\n±").replace(" (", "\n(").split("\n")
    return Text.assemble((mean, style), marks, ("".join(f"\n{line}" for line in rest), style))


def _labels(table: Table, index: int) -> list[str]:
    """Dataset and N stand once, in the first of the dataset's rows."""
    row: Row = table.rows[index]
    first = _starts_dataset(table, index)
    return [row.dataset.capitalize() if first else "", str(row.n) if first else "", row.source]


def _starts_dataset(table: Table, index: int) -> bool:
    return index == 0 or table.rows[index - 1].dataset != table.rows[index].dataset


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
