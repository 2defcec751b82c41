"""The check against the notebooks finds what is off or missing, and nothing else."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from synthetic_rows import stored_rows

from anchormoe.report import check as checking
from anchormoe.report import published
from anchormoe.report.check import EXCEPTION, MISSING, OFF, PASS, CellResult, CheckReport, check


@pytest.fixture
def rows() -> pd.DataFrame:
    """The notebooks' values with a little noise, and the cells named as exceptions clearly off."""
    rows = stored_rows()
    noise = np.random.default_rng(0).normal(scale=2e-5, size=len(rows))
    rows["rmse_y"] += noise
    rows["nll_z"] += noise
    for dataset, ablation, metric in checking.exceptions():
        column = "rmse_y" if metric == "rmse" else metric
        rows = shifted(rows, dataset, ablation, **{column: 10 * published.notebook(ablation, dataset).se(metric)})
    return rows


def shifted(rows: pd.DataFrame, dataset: str, ablation: str, **by: float) -> pd.DataFrame:
    rows = rows.copy()
    for column, amount in by.items():
        rows.loc[(rows["dataset"] == dataset) & (rows["ablation"] == ablation), column] += amount
    return rows


def result(report: CheckReport, dataset: str, ablation: str, metric: str) -> CellResult:
    return next(c for c in report.cells if (c.dataset, c.ablation, c.metric) == (dataset, ablation, metric))


def test_faithful_rows_pass(rows: pd.DataFrame) -> None:
    report = check(rows)
    assert len(report.cells) == 72
    assert report.exit_code == 0
    excepted = len(checking.exceptions())
    assert excepted > 0
    assert (report.count(PASS), report.count(EXCEPTION)) == (72 - excepted, excepted)
    assert report.summary == f"check: 72 cells: {72 - excepted} pass, 0 off, 0 missing, {excepted} exception"


def test_three_standard_errors_are_found_one_is_not(rows: pd.DataFrame) -> None:
    se = published.notebook("no_router", "yacht").se("nll_z")
    report = check(shifted(rows, "yacht", "no_router", nll_z=3 * se))
    assert [(c.dataset, c.ablation, c.metric) for c in report.problems] == [("yacht", "no_router", "nll_z")]
    off = report.problems[0]
    assert off.verdict == OFF
    assert off.difference_in_ses == pytest.approx(3, abs=0.01)
    assert off.published_se == pytest.approx(0.0346, abs=6e-5)
    assert "must be within" in off.note
    assert report.exit_code == 1
    assert check(shifted(rows, "yacht", "no_router", nll_z=se)).exit_code == 0


def test_a_missing_split_is_found_and_named(rows: pd.DataFrame) -> None:
    gone = (rows["dataset"] == "power") & (rows["ablation"] == "no_cal") & rows["split"].isin([3, 4, 5, 9])
    report = check(rows[~gone])
    assert {(c.dataset, c.ablation, c.verdict) for c in report.problems} == {("power", "no_cal", MISSING)}
    assert report.problems[0].num_splits == 16
    assert "split 3-5, 9" in report.problems[0].note
    assert report.exit_code == 1


def test_a_failed_split_is_missing(rows: pd.DataFrame) -> None:
    rows.loc[(rows["dataset"] == "wine") & (rows["ablation"] == "full") & (rows["split"] == 1), "status"] = "failed"
    assert result(check(rows), "wine", "full", "rmse").verdict == MISSING


def test_nothing_stored_is_no_success() -> None:
    assert check(pd.DataFrame()).count(MISSING) == 72
    partial = check(pd.DataFrame(), require_all=False)
    assert partial.exit_code == 1
    assert "no row" in partial.summary


def test_a_missing_cell_is_not_excused_by_an_exception(rows: pd.DataFrame) -> None:
    report = check(rows[rows["dataset"] != "kin8nm"])
    assert result(report, "kin8nm", "no_anchor", "nll_z").verdict == MISSING


def test_partial_rows_are_compared_on_request(rows: pd.DataFrame) -> None:
    part = rows[(rows["dataset"] == "boston") & (rows["ablation"] == "full") & rows["split"].isin([2, 7, 11])]
    report = check(part, require_all=False)
    assert [(c.metric, c.num_splits, c.verdict) for c in report.cells] == [("rmse", 3, PASS), ("nll_z", 3, PASS)]
    assert report.exit_code == 0
    # Of three splits none may miss: at most a tenth does in the full set.
    one_off = part.copy()
    one_off.loc[one_off["split"] == 7, "rmse_y"] += 0.01
    assert result(check(one_off, require_all=False), "boston", "full", "rmse").verdict == OFF


def test_comparison_is_paired() -> None:
    """A part of the splits is compared with the same splits, not with the mean of all."""
    rows = stored_rows()
    best = np.argsort(published.notebook("full", "yacht").nll_z)[:5] + 1
    part = rows[(rows["dataset"] == "yacht") & (rows["ablation"] == "full") & rows["split"].isin(best)]
    cell = result(check(part, require_all=False), "yacht", "full", "nll_z")
    assert cell.difference == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(("num_off", "verdict"), [(2, PASS), (3, OFF)])
