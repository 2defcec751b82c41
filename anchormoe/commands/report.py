"""The command `anchormoe-bench report`: one HTML file with answers, figures, tables and all rows."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from anchormoe.commands.options import parse_options, write_text
from anchormoe.commands.rows import rows_to_show, theory_rows
from anchormoe.report.figures.style import require_libraries
from anchormoe.report.html import page
from anchormoe.report.selection import select
from anchormoe.running.rerun import rerun_command

HELP = """anchormoe-bench report [results_dir=FOLDER] [output=report.html]

One HTML file to open, to send and to click through: what reproduces, which method leads, every split behind a number,
and the command that computes it again. It needs no network.
Without results_dir= the shipped rows and those of ./results are read, with it that folder alone: rows of your own data
get the same page without the paper's part."""


def main(arguments: list[str]) -> int:
    """Run the command."""
    options = parse_options(arguments, HELP, {"output": None, "results_dir": None})
    if options is None:
        return 0
    require_libraries()
    folder_of_rows = options["results_dir"] or None
    selection = select(rows_to_show(folder_of_rows), theory_rows(folder_of_rows))
    path = Path(options["output"] or "report.html")
    text = page.build(selection, rerun_command)
    write_text(path, text)
    size = len(text.encode()) / 1e6
    Console().print(f"wrote {path} ({size:.1f} MB): open it in a browser", highlight=False)
    return 0
