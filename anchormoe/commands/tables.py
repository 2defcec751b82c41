"""The command `anchormoe-bench tables`: the paper's tables, the comparison and the ingredients, from stored rows."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from rich.console import Console

from anchormoe.commands.options import parse_options, write_text
from anchormoe.commands.rows import comparison_rows, ingredient_rows, stored_rows, table_rows
from anchormoe.report import comparison, ingredients, render, tables
from anchormoe.report.grid import Table

FORMS = (*tables.FORMS, "comparison", "ingredients")

HELP = """anchormoe-bench tables [format=rich|md|csv|tex] [form=all|published|corrected|comparison|ingredients]
                       [output=FOLDER] [results_dir=FOLDER]

The paper's five tables from stored rows, as published and corrected; the comparison of all methods that were run; what
each step from the published recipe to the cross-fitted one buys.
With output= they are written as files.
Without results_dir= the shipped rows and those of ./results are read, with it that folder alone."""


def main(arguments: list[str]) -> int:
    """Run the command."""
    options = parse_options(
        arguments,
        HELP,
        {
            "format": render.FORMATS,
            "form": ("all", *FORMS),
            "output": None,
            "results_dir": None,
        },
    )
    if options is None:
        return 0
    forms = FORMS if options["form"] == "all" else (options["form"],)
    stored, console = stored_rows(options["results_dir"] or None), Console()
    for form in forms:
        built = _build(form, stored)
        if not built:
            console.print(f"{form}: no finished row of it is stored", highlight=False)
        elif not options["output"]:
            _print(built, options["format"], console)
        else:
            _write_tables(built, form, options["format"], Path(options["output"]), console)
    return 0


def _build(form: str, stored: pd.DataFrame) -> list[Table]:
    if form == "comparison":
        return comparison.build(comparison_rows(stored))
    if form == "ingredients":
        return ingredients.build(ingredient_rows(stored))
    return tables.build(table_rows(stored), form)


def _print(built: list[Table], form: str, console: Console) -> None:
    if form != "rich":
        print(render.render(built, form))
        return
    for table in built:
        console.print(render.to_rich(table, width=console.width))
        console.print()


def _write_tables(built: list[Table], form: str, wanted: str, folder: Path, console: Console) -> None:
    suffixes = [name for name in render.FORMATS if name != "rich"]
    for suffix in suffixes if wanted == "rich" else [wanted]:
        path = folder / f"{form}.{suffix}"
        write_text(path, render.render(built, suffix))
        console.print(f"wrote {path}", highlight=False)
