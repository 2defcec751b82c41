"""The check against the notebooks finds what is off or missing, and nothing else."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from synthetic_rows import stored_rows

from anchormoe.config.schema import TABLE_EXPERIMENTS
from anchormoe.paths import shipped
from anchormoe.report import check as checking
from anchormoe.report import check_rule, published
from anchormoe.report.check import EXCEPTION, MISSING, OFF, PASS, CellResult, CheckReport, check
from anchormoe.running.store import load_results

ROOT = Path(__file__).parent.parent
EXCEPTED = [("kin8nm", "no_anchor", "nll_z"), ("kin8nm", "no_anchor", "rmse")]


@pytest.fixture
def rows() -> pd.DataFrame:
    """Return the notebooks' values with a little noise."""
    rows = stored_rows()
    noise = np.random.default_rng(0).normal(scale=2e-5, size=len(rows))
    rows["rmse_y"] += noise
    rows["nll_z"] += noise
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
    assert [(c.dataset, c.ablation, c.metric) for c in report.cells if c.verdict == EXCEPTION] == EXCEPTED
    assert report.summary == "check: 72 cells: 70 pass, 0 off, 0 missing, 2 exception"


def test_the_committed_rows_pass() -> None:
    report = check(load_results(shipped("results"), TABLE_EXPERIMENTS))
    assert report.summary == "check: 72 cells: 70 pass, 0 off, 0 missing, 2 exception"
    assert report.exit_code == 0
    leaning = [cell for cell in report.cells if cell.verdict == PASS and cell.needs_a_look]
    assert [(c.dataset, c.ablation, c.metric) for c in leaning] == [
        ("naval", "no_anchor", "rmse"),
        ("protein", "no_anchor", "nll_z"),
    ]
    assert "not told from chance; the furthest splits: +1.8 on split 19 and +0.9 on split 13" in leaning[1].note


# --- the rule: simulated differences, in published standard deviations


def share_off(bias: float, scatter: float, *, runs: int = 4000, splits: int = 20) -> float:
    """Return how often a cell is off; the bias is in published standard errors, the scatter in standard deviations."""
    rng = np.random.default_rng(1)
    differences = bias / np.sqrt(20) + scatter * rng.standard_normal((runs, splits))
    return float(np.mean([check_rule.judge(run, 1 / np.sqrt(20)).exceeded is not None for run in differences]))


@pytest.mark.parametrize("scatter", [0.1, 0.25, 0.5, 1.0, 2.0, 3.0])
def test_a_cell_without_bias_is_off_once_in_a_hundred_runs_however_much_it_scatters(scatter: float) -> None:
    assert share_off(0, scatter) <= 0.013


@pytest.mark.parametrize(
    ("bias", "scatter", "at_least"),
    [(1, 0.1, 0.995), (1, 0.15, 0.98), (1, 0.2, 0.8), (1.5, 0.25, 0.95), (3, 0.5, 0.97), (4, 0.75, 0.97), (5, 1, 0.96)],
)
def test_a_bias_is_found_where_it_stands_out_from_the_scatter(bias: float, scatter: float, at_least: float) -> None:
    assert share_off(bias, scatter) >= at_least


def test_the_shares_in_the_documentation_are_those_of_the_rule() -> None:
    page = (ROOT / "docs" / "check.md").read_text()
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if "%" in line or "scatter 0.1" in line]
    head, *body = [[cell.removeprefix("scatter ").removesuffix("%") for cell in line] for line in lines]
    assert len(body) == 4
    for bias, *shares in body:
        for scatter, share in zip(head[1:], shares, strict=True):
            assert 100 * share_off(float(bias), float(scatter), runs=1000) == pytest.approx(float(share), abs=5)


@pytest.mark.parametrize("bias", [2.1, 2.5, 4, 11])
def test_beyond_two_standard_errors_a_cell_of_little_scatter_is_always_off(bias: float) -> None:
    assert share_off(bias, 0.02) == 1
    assert share_off(-bias, 0.2) == 1


def test_a_difference_below_half_a_standard_error_is_never_off() -> None:
    assert check_rule.judge(np.full(20, 0.49 / np.sqrt(20)), 1 / np.sqrt(20)).exceeded is None
    assert check_rule.judge(np.full(20, 0.51 / np.sqrt(20)), 1 / np.sqrt(20)).exceeded is not None


def test_one_broken_split_is_off_although_no_test_sees_it() -> None:
    differences = np.zeros(20)
    differences[3] = 60.0  # in standard deviations: the mean is off by 13 standard errors
    judgement = check_rule.judge(differences, 1 / np.sqrt(20))
    assert judgement.p_value == pytest.approx(0.33, abs=0.01)
    assert judgement.exceeded == check_rule.bias_rule().limits[-1]


