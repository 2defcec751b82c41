"""The five tables: published facts, one unit per column, missing cells, bold, footnotes and the four formats."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from synthetic_rows import stored_rows

from anchormoe import cli
from anchormoe.errors import UserError
from anchormoe.report import cells, published, render, tables
from anchormoe.report.cells import StoredRuns
from anchormoe.report.grid import MISSING, NOT_AVAILABLE, SE, Cell, Column, Row, Table
from anchormoe.report.numbers import plus_minus


def table(built: list[Table], key: str) -> Table:
    return next(item for item in built if item.key == key)


def cell(item: Table, dataset: str, source: str, title: str) -> Cell:
    row = next(row for row in item.rows if (row.dataset, row.source) == (dataset, source))
    return row.cells[[column.title for column in item.columns].index(title)]


def notes_of(item: Table, value: Cell) -> str:
    return " ".join(item.footnotes[mark - 1] for mark in value.marks)


# --- published facts, checked by hand against the paper's source


@pytest.mark.parametrize(
    ("key", "dataset", "column", "value"),
    [
        ("nll", "boston", "full", (0.60, 0.11)),
        ("nll", "boston", "anchor_moe", (0.60, 0.11)),
        ("nll", "naval", "ngboost", (-5.34, 0.04)),
        ("rmse", "yacht", "ngboost", (0.50, 0.20)),
        ("ablation_nll", "wine", "no_anchor", (1.52, 0.43)),
        ("ablation_rmse", "concrete", "no_cal", (4.18, 0.12)),
        ("appendix_nll", "power", "gaussian_process", (3.81, 0.05)),
        ("appendix_nll", "protein", "full", None),
        ("nll", "boston", "gamlss", None),
    ],
)
def test_paper_cells(key: str, dataset: str, column: str, value: tuple[float, float] | None) -> None:
    assert published.paper_cell(key, dataset, column) == value


def test_order_and_n_of_the_paper() -> None:
    assert published.datasets("nll") == published.DATASETS
    assert "protein" not in published.datasets("appendix_nll")
    assert published.columns("ablation_nll") == published.ABLATIONS
    assert [published.paper_n("nll", name) for name in ("boston", "protein", "naval")] == [506, 10000, 11934]


def test_notebook_runs() -> None:
    boston = published.notebook("full", "boston")
    assert boston.mean("rmse") == pytest.approx(3.0147, abs=6e-5)
    assert boston.se("nll_z") == pytest.approx(0.1129, abs=6e-5)
    assert boston.stages is not None
    assert boston.stages[:3] == (289, 305, 545)
    kin8nm = published.notebook("full", "kin8nm")
    assert kin8nm.run_name == "kin8nm_rff_krr"
    assert kin8nm.mean("nll_z") == pytest.approx(0.1239, abs=6e-5)
    assert published.notebook("no_cal", "wine").stages is None
    assert published.ngboost_notebook("boston") is None
    with pytest.raises(ValueError, match=r"dataset must be one of boston, .* received 'bostn'"):
        published.notebook("full", "bostn")


def test_conversion_to_original_units_agrees_with_the_data() -> None:
    """The conversion adds log(std of the training and validation targets), here computed from the data themselves."""
    np = pytest.importorskip("numpy")
    from anchormoe.data.catalogue import info
    from anchormoe.data.dataset import load
    from anchormoe.data.splits import OuterSplit, inner_split

    for dataset in ("boston", "yacht"):
        y = load(info(dataset)).y
        converted = []
        for number, nll in enumerate(published.notebook("full", dataset).nll_z, start=1):
            train, _ = OuterSplit(number, seed=1).rows(len(y))
            inner = inner_split(len(train), 1, calibration_fraction=0.125, validation_fraction=0.2)
            converted.append(nll + np.log(y[train][inner.tv].std() + 1e-8))
        summary = cells.summarise(converted)
        assert summary is not None
        assert (summary.mean, summary.se) == pytest.approx(published.nll_in_original_units("full", dataset), abs=0.001)
    assert published.nll_in_original_units("no_anchor", "kin8nm") is None


def test_contradicted_cells_are_those_that_differ_from_the_notebook() -> None:
    listed = {
        (name, entry.dataset, column)
        for entry in published.discrepancies()
        if entry.paper_contradicts_notebook
        for name in entry.tables
        for column in entry.columns
    }
    differing = set()
    for key in published.TABLES:
        metric = "rmse" if key.endswith("rmse") else "nll_z"
        for dataset in published.datasets(key):
            for column in set(published.columns(key)) & set(published.ABLATIONS):
                run = published.notebook(column, dataset)
                printed = published.paper_cell(key, dataset, column)
                assert printed is not None
                exact = (run.mean(metric), run.se(metric))
                if any(abs(a - b) > 0.005 + 5e-5 for a, b in zip(printed, exact, strict=True)):
                    differing.add((key, dataset, column))
    assert differing <= listed


# --- units


def _column_of(metric: str) -> Column:
    return Column("Anchor-MoE", (metric,), SE)


def _table_of(column: Column, *values: Cell) -> Table:
    rows = tuple(Row("boston", 506, "published", (value,)) for value in values)
    return Table("nll", "corrected", "t", (), (column,), rows, ())


def test_a_column_refuses_a_second_unit() -> None:
    good, bad = Cell("nll_y", SE, 2.8, 0.1), Cell("nll_z", SE, 0.6, 0.1)
    _table_of(_column_of("nll_y"), good, Cell())
    with pytest.raises(ValueError, match=r"column 'Anchor-MoE' is in nll_y, but the cell of boston .* is in nll_z"):
        _table_of(_column_of("nll_y"), good, bad)


def test_a_column_of_two_units_must_be_declared_as_the_papers() -> None:
    with pytest.raises(ValueError, match="must have one unit, received nll_z, nll_y"):
        Column("mixed", ("nll_z", "nll_y"), SE)
    declared = Column("mixed", ("nll_z", "nll_y"), SE, as_printed=True)
    _table_of(declared, Cell("nll_y", SE, 2.8, 0.1), Cell("nll_z", SE, 0.6, 0.1))


def test_standard_deviation_and_standard_error_do_not_share_a_column() -> None:
    with pytest.raises(ValueError, match=r"prints ± SE, but the cell of boston .* has SD"):
        _table_of(_column_of("nll_y"), Cell("nll_y", "SD", 2.8, 0.1))


def test_corrected_tables_have_one_unit_per_column() -> None:
    for item in tables.build(stored_rows("clean"), "corrected"):
        for index, column in enumerate(item.columns):
            found = {row.cells[index].metric for row in item.rows} - {None}
            assert found == set(column.metrics)
            assert not column.as_printed
            assert column.metrics[0] in ("nll_y", "rmse_y")


# --- content


def test_as_published_shows_printed_beside_reproduced() -> None:
    built = tables.build(stored_rows(), "published")
    assert [item.key for item in built] == list(published.TABLES)
    nll = table(built, "nll")
    assert cell(nll, "boston", "published", "Anchor-MoE").text == "0.60 ± 0.11"
    assert cell(nll, "boston", "reproduced", "Anchor-MoE").text == "0.60 ± 0.11"
    assert cell(nll, "naval", "reproduced", "Anchor-MoE").text == "-1.268 ± 0.016"
    assert cell(table(built, "rmse"), "kin8nm", "reproduced", "Anchor-MoE").text == "0.07282 ± 0.00059"
    assert cell(table(built, "ablation_nll"), "naval", "reproduced", "Anchor").text == "-0.61 ± 0.05"
    assert cell(table(built, "appendix_nll"), "wine", "published", "DistForest (quoted)").text == "1.05 ± 0.15"
    assert "z-scored" in nll.notes[0]
    assert "original units" in nll.notes[0]


def test_corrected_form_takes_clean_rows_in_original_units() -> None:
    rows = pd.concat([stored_rows(), stored_rows("clean", nll_y=2.0)], ignore_index=True)
    built = tables.build(rows, "corrected")
    nll = table(built, "nll")
    assert cell(nll, "boston", "published", "Anchor-MoE").text == "2.815 ± 0.109"
    assert cell(nll, "boston", "clean", "Anchor-MoE").mean == 2.0
    assert cell(nll, "wine", "published", "NGBoost (authors' run)").text == "4.744 ± 0.598"
    assert cell(nll, "wine", "published", "NGBoost (quoted)").text == NOT_AVAILABLE
    energy = cell(nll, "energy", "published", "NGBoost (quoted)")
    assert energy.text == NOT_AVAILABLE  # what was printed there is an RMSE
    assert "0.46 ± 0.06" in notes_of(nll, energy)
    no_anchor = cell(table(built, "ablation_nll"), "kin8nm", "published", "No anchor")
    assert no_anchor.text == NOT_AVAILABLE
    assert "8785" in notes_of(table(built, "ablation_nll"), no_anchor)


def test_missing_and_partial_cells_are_said() -> None:
    rows = stored_rows()
    rows.loc[(rows["dataset"] == "boston") & (rows["split"] > 7), "status"] = "failed"
    rows = rows[rows["dataset"] != "yacht"]
    nll = table(tables.build(rows, "published"), "nll")
    assert cell(nll, "boston", "reproduced", "Anchor-MoE").text.endswith("(7/20)")
    assert cell(nll, "yacht", "reproduced", "Anchor-MoE").text == MISSING
    assert any("no finished split is stored" in note for note in nll.notes)
    assert not any("–:" in note for note in nll.notes)


def test_no_rows_at_all() -> None:
    for form, source in (("published", "reproduced"), ("corrected", "clean")):
        nll = table(tables.build(pd.DataFrame(), form), "nll")
        assert {cell(nll, name, source, "Anchor-MoE").text for name in published.DATASETS} == {MISSING}


def test_a_single_split_has_no_standard_error() -> None:
    rows = stored_rows()
    nll = table(tables.build(rows[rows["split"] == 1], "published"), "nll")
    assert cell(nll, "boston", "reproduced", "Anchor-MoE").text == "0.34 (1/20)"


def test_unknown_form_is_refused() -> None:
    with pytest.raises(ValueError, match="form must be one of published, corrected; received 'correct'"):
        tables.build(pd.DataFrame(), "correct")


def test_footnotes_mark_their_cells() -> None:
    built = tables.build(pd.DataFrame(), "corrected")
    expected = {
        ("nll", "kin8nm", "Anchor-MoE"): "kernel-ridge",
        ("ablation_nll", "naval", "No anchor"): "-0.6096",
        ("ablation_rmse", "energy", "No calibration"): "cooling",
        ("ablation_rmse", "naval", "No router"): "17 inputs",
        ("rmse", "wine", "NGBoost (authors' run)"): "0.63 ± 0.04",
    }
    for (key, dataset, title), text in expected.items():
        item = table(built, key)
        assert text in notes_of(item, cell(item, dataset, "published", title))
    nll = table(built, "nll")
    assert "standard deviation" in nll.footnotes[nll.columns[1].marks[0] - 1]
    for item in built:  # every footnote is referred to
        used = {mark for column in item.columns for mark in column.marks}
        used |= {mark for row in item.rows for value in row.cells for mark in value.marks}
        assert used == set(range(1, len(item.footnotes) + 1))


def test_every_discrepancy_is_shown_somewhere() -> None:
    shown = {text for form in tables.FORMS for item in tables.build(pd.DataFrame(), form) for text in item.footnotes}
    shown |= {note for form in tables.FORMS for item in tables.build(pd.DataFrame(), form) for note in item.notes}
    assert {entry.text for entry in published.discrepancies()} <= shown
    assert {entry.id for entry in published.discrepancies()} == set(range(13, 36))


# --- bold

PAPER_BOLD = {  # as set in the paper; naval has none in the RMSE tables
    "nll": {name: ["full"] for name in published.DATASETS} | {"kin8nm": ["ngboost"], "naval": ["ngboost"]},
    "rmse": {
        **{name: ["ngboost"] for name in ("boston", "energy", "wine", "yacht")},
        **{name: ["full"] for name in ("concrete", "kin8nm", "power")},
        "protein": ["full", "ngboost"],
        "naval": [],
    },
    "ablation_nll": {
        **{name: ["full"] for name in ("energy", "kin8nm", "naval", "wine")},
        **{name: ["no_cal"] for name in ("power", "yacht")},
        "boston": ["no_router"],
        "concrete": ["no_router", "no_cal"],
        "protein": ["no_anchor"],
    },
    "appendix_nll": {
        **{name: ["full"] for name in ("boston", "concrete", "energy", "power", "yacht")},
        "kin8nm": ["deep_ensembles"],
        "naval": ["concrete_dropout"],
        "wine": ["mc_dropout"],
    },
}


def test_bold_is_by_the_numbers_and_notes_where_the_papers_differs() -> None:
    differing = set()
    built = tables.build(pd.DataFrame(), "published")
    for key, by_dataset in PAPER_BOLD.items():
        for row in table(built, key).rows:
            if row.source == "published":
                names = [name for name, value in zip(published.columns(key), row.cells, strict=True) if value.bold]
                if names != by_dataset[row.dataset]:
                    differing.add((key, row.dataset))
    assert differing == {("ablation_nll", "wine"), ("rmse", "protein")}
    for key, dataset, title in (("ablation_nll", "wine", "Anchor-MoE"), ("rmse", "protein", "NGBoost (quoted)")):
        item = table(built, key)
        assert "bold" in notes_of(item, cell(item, dataset, "published", title)).lower()
    assert any("no cell of this table in bold" in note for note in table(built, "ablation_rmse").notes)


def test_published_and_reproduced_are_bolded_separately() -> None:
    rows = stored_rows()
    rows.loc[(rows["dataset"] == "boston") & (rows["ablation"] == "full"), "nll_z"] = 9.0
    nll = table(tables.build(rows, "published"), "nll")
    assert cell(nll, "boston", "published", "Anchor-MoE").bold
    assert not cell(nll, "boston", "reproduced", "Anchor-MoE").bold
    assert cell(nll, "boston", "reproduced", "NGBoost (quoted)").bold


def test_what_measures_something_else_is_not_ranked_in_the_corrected_form() -> None:
    ablation = table(tables.build(pd.DataFrame(), "corrected"), "ablation_nll")
    assert cell(ablation, "naval", "published", "Anchor-MoE").bold  # -5.49, though turbine decay has -6.02
    assert not cell(ablation, "naval", "published", "No calibration").bold
    assert not cell(ablation, "kin8nm", "published", "Anchor-MoE").bold


def test_digits_beyond_those_quoted_decide_nothing() -> None:
    rmse = table(tables.build(stored_rows("clean"), "corrected"), "rmse")
    assert not any(value.bold for row in rmse.rows if row.dataset == "naval" for value in row.cells)


# --- which rows fill a cell


def test_anchors_are_never_mixed_and_gbdt_is_preferred_if_as_complete() -> None:
    gbdt = stored_rows()
    xgboost = stored_rows(anchor="xgboost", config_hash="def", rmse_y=7.0)
    for rows, expected in ((gbdt, ("gbdt", 20, 2)), (gbdt[gbdt["split"] <= 5], ("xgboost", 20, 2))):
        both = pd.concat([xgboost, rows], ignore_index=True)
        run = StoredRuns(both).choose(dataset="boston", ablation="full", protocol="published")
        assert run is not None
        assert (run.anchor, len(run.splits), run.num_candidates) == expected
    rmse = table(tables.build(xgboost, "published"), "rmse")
    boston = cell(rmse, "boston", "reproduced", "Anchor-MoE")
    assert boston.mean == 7.0
    assert "anchor=xgboost" in notes_of(rmse, boston)


def test_the_most_complete_configuration_is_taken_then_the_last_stored() -> None:
    old, new = stored_rows(config_hash="old"), stored_rows(config_hash="new")
    both = pd.concat([old, new], ignore_index=True)
    wanted: dict[str, Any] = {"dataset": "boston", "ablation": "full", "protocol": "published"}
    chosen = StoredRuns(both).choose(**wanted)
    assert chosen is not None
    assert chosen.config_hash == "new"
    chosen = StoredRuns(pd.concat([old, new[new["split"] > 1]], ignore_index=True)).choose(**wanted)
    assert chosen is not None
    assert chosen.config_hash == "old"


@pytest.mark.parametrize(
    "change", [{"seed": 2}, {"status": "failed"}, {"protocol": "clean"}, {"variant": "cooling"}, {"method": "ngboost"}]
)
def test_rows_of_something_else_do_not_fill_a_cell(change: dict[str, Any]) -> None:
    rows = stored_rows(**change)
    assert StoredRuns(rows).choose(dataset="energy", ablation="full", protocol="published") is None


def test_a_split_stored_twice_counts_once_and_the_first_wins() -> None:
    rows = pd.concat([stored_rows(), stored_rows(rmse_y=9.0)], ignore_index=True)
    run = StoredRuns(rows).choose(dataset="wine", ablation="full", protocol="published")
    assert run is not None
    assert run.splits == tuple(range(1, 21))
    assert tuple(run.values("rmse_y")) == published.notebook("full", "wine").rmse


@pytest.mark.parametrize("column", ["variant", "config_hash", "anchor", "method", "seed", "split", "status", "nll_z"])
@pytest.mark.parametrize("form", tables.FORMS)
def test_rows_without_a_column_leave_cells_missing(form: str, column: str) -> None:
    rows = pd.concat([stored_rows(), stored_rows("clean")], ignore_index=True).drop(columns=column)
    source = "reproduced" if form == "published" else "clean"
    boston = cell(table(tables.build(rows, form), "nll"), "boston", source, "Anchor-MoE")
    found = column == "config_hash" or (column == "nll_z" and form == "corrected")
    assert (boston.text != MISSING) == found


def test_what_a_cell_measures_is_what_its_protocol_says() -> None:
    """conf/protocol and the catalogue state this once; here it is written by hand, from the notebooks."""
    assert cells.measured("kin8nm", "full", "published") == ("rff_krr", "standard")
    assert cells.measured("kin8nm", "full", "clean") == ("anchormoe", "standard")
    assert cells.measured("energy", "no_anchor", "published") == ("anchormoe", "heating")
    assert cells.measured("energy", "no_cal", "published") == ("anchormoe", "cooling")
    assert cells.measured("energy", "no_cal", "clean") == ("anchormoe", "heating")
    assert cells.measured("naval", "no_router", "published") == ("anchormoe", "turbine_with_compressor")
    assert cells.measured("naval", "no_router", "clean") == ("anchormoe", "compressor")
    assert cells.measured("power", "full", "clean") == ("anchormoe", "sheet1")
    assert cells.measured("houses", "full", "clean") == ("anchormoe", None), "a dataset of the user's: no constraint"


def test_an_unknown_protocol_or_ablation_is_named() -> None:
    with pytest.raises(UserError, match="protocol must be one of clean, published, received cleen"):
        cells.measured("boston", "full", "cleen")
    with pytest.raises(UserError, match=r"ablation must be one of full, .* received no_moe"):
        cells.measured("boston", "no_moe", "clean")


# --- numbers


@pytest.mark.parametrize(
    ("mean", "spread", "least", "text"),
    [
        (2.3641, 0.0081, 3, "2.364 ± 0.008"),
        (2.3641, 0.00094, 3, "2.36410 ± 0.00094"),
        (0.03702, 0.000213, 3, "0.03702 ± 0.00021"),
        (-1.2683, 0.0156, 2, "-1.268 ± 0.016"),
        (-1.2683, 0.0256, 2, "-1.27 ± 0.03"),
        (0.1239, 0.0092, 2, "0.1239 ± 0.0092"),
        (0.002644, 0.000251, 3, "0.00264 ± 0.00025"),
        (0.00066, 0.00022, 3, "6.6e-04 ± 2.2e-04"),
        (9.347e-6, 1.23e-7, 3, "9.35e-06 ± 1.2e-07"),
        (9.347e-6, 9.96e-8, 3, "9.35e-06 ± 1.0e-07"),
        (128.31, 3.17, 1, "128.3 ± 3.2"),
        (0.3441, None, 2, "0.34"),
        (9.347e-6, None, 3, "9.35e-06"),
        (2.0, 0.0, 3, "2.000 ± 0.000"),
        (0.7, 8e-17, 3, "0.700 ± 0.000"),
        (0.0, 0.0, 3, "0.000 ± 0.000"),
        (0.0, 4e-5, 3, "0 ± 4.0e-05"),
        (float("nan"), None, 3, "nan"),
    ],
)
def test_numbers_have_the_digits_that_their_spread_allows(
    mean: float, spread: float | None, least: int, text: str
) -> None:
    assert plus_minus(mean, spread, least=least) == text


def test_small_numbers_are_powers_of_ten_in_latex() -> None:
    small = _table_of(_column_of("crps_y"), Cell("crps_y", SE, 9.347e-6, 1.23e-7, 3))
    assert r"9.35$\times 10^{-6}$ $\pm$ 1.2$\times 10^{-7}$" in render.render([small], "tex")


# --- formats


def test_markdown_has_bold_marks_and_numbered_footnotes() -> None:
    text = render.render(tables.build(stored_rows(), "published"), "md")
    assert "| Boston | 506 | published | **0.60 ± 0.11** | 2.43 ± 0.15 |" in text
    assert "-1.68 ± 0.20**<sup>" in text
    assert "\n1. " in text
    assert text.count("### Table") == 5


def test_csv_is_tidy_and_names_units() -> None:
    built = tables.build(stored_rows(), "published")
    lines = list(csv.DictReader(io.StringIO(render.render(built, "csv"))))
    assert len(lines) == sum(len(item.rows) * len(item.columns) for item in built)
    wine = next(
        line
        for line in lines
        if (line["table"], line["dataset"], line["column"]) == ("nll", "wine", "NGBoost (quoted)")
    )
    assert (wine["metric"], wine["mean"], wine["spread_kind"]) == ("nll_z", "4.96", "as printed")
    ours = next(line for line in lines if line["dataset"] == "boston" and line["values"] == "reproduced")
    assert float(ours["mean"]) == pytest.approx(published.notebook("full", "boston").mean("nll_z"))


def test_latex_is_booktabs_and_escaped() -> None:
    text = render.render(tables.build(stored_rows(), "corrected"), "tex")
    assert text.count("\\toprule") == text.count("\\bottomrule") == 5
    assert "\\textbf{2.43 $\\pm$ 0.15}" in text
    assert "nll\\_y" in text
    assert "±" not in text
    assert "14\\% more rows" in text
    assert text.count("{") == text.count("}")


@pytest.mark.parametrize("form", tables.FORMS)
@pytest.mark.parametrize("width", [80, 120])
def test_terminal_tables_fit_and_cut_nothing(form: str, width: int) -> None:
    protocol = "published" if form == "published" else "clean"
    text = render.render(tables.build(stored_rows(protocol), form), "rich", width=width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for word in ("DistForest", "ensembles", "11934", "Concrete"):
        assert word in text


def test_unknown_format_is_refused() -> None:
    with pytest.raises(ValueError, match="format must be one of rich, md, csv, tex; received 'html'"):
        render.render([], "html")


def test_a_format_is_offered_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tables", "format=html"]) == 2
    assert "format must be one of rich, md, csv, tex, received html" in capsys.readouterr().err


def test_reports_import_nothing_heavy() -> None:
    modules = sorted(path.stem for path in Path(render.__file__).parent.glob("*.py") if path.stem != "__init__")
    assert {"check", "comparison", "documents", "summary", "tables"} <= set(modules)
    heavy = ("torch", "numba", "hydra", "xgboost", "sklearn", "scipy", "matplotlib")
    code = f"""
import importlib, sys
for name in {modules}:
    importlib.import_module(f"anchormoe.report.{{name}}")
print([name for name in {heavy} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
