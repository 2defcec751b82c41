"""The tables of README and docs/, and the files under results/, are what the stored rows give."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pandas as pd
import pytest

from anchormoe.config.schema import STOCK_EXPERIMENTS, TABLE_EXPERIMENTS, THEORY_EXPERIMENT
from anchormoe.errors import UserError
from anchormoe.report import comparison, documents, ingredients, render, tables
from anchormoe.running.store import load_results

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return load_results(ROOT / "results", documents.PAGE_EXPERIMENTS, kind=None)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_are_fresh(page: Path, rows: pd.DataFrame) -> None:
    text = page.read_text()
    assert documents.refresh(text, rows) == text, "run python scripts/refresh_tables.py"


def test_all_stored_rows_are_in_the_wheel() -> None:
    """Pages, reports and rankings read the shipped rows where there is no checkout."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    shipped = {name for name in build["force-include"] if name.startswith("results/")}
    assert shipped == {f"results/{folder.name}" for folder in (ROOT / "results").iterdir() if folder.is_dir()}


def test_the_pages_have_tables() -> None:
    named = re.findall(r"<!-- table: (\S+) -->", "".join(page.read_text() for page in PAGES))
    assert {"quoted_nll", "ingredients_nll", "crossfit_in_print", "crossfit_seeds", "check_worth_a_look"} <= set(named)


@pytest.mark.parametrize("form", [*tables.FORMS, "comparison", "ingredients"])
def test_the_files_under_results_are_fresh(form: str, rows: pd.DataFrame) -> None:
    behind_tables = rows[rows["experiment"].isin(TABLE_EXPERIMENTS)]
    if form == "ingredients":
        built = ingredients.build(rows[rows["experiment"].isin(STOCK_EXPERIMENTS)])
    else:
        built = comparison.build(behind_tables) if form == "comparison" else tables.build(behind_tables, form)
    for suffix in ("md", "tex"):
        stored = (ROOT / "results" / f"{form}.{suffix}").read_text()
        assert render.render(built, suffix) == stored, "run anchormoe-bench tables output=results"


def test_other_rows_make_a_page_stale(rows: pd.DataFrame) -> None:
    text = (ROOT / "docs" / "crossfit.md").read_text()
    changed = rows.copy()
    changed.loc[rows["experiment"] != THEORY_EXPERIMENT, "nll_y"] += 1
    refreshed = documents.refresh(text, changed)
    assert refreshed != text
    assert "| boston | 3.207 ± 0.034 | 2.35 Deep Evidential |" in refreshed
    assert documents.refresh(refreshed, rows) == text, "what stands around the tables is left alone"


@pytest.mark.parametrize("name", documents.TABLES)
def test_every_table_is_whole(name: str, rows: pd.DataFrame) -> None:
    lines = documents.TABLES[name](rows).splitlines()
    assert len(lines) > 3
    assert {line.count("|") for line in lines} == {lines[0].count("|")}
    assert all(line.startswith("| ") and line.endswith(" |") for line in lines)
    assert not any("missing" in line or "nan" in line for line in lines)


def test_ablations_are_marked_by_their_paired_test(rows: pd.DataFrame) -> None:
    lines = documents.corrected_ablations(rows).splitlines()
    protein = next(line.split(" | ") for line in lines if line.startswith("| protein"))
    assert protein[2].startswith("**2.464"), "without the anchor the NLL is lower"
    assert protein[5].endswith("▲"), "and the RMSE higher"
    assert not re.search(r"[*▲]", protein[3]), "without the router nothing is shown"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "<!-- table: average_rank -->\n<!-- end -->",
            "a table of a page must be one of average_ranks, .* average_rank",
        ),
        ("<!-- table: average_ranks -->\n", "must be followed by its own"),
        ("<!-- table: quoted_nll -->\n<!-- table: average_ranks -->\n<!-- end -->", "must be followed by its own"),
        ("<!-- end -->", "must be followed by its own"),
    ],
)
def test_a_wrong_marker_is_one_line(text: str, expected: str, rows: pd.DataFrame) -> None:
    with pytest.raises(UserError, match=expected):
        documents.refresh(text, rows)
