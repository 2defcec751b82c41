"""The command `anchormoe-bench tables`: the paper's tables, the comparison and the ingredients, from stored rows."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from rich.console import Console

from anchormoe.commands.options import parse_options, write_text
from anchormoe.commands.rows import (
    calibration_rows,
    comparison_rows,
    control_rows,
    extended_rows,
    ingredient_rows,
    joint_rows,
    stored_rows,
    table_rows,
)
from anchormoe.report import (
    calibration,
    comparison,
    extended,
    ingredients,
    published,
    render,
    rivals,
    several_targets,
    tables,
)
from anchormoe.report.grid import Table

FORMS = (
    *tables.FORMS,
    *("comparison", "ingredients", "calibration", "controls", "extended"),
    *(rivals.FORM, several_targets.FORM),
)

HELP = """anchormoe-bench tables [format=rich|md|csv|tex] [output=FOLDER] [results_dir=FOLDER]
                       [form=all|published|corrected|comparison|ingredients|calibration|controls|
                        extended|rivals|several_targets]

The paper's five tables from stored rows, as published and corrected; the comparison of all methods that were run; what
each step from the published recipe to the cross-fitted one buys; the calibrations; the controls of the cross-fitted
recipe; the comparison on the extended suite; the presets of the recipe beside modern rivals; several targets predicted
together.
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
        of_several = form == several_targets.FORM  # whose rows are of another kind
        built = (
            several_targets.build(joint_rows(options["results_dir"] or None)) if of_several else _build(form, stored)
        )
        if not built:
            console.print(f"{form}: no finished row of it is stored", highlight=False)
        elif not options["output"]:
            _print(built, options["format"], console)
        else:
            _write_tables(built, form, options["format"], Path(options["output"]), console)
    return 0


def _build(form: str, stored: pd.DataFrame) -> list[Table]:
    if form == "comparison":
        rows = comparison_rows(stored)
        return [*comparison.build(rows), *_own_comparison(rows)]
    if form == "extended":
        return extended.build(extended_rows(stored))
    if form == "controls":
        return comparison.build(control_rows(stored))
    if form == rivals.FORM:
        return rivals.build(stored)
    if form == "ingredients":
        return ingredients.build(ingredient_rows(stored))
    if form == "calibration":
        return calibration.build(calibration_rows(stored))
    return tables.build(table_rows(stored), form)


def _own_comparison(rows: pd.DataFrame) -> list[Table]:
    """Make the tables of datasets other than the nine, each on as many splits as most of its methods have."""
    own = rows[~rows["dataset"].isin(published.DATASETS) & (rows["status"] == "ok")]
    built = []
    for name, group in own.groupby("dataset", sort=False):
        num_splits = int(group.groupby("method")["split"].nunique().max())
        built += comparison.build(own, datasets=[str(name)], num_splits=num_splits)
    return built


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
