"""The tables of rivals say what the rows say, on the datasets where every rival was run."""

from __future__ import annotations

import numpy as np
import pandas as pd

from anchormoe.report import published, rivals

VARIANT = {"energy": "heating", "naval": "compressor", "power": "sheet1"}


def rows_of(scores: dict[str, dict[str, float]], num_splits: int = 20) -> pd.DataFrame:
    """Make rows of methods whose scores are a constant and a little noise; `scores` is by method and dataset."""
    rng = np.random.default_rng(0)
    rows = []
    for method, by_dataset in scores.items():
        experiment = "crossfit" if method.startswith("anchormoe") else "rivals"
        for dataset, value in by_dataset.items():
            for split in range(1, num_splits + 1):
                score = value + 0.01 * rng.standard_normal()
                row = {"experiment": experiment, "dataset": dataset, "method": method, "split": split}
                row |= {"ablation": "full", "protocol": "clean", "anchor": "none", "seed": 1, "config_hash": method}
                row |= {
                    "variant": VARIANT.get(dataset, "standard"),
                    "status": "ok",
                    "num_rows": 100,
                    "coverage_90": 0.9,
                }
                names = ("crps_y", "nll_y", "nll_z", "nll_cell_y", "rmse_y")
                rows.append({**row, **dict.fromkeys(names, score)})
    return pd.DataFrame(rows)


BOTH = {
    "anchormoe_best": {"yacht": 1.0, "boston": 2.0},
    "anchormoe_fast": {"yacht": 1.1, "boston": 2.1},
    "stack_t": {"yacht": 0.5, "boston": 3.0},
    "catboost": {"yacht": 1.5, "boston": 3.5},
}


def test_a_rival_that_wins_is_said_to_win() -> None:
    lead = rivals.rivals_lead(rows_of(BOTH))
    assert "is better than Stack + t on 1 of 2 and worse on 1; than CatBoost + t on 2 of 2 and worse on none." in lead
    lines = rivals.rivals_crps(rows_of(BOTH)).splitlines()
    assert lines[0] == "| method | average rank on 2 | boston | yacht |"
    assert [line.split("|")[2].strip() for line in lines[2:]] == ["1.5", "2.5", "2.0", "4.0"]
    *_, on_boston, on_yacht, _ = next(line for line in lines if "Stack + t" in line).split("|")
    assert "**" in on_yacht
    assert "**" not in on_boston


def test_a_rival_is_judged_where_it_has_all_splits() -> None:
    rows = rows_of(BOTH)
    without = rows[~(rows["method"].eq("catboost") & rows["dataset"].eq("boston") & rows["split"].eq(7))]
    lines = rivals.rivals_crps(without).splitlines()
    assert lines[0] == "| method | average rank on 1 | boston | yacht |"
    assert [line.split("|")[2].strip() for line in lines[2:]] == ["2.0", "3.0", "1.0", "4.0"]
    assert "(19/20)" in next(line for line in lines if "CatBoost" in line)
    assert "than CatBoost + t on 1 of 1 and worse on none." in rivals.rivals_lead(without)


def test_a_rival_without_a_whole_dataset_is_left_out() -> None:
    rows = rows_of(BOTH)
    without = rows[~(rows["method"].eq("catboost") & rows["split"].eq(7))]
    assert "CatBoost" not in rivals.rivals_crps(without) + rivals.rivals_lead(without)
    assert "CatBoost" in rivals.rivals_crps(rows)


def test_rivals_without_a_dataset_in_common_have_no_rank() -> None:
    rows = rows_of(BOTH)
    lacking = rows["method"].eq("catboost") & rows["dataset"].eq("boston")
    lacking |= rows["method"].eq("stack_t") & rows["dataset"].eq("yacht")
    lines = rivals.rivals_crps(rows[~(lacking & rows["split"].eq(7))]).splitlines()
    assert lines[0] == "| method | average rank on 0 | boston | yacht |"
    assert [line.split("|")[2].strip() for line in lines[2:]] == ["–"] * 4


def test_seconds_are_those_of_the_rows() -> None:
    rows = rows_of(BOTH)
    rows["fit_seconds"] = 2.0 + rows["method"].eq("stack_t")
    lines = rivals.rivals_seconds(rows).splitlines()
    assert [line.split("|")[2].strip() for line in lines[2:]] == ["2.0", "2.0", "3.0", "2.0"]


def test_best_is_judged_by_the_methods_with_all_datasets() -> None:
    scores = {
        "anchormoe_best": dict.fromkeys(published.DATASETS, 1.0),
        "anchormoe_fast": dict.fromkeys(published.DATASETS, 0.5),  # another preset is no other method
        "ngboost": {name: 0.5 if name == "wine" else 2.0 for name in published.DATASETS},
        "mdn": dict.fromkeys(published.DATASETS, 2.0),
        "stack_t": {"yacht": 0.5},
    }
    rows = rows_of(scores)
    lead = rivals.best_lead(rows)
    assert "better than each of the 2 other methods with all splits on at least 8 of the 9 datasets" in lead
    assert lead.endswith("Better than it: NGBoost on wine.")
    assert rivals.best_lead(rows[rows["dataset"] != "boston"]).endswith("has not all splits of all datasets yet.")


def test_without_rivals_nothing_is_claimed() -> None:
    rows = rows_of({name: BOTH[name] for name in ("anchormoe_best", "anchormoe_fast")})
    assert rivals.rivals_lead(rows) == rivals.rivals_nll(rows) == rivals.rivals_seconds(rows)
    assert rivals.rivals_lead(rows) == "No dataset has all splits of all rivals yet."
    assert rivals.build(rows) == []
