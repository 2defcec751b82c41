"""The command `anchormoe-bench figures`: every figure as SVG and PNG, from stored rows and stored arrays."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from anchormoe.commands.options import parse_options
from anchormoe.commands.rows import rows_to_show, theory_rows
from anchormoe.errors import UserError
from anchormoe.report import figures
from anchormoe.report.figures import Drawn
from anchormoe.report.figures.style import house_style, require_libraries, write
from anchormoe.report.selection import Selection, select

HELP = """anchormoe-bench figures [output=figures] [only=NAME,NAME,...] [results_dir=FOLDER]

All figures as SVG and PNG: the paper's four, nine for every dataset (in a folder of its name), those across datasets,
and one for each theorem. only= draws some of them: a figure (ranks_crps_y, boston/router), a dataset (boston), paper
or theory.
Without results_dir= the shipped rows and those of ./results are read, with it that folder alone; rows of your own data
have the figures that rows alone allow."""


def main(arguments: list[str]) -> int:
    """Run the command."""
    options = parse_options(arguments, HELP, {"output": None, "only": None, "results_dir": None})
    if options is None:
        return 0
    require_libraries()
    folder_of_rows = options["results_dir"] or None
    selection = select(rows_to_show(folder_of_rows), theory_rows(folder_of_rows))
    wanted = [name for name in options["only"].split(",") if name]
    folder, console, written = Path(options["output"] or "figures"), Console(), 0
    with house_style():
        for drawn in _draw(selection, wanted):
            if not wanted or any(drawn.name == name or drawn.name.startswith(f"{name}/") for name in wanted):
                for path in write(drawn.figure, folder, drawn.name):
                    console.print(f"wrote {path}", highlight=False)
                written += 1
    if not written:
        raise UserError(f"only must name figures that these rows allow, received {options['only']}; figures --help")
    return 0


def _draw(selection: Selection, wanted: list[str]) -> Iterator[Drawn]:
    """Draw what may have been asked for: the figures of a folder only if it is named."""
    folders = {name.partition("/")[0] for name in wanted}
    if not wanted or "paper" in folders:
        yield from figures.paper_figures() if selection.paper else ()
    if not wanted or "theory" in folders:
        yield from figures.theory_figures(selection)
    if not wanted or any(name not in ("paper", "theory", *selection.compared.datasets) for name in folders):
        yield from itertools.chain(figures.answer_figures(selection), figures.across_figures(selection))
    for name in selection.compared.datasets:
        if not wanted or name in folders:
            yield from figures.dataset_figures(selection, name)