def test_per_split_rule(rows: pd.DataFrame, num_off: int, verdict: str) -> None:
    """0.02 in three splits is far below a standard error of the mean, yet boston comes out split by split."""
    rows.loc[(rows["dataset"] == "boston") & (rows["ablation"] == "full") & (rows["split"] <= num_off), "nll_z"] += 0.02
    assert result(check(rows), "boston", "full", "nll_z").verdict == verdict
    assert result(check(rows), "boston", "full", "rmse").verdict == PASS


def test_per_split_rule_is_for_its_anchor_and_datasets(rows: pd.DataFrame) -> None:
    moved = (rows["ablation"] == "full") & (rows["split"] <= 5)
    rows.loc[moved & rows["dataset"].isin(["boston", "yacht"]), "nll_z"] += 0.02
    rows.loc[rows["dataset"] == "boston", "anchor"] = "xgboost"
    report = check(rows)
    assert result(report, "boston", "full", "nll_z").verdict == PASS
    assert "anchor=xgboost" in result(report, "boston", "full", "nll_z").note
    assert result(report, "yacht", "full", "nll_z").verdict == PASS


def test_boston_stages_must_all_be_equal_and_epochs_nearly(rows: pd.DataFrame) -> None:
    boston = (rows["dataset"] == "boston") & (rows["ablation"] == "full")
    other_epochs = rows.copy()
    other_epochs.loc[boston & (rows["split"] <= 2), "epoch"] += 1
    assert check(other_epochs).exit_code == 0
    other_epochs.loc[boston & (rows["split"] <= 3), "epoch"] += 5
    assert "epoch" in result(check(other_epochs), "boston", "full", "rmse").note
    rows.loc[boston & (rows["split"] == 3), "anchor_stage"] += 1
    cell = result(check(rows), "boston", "full", "rmse")
    assert cell.verdict == OFF
    assert "19 of 20 splits with the notebook's stages, 20 required" in cell.note


def test_rounding_of_published_values_is_allowed_for() -> None:
    """Naval's RMSE is published as 0.0009 to 0.0011: what rounding does to their mean is no difference."""
    two_errors = 2 * published.notebook("no_cal", "naval").se("rmse")
    for beyond, verdict in ((1.2e-5, PASS), (1.5e-5, OFF)):
        moved = stored_rows()
        moved.loc[(moved["dataset"] == "naval") & (moved["ablation"] == "no_cal"), "rmse_y"] += two_errors + beyond
        assert result(check(moved), "naval", "no_cal", "rmse").verdict == verdict


def test_contradicted_cells_are_checked_against_the_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "exceptions", dict)  # the rule itself, whatever is excepted at the moment
    rows = stored_rows()
    cell = result(check(rows), "naval", "no_anchor", "nll_z")
    assert cell.verdict == PASS
    assert "-0.6096" in cell.note
    printed = published.paper_cell("ablation_nll", "naval", "no_anchor")
    assert printed is not None
    as_printed = shifted(rows, "naval", "no_anchor", nll_z=printed[0] + 0.6096)
    assert result(check(as_printed), "naval", "no_anchor", "nll_z").verdict == OFF


def test_an_exception_that_is_not_needed_is_reported() -> None:
    report = check(stored_rows())
    cell = result(report, "kin8nm", "no_anchor", "nll_z")
    assert cell.verdict == PASS
    assert cell.unneeded_exception
    assert f"{len(checking.exceptions())} unneeded" in report.summary
    assert report.exit_code == 0


def test_not_a_number_is_off(rows: pd.DataFrame) -> None:
    rows.loc[rows["dataset"] == "energy", "rmse_y"] = np.nan
    assert result(check(rows), "energy", "full", "rmse").verdict == OFF


def test_the_other_target_does_not_count(rows: pd.DataFrame) -> None:
    rows.loc[(rows["dataset"] == "energy") & (rows["ablation"] == "no_router"), "variant"] = "heating"
    assert result(check(rows), "energy", "no_router", "rmse").verdict == MISSING


def test_tolerances_name_every_dataset_with_a_reason() -> None:
    assert tuple(checking.tolerances()) == published.DATASETS
    assert all(rule.reason and rule.standard_errors == 2 for rule in checking.tolerances().values())


@pytest.mark.parametrize("width", [100, 120])
def test_report_lists_the_problems(rows: pd.DataFrame, width: int) -> None:
    report = check(shifted(rows, "yacht", "full", rmse_y=1))
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(checking.to_rich(report, problems_only=True))
    text = console.export_text()
    assert "…" not in text
    assert report.summary in text
    listed = [line.split()[:3] for line in text.splitlines() if line.startswith(published.DATASETS)]
    assert listed == [*map(list, checking.exceptions()), ["yacht", "full", "rmse"]]
