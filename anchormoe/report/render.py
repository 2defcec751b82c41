"""Tables as text: for the terminal, as markdown, as LaTeX or as tidy csv."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Collection, Sequence

from rich.console import Console

from anchormoe.report.grid import Cell, Column, Table
from anchormoe.report.layout import lay_out
from anchormoe.report.terminal import to_rich

FORMATS = ("rich", "md", "csv", "tex")  # the first is the default of the command line
_CSV_HEADER = (
    *("form", "table", "dataset", "n", "values", "column"),
    *("metric", "mean", "spread", "spread_kind", "num_splits", "best", "absent", "notes"),
)


def render(tables: Sequence[Table], format: str, *, width: int = 120) -> str:
    """Write all tables as one text; `width` is the number of terminal columns and matters to format=rich only."""
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
    """Write a table as GitHub markdown, with its title, notes and footnotes."""
    lines = [f"### {lay_out(table).title}", ""]
    lines += [f"{note}  " for note in table.notes[:-1]] + [table.notes[-1], ""] if table.notes else []
    lines += [markdown_grid(table), ""]
    lines += [f"{number}. {text}" for number, text in enumerate(table.footnotes, start=1)]
    return "\n".join(lines).rstrip() + "\n"


def markdown_grid(table: Table) -> str:
    """Write the lines of a table as GitHub markdown, without title and notes."""
    layout = lay_out(table)
    heads = [f"{head.title}<br>({head.below}){_sup(head.marks)}" if head.below else head.title for head in layout.heads]
    lines = [[*line.labels, *map(markdown_cell, line.cells)] for line in layout.lines]
    left = [position for position, label in enumerate(layout.label_heads) if label != "N"]
    return markdown_lines([*layout.label_heads, *heads], lines, left=left)


def markdown_lines(heads: Sequence[str], lines: Sequence[Sequence[str]], *, left: Collection[int] = (0,)) -> str:
    """Write text as a GitHub markdown table; columns are aligned to the right but for those at positions `left`."""
    rule = ["---" if position in left else "---:" for position in range(len(heads))]
    return "\n".join(f"| {' | '.join(parts)} |" for parts in (heads, rule, *lines))


def markdown_cell(cell: Cell) -> str:
    """Write a cell as markdown, with its bold and its footnote marks."""
    return (f"**{cell.text}**" if cell.bold else cell.text) + _sup(cell.marks)


def to_latex(table: Table) -> str:
    """Write a booktabs table; it needs `\\usepackage{booktabs}` and graphicx for tables wider than the page."""

    def sup(marks: Sequence[int]) -> str:
        return f"\\textsuperscript{{{','.join(map(str, marks))}}}" if marks else ""

    def cell_text(cell: Cell) -> str:
        text = _escape(cell.text)
        return (f"\\textbf{{{text}}}" if cell.bold else text) + sup(cell.marks)

    def line(parts: Sequence[str]) -> str:
        return f"    {' & '.join(parts)} \\\\"

    layout = lay_out(table)
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
    """Write one line per cell at full precision, all tables in one file, with footnotes spelled out."""
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


def _sup(marks: Sequence[int]) -> str:
    return f"<sup>{','.join(map(str, marks))}</sup>" if marks else ""


def _escape(text: str) -> str:
    """Write plain text as LaTeX; 9.35e-06 becomes a power of ten."""
    for plain, latex in (("\\", r"\textbackslash "), ("±", r"$\pm$"), ("–", "--")):
        text = text.replace(plain, latex)
    for character in "&%#_":
        text = text.replace(character, f"\\{character}")
    return re.sub(r"(\d)e([+-]\d+)", lambda match: rf"{match[1]}$\times 10^{{{int(match[2])}}}$", text)
