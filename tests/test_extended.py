"""The answer about tables on which no setting was chosen is what the rows say, whatever they say."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from anchormoe.config.compose import suite_datasets
from anchormoe.config.schema import EXTENDED_EXPERIMENT
from anchormoe.report import documents, extended
from anchormoe.report.grid import SE

SUITE = suite_datasets("extended")


def made_up(crps: dict[str, float], *, datasets: list[str] = SUITE, num_splits: int = 20) -> pd.DataFrame:
    """Make rows of methods whose CRPS is a constant and a little noise, different on every split."""
    rng = np.random.default_rng(0)
    rows = []
    for dataset in datasets:
        for method, value in crps.items():
            for split in range(1, num_splits + 1):
                score = value + 0.01 * rng.standard_normal()
                row = {"experiment": EXTENDED_EXPERIMENT, "dataset": dataset, "method": method, "split": split}
                row |= {"ablation": "full", "protocol": "clean", "anchor": "none", "seed": 1, "config_hash": method}
                row |= {"variant": "standard", "status": "ok", "num_rows": 100, "coverage_90": 0.9}
                rows.append({**row, "crps_y": score, "nll_y": score, "nll_z": score, "rmse_y": score})
    return pd.DataFrame(rows)


def test_a_recipe_that_leads_is_said_to_lead() -> None:
    rows = made_up({"anchormoe_crossfit": 1.0, "mdn": 2.0, "gamlss": 3.0})
    assert extended.extended_lead(rows) == (
        "On the 10 tables, with 20 splits of each of the 3 methods, the cross-fitted recipe leads by the average rank "
        "of its CRPS, 1.0 (1 is best); the next is MDN with 2.0."
    )
    assert extended.extended_cells(rows) == (
        "Its mean CRPS is the lowest on 10 of these 10 tables. In paired tests on the same splits (p < 0.05, not "
        "adjusted) it is better than another method in 20 of 20 comparisons and worse in none."
    )


def test_a_recipe_that_does_not_lead_is_said_not_to() -> None:
    beaten = made_up({"anchormoe_crossfit": 2.0, "mdn": 1.0, "gamlss": 3.0}, datasets=SUITE[:-1])
    rows = pd.concat([beaten, made_up({"anchormoe_crossfit": 1.0, "mdn": 1.5, "gamlss": 0.5}, datasets=SUITE[-1:])])
    lead, cells = extended.extended_lead(rows), extended.extended_cells(rows)
    assert "the cross-fitted recipe does not lead: it is number 2 by the average rank of its CRPS, 2.0" in lead
    assert lead.endswith("; the best is MDN with 1.2.")
    assert cells.startswith("Its mean CRPS is the lowest on 0 of these 10 tables; elsewhere another method has it: ")
    assert "autoMPG6 (MDN)" in cells
    assert f"{SUITE[-1]} (GAMLSS)" in cells
    assert cells.endswith("better than another method in 10 of 20 comparisons and worse in 10.")


def test_ranks_rest_on_the_complete_tables_and_say_so() -> None:
    """One table lacks a method, another one has half of its splits; both are left out of the ranks."""
    full = made_up({"anchormoe_crossfit": 1.0, "mdn": 2.0, "gamlss": 3.0}, datasets=SUITE[:8])
    lacking = made_up({"anchormoe_crossfit": 9.0, "mdn": 2.0}, datasets=SUITE[8:9])
    half = made_up({"anchormoe_crossfit": 9.0, "mdn": 2.0, "gamlss": 3.0}, datasets=SUITE[9:], num_splits=10)
    rows = pd.concat([full, lacking, half], ignore_index=True)
    said = (
        f"On 8 of the 10 tables, those that have all 20 splits of all 3 methods so far (without {', '.join(SUITE[8:])})"
    )
    assert extended.extended_lead(rows).startswith(f"{said}, the cross-fitted recipe leads")
    assert "| Anchor-MoE, cross-fitted | 1.0 |" in extended.extended_ranks(rows)
    table = extended.extended_crps(rows)
    assert "(10/20)" in table.splitlines()[-1]
    assert "| – |" in table.splitlines()[-2]
    built = {table.key: table for table in extended.build(rows)}
    ranks = built["ranks_crps_y"]
    assert ranks.notes[0] == f"{said}."
    assert [row.dataset for row in ranks.rows] == [*SUITE[:8], "average"]
    values = built["comparison_crps_y"]
    assert [row.dataset for row in values.rows] == SUITE
    assert values.columns[0].spread == SE


@pytest.mark.parametrize("rows", [made_up({"mdn": 1.0}), made_up({"mdn": 1.0, "gamlss": 2.0}, num_splits=3)])
def test_nothing_is_said_before_a_table_is_complete(rows: pd.DataFrame) -> None:
    assert extended.extended_lead(rows) == extended.extended_cells(rows) == extended.NO_ROWS
    assert extended.build(rows)


def test_sentences_of_a_page_are_generated_and_wrapped() -> None:
    rows = made_up({"anchormoe_crossfit": 1.0, "mdn": 2.0, "gamlss": 3.0})
    page = documents.refresh("<!-- text: extended_lead -->\nold\n<!-- end -->", rows)
    first, *lines, last = page.splitlines()
    assert (first, last) == ("<!-- text: extended_lead -->", "<!-- end -->")
    assert " ".join(lines) == extended.extended_lead(rows)
    assert max(map(len, lines)) <= 140
