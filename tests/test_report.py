"""The report: what it says is what the rows give, it is whole in one file, and names in it are text."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shlex
from pathlib import Path

import pandas as pd
import pytest
from report_rows import HOSTILE, METHODS, own_rows

from anchormoe.cli import main
from anchormoe.commands.run import parse
from anchormoe.errors import UserError
from anchormoe.paths import shipped
from anchormoe.report import answers, audit, published
from anchormoe.report.html import page, payload
from anchormoe.report.ranking import rank_methods
from anchormoe.report.selection import Selection, select
from anchormoe.rows import Row
from anchormoe.running.identity import row_identity
from anchormoe.running.rerun import rerun_command
from anchormoe.running.store import load_results


@pytest.fixture(scope="module")
def selection() -> Selection:
    return select(load_results(shipped("results")))


def unpacked(text: str, name: str) -> dict:
    (packed,) = re.findall(rf'<script type="text/plain" id="{name}">([A-Za-z0-9+/=]*)</script>', text)
    return json.loads(gzip.decompress(base64.b64decode(packed)))


# One row of every kind of stored run; the identity tests compose all of them.
KINDS = [
    ("split_by_split", "boston", "no_anchor", "published", 1),
    ("tables", "kin8nm", "full", "published", 1),
    ("tables", "energy", "no_cal", "published", 1),
    ("corrected", "protein", "no_router", "clean", 1),
    ("comparison", "wine", "full", "clean", 1),
    ("crossfit", "yacht", "full", "clean", 2),
    ("ingredients", "naval", "full", "clean", 1),
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind[0]}-{kind[1]}")
def test_the_command_of_a_run_composes_to_its_hash(kind: tuple, selection: Selection) -> None:
    rows = selection.rows
    for name, value in zip(("experiment", "dataset", "ablation", "protocol", "seed"), kind, strict=True):
        rows = rows[rows[name] == value]
    row: Row = {
        key: None if value != value else value for key, value in rows.iloc[0].items() if not isinstance(value, list)
    }
    command = rerun_command(row, [1, 2, 3, 7])
    assert command is not None
    program, *arguments = shlex.split(command)
    assert program == "anchormoe-bench"
    (job,) = parse(arguments)
    assert job.split_numbers() == [1, 2, 3, 7]
    labels = row_identity(job.config(), int(row["split"]))
    assert labels == {name: row[name] for name in labels}


def test_no_command_is_made_up_for_a_run_with_settings_of_its_own(selection: Selection) -> None:
    row = {"dataset": "boston", "method": "anchormoe", "ablation": "full", "protocol": "clean", "anchor": "trees"}
    row |= {"seed": 1, "split": 1, "model": "published"}
    assert rerun_command({**row, "config_hash": "0123456789abcdef"}, [1]) is None
    assert rerun_command({**row, "dataset": HOSTILE, "config_hash": "0"}, [1]) is None
    assert rerun_command({**row, "method": "no such, 'method'", "config_hash": "0"}, [1]) is None


def test_every_shipped_run_has_a_command(selection: Selection) -> None:
    runs = payload.build(selection, rerun_command)["runs"]
    assert [run for run in runs if run["command"] is None] == []
    assert sum(len(run["rows"]) for run in runs) == len(selection.rows)


def test_the_audit_has_every_finding_and_recomputes_most(selection: Selection) -> None:
    findings = audit.audit(selection.table_rows)
    assert [finding.id for finding in findings] == list(range(1, 36))
    recomputed = [finding for finding in findings if finding.confirmed is not None]
    assert len(recomputed) >= 26
    assert all(finding.confirmed for finding in recomputed)
    by_id = {finding.id: finding for finding in findings}
    assert "cooling load 20/20 (no_router)" in by_id[16].evidence
    assert "heating load 0/20 (no_cal)" in by_id[16].evidence
    assert "on 7 of 8 datasets, in original units on 2" in by_id[30].evidence


def test_evidence_follows_the_rows(selection: Selection) -> None:
    rows = selection.table_rows
    kernel_ridge = (rows["method"] == "rff_krr") & (rows["protocol"] == "published")
    changed = rows.assign(nll_z=rows["nll_z"].where(~kernel_ridge, rows["nll_z"] + 1))
    assert {finding.id: finding.confirmed for finding in audit.audit(changed)}[15] is False
    without = rows[~rows["method"].str.startswith("ngboost")]
    finding = {finding.id: finding for finding in audit.audit(without)}[29]
    assert (finding.evidence, finding.confirmed) == ("not recomputed: no rows of NGBoost", None)


def test_the_answers_are_the_numbers_of_the_check_and_the_ranks(selection: Selection) -> None:
    reproduces, does_not, first = answers.answers(selection)
    assert reproduces.text.startswith("70 of 72 published means agree with ours")
    assert "on 2 of 8 datasets, not 7" in does_not.text
    assert "removing the router on none" in does_not.text
    ranks = selection.compared.means("nll_y").rank(axis=1).mean().sort_values()
    assert f"number {list(ranks.index).index('anchormoe') + 1} of {len(ranks)} methods" in does_not.text
    assert first.text.startswith(f"Anchor-MoE, best has the best average rank of {len(ranks)} methods")


def test_own_rows_are_about_their_own_methods() -> None:
    chosen = select(own_rows())
    assert not chosen.paper
    assert chosen.compared.num_splits == 5
    best, sure, cost = answers.answers(chosen)
    assert best.text.startswith("mine.Best<img")
    assert "on 2 of 2 datasets" in sure.text
    assert "90% of the targets" in cost.text


def test_the_answer_of_one_dataset_is_the_one_of_the_ranking() -> None:
    rows = own_rows(datasets=("houses",))
    first, *_ = answers.answers(select(rows))
    assert first.text == rank_methods(rows, "houses").recommendation
    assert "CRPS 33." in first.text
    assert "below the next, ngboost, p < 0.001" in first.text


def test_own_rows_need_not_be_complete() -> None:
    rows = own_rows(datasets=("houses",))
    chosen = select(rows[(rows["method"] != "gamlss") | (rows["split"] < 3)])
    assert len(chosen.compared.means("nll_y").columns) == 3
    with pytest.raises(UserError, match="must have finished rows, received none"):
        select(rows.assign(status="failed"))


def test_names_are_text_in_the_page_and_data_are_whole() -> None:
    rows = own_rows()
    text = page.build(select(rows), rerun_command)
    outside = re.sub(r"<script>.*?</script>|<style>.*?</style>", "", text, flags=re.DOTALL)
    assert HOSTILE not in outside
    assert "<img" not in outside
    assert "mine.Best&lt;img" in outside
    assert "Every published number" not in text
    assert "The audit" not in text
    data = unpacked(text, "data")
    assert data["columns"]["nll_y"]["values"] == rows["nll_y"].tolist(), "at full precision"
    names = data["columns"]["method"]
    assert [names["names"][code] for code in names["codes"]] == rows["method"].tolist()
    assert len(data["runs"]) == len(METHODS) * 2
    assert set(unpacked(text, "pictures")) == {HOSTILE, "houses"}


def test_nothing_in_the_page_is_fetched() -> None:
    text = page.build(select(own_rows()), rerun_command)
    assert re.findall(r"(?:src|href)=[\"'](?!#|data:)[^\"']*", text) == []
    assert re.findall(r"url\((?!#)[^)]*\)|@import|fetch\(|XMLHttpRequest|import\(", text) == []
    assert "default-src &#x27;none&#x27;" in text


def test_published_values_stand_beside_their_runs(selection: Selection) -> None:
    data = payload.build(selection, lambda row, splits: None)
    entries = {(entry["dataset"], entry["method"], entry["ablation"]): entry for entry in data["published"]}
    assert len(entries) == 36 + 2, "nine datasets, four runs; two runs of NGBoost"
    assert tuple(entries["kin8nm", "rff_krr", "full"]["nll_z"]) == published.notebook("full", "kin8nm").nll_z
    assert len(data["check"]) == 72
    compared = {(cell["dataset"], cell["ablation"]): data["runs"][cell["run"]] for cell in data["check"]}
    assert all((run["dataset"], run["ablation"]) == key for key, run in compared.items())


def test_the_command_writes_a_report_of_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "rows" / "runs"
    folder.mkdir(parents=True)
    rows = own_rows(datasets=("houses",)).drop(columns="experiment")
    lines = [json.dumps({key: value for key, value in row.items()}) for row in rows.to_dict("records")]
    (folder / "houses.jsonl").write_text("\n".join(lines) + "\n")
    output = tmp_path / "new" / "mine.html"
    assert main(["report", f"results_dir={folder.parent}", f"output={output}"]) == 0
    assert output.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert [path.name for path in output.parent.iterdir()] == ["mine.html"]
    assert main(["report", f"results_dir={tmp_path / 'nowhere'}"]) == 2
    assert "results_dir must be a folder of stored rows" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main(["report", f"results_dir={tmp_path / 'empty'}"]) == 2
    assert "must have finished rows, received none" in capsys.readouterr().err


def test_missing_numbers_are_missing_in_the_columns() -> None:
    column = payload._column(pd.Series([1.5, None, float("nan"), float("inf")]))
    assert column == {"values": [1.5, None, None, None]}
    assert payload._column(pd.Series([1.0, None, 3.0])) == {"values": [1, None, 3]}
    assert payload._column(pd.Series(["b", "a", None, "b"])) == {"names": ["b", "a", None], "codes": [0, 1, 2, 0]}
