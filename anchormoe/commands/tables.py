"""`anchormoe-bench tables` and `anchormoe-bench check`: both read stored rows."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from rich.console import Console

from anchormoe.commands.live import SPLITS, live_check
from anchormoe.config.schema import RANKING_EXPERIMENT, STOCK_EXPERIMENTS, TABLE_EXPERIMENTS
from anchormoe.distributions.scores import ranked
from anchormoe.errors import UserError
from anchormoe.paths import shipped
from anchormoe.report import check, comparison, figures, ingredients, render, tables
from anchormoe.report.grid import Table
from anchormoe.run.store import load_results

FORMS = (*tables.FORMS, "comparison", "ingredients")

TABLES_HELP = """anchormoe-bench tables [format=rich|md|csv|tex] [form=all|published|corrected|comparison|ingredients]
                       [output=FOLDER] [figures=off|on] [results_dir=results]

The paper's five tables from stored rows, as published and corrected; the comparison of all methods that were run; what
each step from the published recipe to the cross-fitted one buys.
With output= they are written as files, with figures=on the comparison's diagrams too."""

CHECK_HELP = """anchormoe-bench check [missing=off|ok] [live=2] [show=problems|all] [output=FILE] [results_dir=results]

Compares stored rows of protocol=published with the authors' numbers, split by split, and recomputes `live` splits.
Exit code 1 if a cell is off, or missing unless missing=ok. With output= the full report is written to a file too."""


def main_tables(arguments: list[str]) -> int:
    options = _options(
        arguments,
        TABLES_HELP,
        {
            "format": render.FORMATS,
            "form": ("all", *FORMS),
            "output": None,
            "figures": ("off", "on"),
            "results_dir": None,
        },
    )
    if options is None:
        return 0
    if options["figures"] == "on" and not options["output"]:
        raise UserError("figures=on must come with output=FOLDER, received no output=")
    if options["figures"] == "on":
        figures.require_libraries()
    stored = stored_rows(_results_dir(options), STOCK_EXPERIMENTS)
    forms = FORMS if options["form"] == "all" else (options["form"],)
    console = Console()
    for form in forms:
        built = _build(form, stored, _results_dir(options))
        if not built:
            console.print(f"{form}: no finished row of it is stored", highlight=False)
        elif not options["output"]:
            _print(built, options["format"], console)
        else:
            folder = Path(options["output"])
            suffixes = [name for name in render.FORMATS if name != "rich"]
            for suffix in suffixes if options["format"] == "rich" else [options["format"]]:
                path = folder / f"{form}.{suffix}"
                _write(path, render.render(built, suffix))
                console.print(f"wrote {path}", highlight=False)
    if options["figures"] == "on":
        compared = comparison_rows(_results_dir(options))
        drawn = {f"ranks_{metric.name}": figures.critical_difference(compared, metric.name) for metric in ranked()}
        drawn["pit"] = figures.pit_histograms(compared, "anchormoe_crossfit")
        for name, figure in drawn.items():
            path = Path(options["output"]) / f"{name}.png"
            figure.savefig(path, dpi=150)
            console.print(f"wrote {path}", highlight=False)
    return 0


def _build(form: str, stored: pd.DataFrame, results_dir: Path) -> list[Table]:
    if form == "ingredients":
        return ingredients.build(stored)
    if form == "comparison" and (results_dir / RANKING_EXPERIMENT).is_dir():
        return comparison.build(comparison_rows(results_dir))
    rows = stored[stored["experiment"].isin(TABLE_EXPERIMENTS)]
    return comparison.build(rows) if form == "comparison" else tables.build(rows, form)


def main_check(arguments: list[str]) -> int:
    options = _options(
        arguments,
        CHECK_HELP,
        {"missing": ("off", "ok"), "live": None, "show": ("problems", "all"), "output": None, "results_dir": None},
    )
    if options is None:
        return 0
    live = options["live"] or "2"
    if not live.isdigit():
        raise UserError(f"live must be a number of splits, received {live}")
    if not 0 <= int(live) <= len(SPLITS):
        raise UserError(f"live must be from 0 to {len(SPLITS)}, received {live}")
    rows = table_rows(_results_dir(options))
    console = Console()
    report = check.check(rows, require_all=options["missing"] == "off")
    console.print(check.to_rich(report, problems_only=options["show"] == "problems"))
    if options["output"]:
        text = io.StringIO()
        Console(file=text, width=110).print(check.to_rich(report))
        _write(Path(options["output"]), text.getvalue())
    live_ok = int(live) == 0 or live_check(int(live), console)
    return 0 if report.exit_code == 0 and live_ok else 1


def table_rows(results_dir: Path) -> pd.DataFrame:
    """Load the rows behind the tables."""
    return stored_rows(results_dir, TABLE_EXPERIMENTS)


def comparison_rows(results_dir: Path) -> pd.DataFrame:
    """Load the same with the user's regressors; the shipped rows join them if the folder has no comparison."""
    own = stored_rows(results_dir, (*TABLE_EXPERIMENTS, RANKING_EXPERIMENT))
    if (results_dir / "comparison").is_dir() or not (results_dir / RANKING_EXPERIMENT).is_dir():
        return own
    return pd.concat([table_rows(shipped("results")), own.dropna(axis=1, how="all")], ignore_index=True)


def stored_rows(results_dir: Path, experiments: Sequence[str]) -> pd.DataFrame:
    """Load the rows of some experiments."""
    if not results_dir.is_dir():
        raise UserError(f"results_dir must be a folder of stored rows, received {results_dir}; run a sweep first")
    return load_results(results_dir, experiments)


def _results_dir(options: dict[str, str]) -> Path:
    """The named folder, else ./results, else the rows that ship with the package."""
    if options["results_dir"]:
        return Path(options["results_dir"])
    return Path("results") if Path("results").is_dir() else shipped("results")


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        raise UserError(f"output must be a place that can be written to, received {path}: {error.strerror}") from None


def _print(built: list, form: str, console: Console) -> None:
    if form != "rich":
        print(render.render(built, form))
        return
    for table in built:
        console.print(render.to_rich(table, width=console.width))
        console.print()


def _options(arguments: list[str], help_text: str, known: dict[str, tuple[str, ...] | None]) -> dict[str, str] | None:
    """key=value arguments: a closed choice (its first value is the default) or free text (default empty).

    None if help was asked for and given.
    """
    options = {key: choices[0] if choices else "" for key, choices in known.items()}
    for argument in arguments:
        if argument in ("--help", "-h"):
            print(help_text)
            return None
        key, equals, value = argument.partition("=")
        if not equals or key not in known:
            raise UserError(f"options must be among {', '.join(f'{name}=' for name in known)}, received {argument}")
        choices = known[key]
        if choices and value not in choices:
            raise UserError(f"{key} must be one of {', '.join(choices)}, received {value}")
        options[key] = value
    return options