def test_a_cell_that_missed_by_a_hair_in_a_run_from_nothing_passes() -> None:
    """The difference is 2.1 published standard errors, and its mean is itself uncertain by one."""
    differences = np.random.default_rng(3).standard_normal(20)
    differences += 2.1 / np.sqrt(20) - differences.mean()
    judgement = check_rule.judge(differences, 1 / np.sqrt(20))
    assert judgement.in_ses == pytest.approx(2.1)
    assert judgement.exceeded is None
    assert judgement.within_scatter


def test_few_splits_are_judged_by_their_size_alone() -> None:
    for num_splits in (1, 4):
        se = 1 / np.sqrt(num_splits)  # standard error of a mean over these splits
        for size, off in ((1.9, False), (2.1, True)):
            judgement = check_rule.judge(np.full(num_splits, size * se) + 1.3e-5, 1 / np.sqrt(20))
            assert (judgement.exceeded is not None) == off
            assert judgement.p_value is None
    assert check_rule.judge(np.full(1, 0.1), 1.0).scatter is None


def test_the_rule_in_words_is_the_rule_in_numbers() -> None:
    words = " ".join(str(check_rule.__doc__).split())
    small, large, huge = check_rule.bias_rule().limits
    assert f"more than {small.standard_errors:g} published standard errors, with p <= {small.p_value:g}, or" in words
    assert f"more than {large.standard_errors:g} published standard errors, with p <= {large.p_value:g}, or" in words
    assert f"more than {huge.standard_errors:g} published standard errors, whatever its p-value" in words
    assert huge.p_value == 1
    assert check_rule.bias_rule().standard_errors_untested == large.standard_errors


# --- rows


def test_two_standard_errors_are_found_and_a_small_difference_is_not(rows: pd.DataFrame) -> None:
    se = published.notebook("no_router", "yacht").se("nll_z")
    report = check(shifted(rows, "yacht", "no_router", nll_z=1.1 * se))
    assert [(c.dataset, c.ablation, c.metric) for c in report.problems] == [("yacht", "no_router", "nll_z")]
    off = report.problems[0]
    assert off.verdict == OFF
    assert off.judgement is not None
    assert off.judgement.in_ses == pytest.approx(1.1, abs=0.01)
    assert off.judgement.published_se == pytest.approx(0.0346, abs=6e-5)
    assert "the mean difference is +1.10 ± 0.00 published standard errors" in off.note
    assert "more than 0.5 with p <= 0.001 is off" in off.note
    assert report.exit_code == 1
    assert check(shifted(rows, "yacht", "no_router", nll_z=0.4 * se)).exit_code == 0


def test_reruns_that_scatter_like_the_notebooks_seldom_fail() -> None:
    """Every cell gets differences of the published standard deviation without bias, as if it had been run again."""
    rng, off = np.random.default_rng(0), 0
    base = stored_rows(anchor="trees", epoch=None)  # the rule for single splits is for gbdt
    for _ in range(20):
        rows = base.copy()
        for column, name in (("rmse_y", "rmse"), ("nll_z", "nll_z")):
            sd = {
                (ablation, dataset): np.std(published.notebook(ablation, dataset).values(name), ddof=1)
                for ablation in published.ABLATIONS
                for dataset in published.DATASETS
            }
            scale = [sd[place] for place in zip(rows["ablation"], rows["dataset"], strict=True)]
            rows[column] += rng.standard_normal(len(rows)) * scale
        off += check(rows).count(OFF)
    assert off <= 0.015 * 20 * 72


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


@pytest.mark.parametrize("rows", [pd.DataFrame(), load_results(Path("no such folder")), pd.DataFrame({"nll_z": [1.0]})])
def test_nothing_stored_is_no_success(rows: pd.DataFrame) -> None:
    report = check(rows)
    assert report.count(MISSING) == 72
    assert report.exit_code == 1
    assert check(rows, require_all=False).exit_code == 1
    assert (
        shown(report, width=80)
        == "check: no finished row of protocol=published is stored, so there is nothing to compare"
    )


@pytest.mark.parametrize("column", ["variant", "config_hash", "anchor", "rmse_y", "anchor_stage", "status", "split"])
def test_rows_without_a_column_do_not_break_the_check(rows: pd.DataFrame, column: str) -> None:
    report = check(rows.drop(columns=column))
    expected = {"config_hash": 0, "anchor_stage": 6, "rmse_y": 36}.get(column, 72)
    assert report.count(MISSING) + report.count(OFF) == expected


