"""The table of steps, from rows made up so that every number in it is known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from anchormoe.commands.run import parse
from anchormoe.report import ingredients, published

VARIANT = {"energy": "heating", "naval": "compressor", "power": "sheet1"}


def made_up_rows(num_splits: dict[str, int]) -> pd.DataFrame:
    rows = []
    for number, (step, (experiment, model)) in enumerate(ingredients.STEPS.items()):
        for dataset in published.DATASETS:
            for split in range(1, num_splits.get(step, 4) + 1):
                score = 10 - number + split
                row = {"experiment": experiment, "dataset": dataset, "split": split, "model": model, "status": "ok"}
                place = {"ablation": "full", "protocol": "clean", "seed": 1}
                rows.append(
                    {
                        **row,
                        **place,
                        "variant": VARIANT.get(dataset, "standard"),
                        **dict.fromkeys(("nll_y", "crps_y", "rmse_y"), float(score)),
                    }
                )
    return pd.DataFrame(rows)


def test_steps_stand_side_by_side_on_the_splits_they_share() -> None:
    nll, crps, rmse = ingredients.build(made_up_rows({"published recipe": 20, "+ a network in the anchor": 2}))
    assert [table.columns[0].metrics for table in (nll, crps, rmse)] == [("nll_y",), ("crps_y",), ("rmse_y",)]
    boston = nll.rows[0].cells
    assert [cell.mean for cell in boston] == [11.5, 10.5, 9.5, 8.5, 7.5, 6.5]  # splits 1 and 2
    assert [cell.num_splits for cell in boston] == [2] * 6
    assert boston[0].deviation == pytest.approx(np.std([11, 12], ddof=1) / np.sqrt(2))


def test_a_step_without_rows_is_missing_and_limits_nobody() -> None:
    cells = ingredients.build(made_up_rows({"+ out of fold, a network per fold": 0}))[0].rows[0].cells
    assert [cell.text for cell in cells][1] == "missing"
    assert cells[0].num_splits == 4


def test_other_runs_do_not_count() -> None:
    rows = made_up_rows({})
    for column, other in (("seed", 2), ("ablation", "no_cal"), ("protocol", "published"), ("status", "failed")):
        more = rows.assign(**{column: other}, nll_y=0.0)
        built = ingredients.build(pd.concat([more, rows], ignore_index=True))
        assert built[0].rows[0].cells[0].mean == 12.5


def test_rows_without_a_column_and_no_rows_at_all() -> None:
    assert ingredients.build(pd.DataFrame()) == []
    for column in ("variant", "experiment", "status", "split"):
        (cells,) = {row.cells for row in ingredients.build(made_up_rows({}).drop(columns=column))[0].rows}
        assert {cell.text for cell in cells} == {"missing"}


def test_every_step_can_be_run() -> None:
    """The experiment runs the steps that no other experiment runs."""
    jobs = parse(["experiment=ingredients", "dataset=yacht"])
    made = {("ingredients", job.model.name) for job in jobs}
    assert made == {step for step in ingredients.STEPS.values() if step[0] == "ingredients"}
    assert {job.experiment_name for job in jobs} == {"ingredients"}
    assert [job.calibration.value for job in jobs] == ["linear", "linear", "linear", "weighted"]
    assert [job.anchor.name for job in jobs] == ["trees", "trees", "stack_of_libraries", "stack_without_network"]
