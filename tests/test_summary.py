"""The summary of a run: means, standard errors and the published numbers of the same splits."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from synthetic_rows import stored_rows

from anchormoe.distributions import scores
from anchormoe.distributions.scores import Metric
from anchormoe.report import published, summary


def run_of(dataset: str, num_splits: int, **by: float) -> pd.DataFrame:
    rows = stored_rows()
    rows = rows[(rows["dataset"] == dataset) & (rows["ablation"] == "full") & (rows["split"] <= num_splits)].copy()
    rows["num_rows"] = published.paper_n("nll", dataset)
    for column, amount in by.items():
        rows[column] += amount
    return rows


def text_of(rows: pd.DataFrame, width: int = 120) -> str:
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(summary.of_rows(rows))
    return console.export_text()


def line_of(text: str, label: str) -> str:
    (line,) = [line for line in text.splitlines() if line.startswith(label)]
    return line


def test_all_splits_stand_beside_the_published_mean_and_standard_error() -> None:
    boston = published.notebook("full", "boston")
    text = text_of(run_of("boston", 20, rmse_y=boston.se("rmse")))
    assert "20 splits" in text
    assert "same" not in text
    assert f"{boston.mean('rmse'):.4f} ± {boston.se('rmse'):.4f}" in line_of(text, "RMSE (y)")
    assert line_of(text, "RMSE (y)").rstrip().endswith("+1.00 SE")


def test_of_a_part_of_the_splits_the_published_standard_error_is_over_the_same_part() -> None:
    theirs = np.array(published.notebook("full", "boston").nll_z[:5])
    se = theirs.std(ddof=1) / np.sqrt(5)
    text = text_of(run_of("boston", 5, nll_z=se / 2))
    assert "same 5 splits" in text
    line = line_of(text, "NLL (z)")
    assert f"{theirs.mean():.4f} ± {se:.4f}" in line
    assert line.rstrip().endswith("+0.50 SE")


def test_one_split_has_no_standard_error_and_is_in_the_singular() -> None:
    text = text_of(run_of("boston", 1, nll_z=0.25))
    assert "seed 1, 1 split" in text
    assert "splits" not in text
    line = line_of(text, "NLL (z)")
    assert "±" not in line
    assert line.rstrip().endswith("+0.2500")


@pytest.mark.parametrize(
    "change",
    [{"dataset": "houses"}, {"protocol": "clean"}, {"seed": 2}, {"num_rows": 99}, {"method": "mdn"}, {"ablation": "x"}],
)
def test_what_was_not_published_is_left_blank(change: dict[str, object]) -> None:
    text = text_of(run_of("boston", 3).assign(**change))
    assert line_of(text, "NLL (z)").count("±") == 1
    assert not line_of(text, "NLL (z)").rstrip().endswith("SE")


def test_a_metric_of_the_registry_is_in_the_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    metric = Metric("pinball_y", "Pinball loss", "Pinball", "y", True, lambda d, y, step: 0.0)
    monkeypatch.setitem(scores.METRICS, "pinball_y", metric)
    assert "Pinball" not in text_of(run_of("boston", 3)), "older rows do not have it"
    assert "0.7000 ± 0.0000" in line_of(text_of(run_of("boston", 3).assign(pinball_y=0.7)), "Pinball (y)")


def test_nothing_finished_and_rows_without_columns() -> None:
    assert "no split has finished" in text_of(pd.DataFrame())
    assert "no split has finished" in text_of(run_of("boston", 2).assign(status="failed"))
    text = text_of(run_of("boston", 2).drop(columns=["variant", "config_hash", "num_rows", "rmse_y"]))
    assert "boston, anchormoe full" in text
    assert "RMSE" not in text


def test_the_smallest_numbers_fit_a_terminal() -> None:
    text = text_of(run_of("naval", 5), width=80)
    assert "…" not in text
    assert "e-04 ± " in line_of(text, "RMSE (y)")