def test_a_missing_cell_is_not_excused_by_an_exception(rows: pd.DataFrame) -> None:
    report = check(rows[rows["dataset"] != "kin8nm"])
    assert result(report, "kin8nm", "no_anchor", "nll_z").verdict == MISSING


def test_partial_rows_are_compared_on_request(rows: pd.DataFrame) -> None:
    part = rows[(rows["dataset"] == "boston") & (rows["ablation"] == "full") & rows["split"].isin([2, 7, 11])]
    report = check(part, require_all=False)
    assert [(c.metric, c.num_splits, c.verdict) for c in report.cells] == [("nll_z", 3, PASS), ("rmse", 3, PASS)]
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
    assert cell.judgement is not None
    assert cell.judgement.mean == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(("num_off", "verdict"), [(2, PASS), (3, OFF)])
def test_per_split_rule(rows: pd.DataFrame, num_off: int, verdict: str) -> None:
    """A difference of 0.02 in three splits is far below a standard error, but Boston must agree split by split."""
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
    """Naval's RMSE is published as 0.0009 to 0.0011, so the effect of rounding on the mean is not a difference."""
    half_an_error = 0.5 * published.notebook("no_cal", "naval").se("rmse")
    for beyond, verdict in ((1.2e-5, PASS), (1.5e-5, OFF)):
        moved = stored_rows()
        moved.loc[(moved["dataset"] == "naval") & (moved["ablation"] == "no_cal"), "rmse_y"] += half_an_error + beyond
        assert result(check(moved), "naval", "no_cal", "rmse").verdict == verdict


def test_contradicted_cells_are_checked_against_the_notebook() -> None:
    rows = stored_rows()
    cell = result(check(rows), "naval", "no_anchor", "nll_z")
    assert cell.verdict == PASS
    assert "-0.6096" in cell.note
    printed = published.paper_cell("ablation_nll", "naval", "no_anchor")
    assert printed is not None
    as_printed = shifted(rows, "naval", "no_anchor", nll_z=printed[0] + 0.6096)
    assert result(check(as_printed), "naval", "no_anchor", "nll_z").verdict == OFF


def test_an_excepted_run_is_shown_but_not_judged(rows: pd.DataFrame) -> None:
    """The notebook's data of this run are not public: whatever ours gives, there are no pairs."""
    for by in (0, 5):
        cell = result(check(shifted(rows, "kin8nm", "no_anchor", nll_z=by)), "kin8nm", "no_anchor", "nll_z")
        assert cell.verdict == EXCEPTION
        assert cell.judgement is not None
        assert cell.judgement.mean == pytest.approx(by, abs=1e-4)
        assert "8785 rows" in cell.note


def test_only_a_run_on_other_data_is_excepted() -> None:
    """An exception waives the rule, so each one must be a known fact about the data of the published run."""
    assert list(check_rule.exceptions()) == [("kin8nm", "no_anchor")]
    for dataset, ablation in check_rule.exceptions():
        known = [entry for entry in published.discrepancies() if entry.dataset == dataset and ablation in entry.columns]
        assert any("the run cannot be repeated exactly" in entry.text for entry in known)


def test_not_a_number_is_off(rows: pd.DataFrame) -> None:
    rows.loc[rows["dataset"] == "energy", "rmse_y"] = np.nan
    assert result(check(rows), "energy", "full", "rmse").verdict == OFF


def test_the_other_target_does_not_count(rows: pd.DataFrame) -> None:
    rows.loc[(rows["dataset"] == "energy") & (rows["ablation"] == "no_router"), "variant"] = "heating"
    assert result(check(rows), "energy", "no_router", "rmse").verdict == MISSING


def test_tolerances_name_every_dataset_with_a_reason() -> None:
    facts = json.loads(shipped("benchmarks/tolerances.json").read_text())
    assert tuple(facts["datasets"]) == published.DATASETS
    assert all(entry["reason"] for entry in (*facts["datasets"].values(), facts["bias"], facts["rounding"]))
    assert sorted(check_rule.per_split_rules()) == ["boston", "concrete", "wine"]


def shown(report: CheckReport, *, width: int) -> str:
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(checking.to_rich(report, problems_only=True), soft_wrap=report.nothing_stored)
    return console.export_text().strip()


@pytest.mark.parametrize("width", [80, 120])
def test_report_lists_the_problems(rows: pd.DataFrame, width: int) -> None:
    report = check(shifted(rows, "yacht", "full", rmse_y=1))
    text = shown(report, width=width)
    assert "…" not in text
    assert report.summary in text
    listed = [tuple(line.split()[:3]) for line in text.splitlines() if line.startswith(published.DATASETS)]
    assert listed == [*EXCEPTED, ("yacht", "full", "rmse")]
