"""Tables of several targets: the scores of all together, those of each by itself, and differences split by split."""

from __future__ import annotations

import dataclasses

import pandas as pd

from anchormoe.distributions.joint_scores import JOINT_METRICS
from anchormoe.distributions.scores import METRICS
from anchormoe.report.cells import finished
from anchormoe.report.comparison import Comparison, metric_table, paired_table
from anchormoe.report.grid import Table

FORM = "several_targets"


def build(rows: pd.DataFrame) -> list[Table]:
    """Make the tables from rows of several targets; none if there are none."""
    tables = []
    for compared, metrics in (
        (together(rows), list(JOINT_METRICS.values())),
        (alone(rows), [METRICS["crps_y"], METRICS["rmse_y"]]),
    ):
        tables += [metric_table(metric, compared) for metric in metrics]
        tables += [paired_table(metric, compared) for metric in metrics if len(compared.methods) > 1]
    return [
        dataclasses.replace(table, key=table.key.replace("comparison", FORM), form=FORM)
        for table in tables
        if table.columns and table.rows
    ]


def together(rows: pd.DataFrame) -> Comparison:
    """Compare the methods by the scores of all targets together."""
    good = finished(rows)
    return Comparison(good, datasets=[str(name) for name in good["dataset"].unique()])


def alone(rows: pd.DataFrame) -> Comparison:
    """Compare the methods by each target's own scores, as if `dataset: target` were a dataset."""
    records = [
        {**row, **scores, "dataset": f"{row['dataset']}: {target}"}
        for row in finished(rows).to_dict("records")
        for target, scores in row["targets"].items()
    ]
    return together(pd.DataFrame(records, columns=None if records else list(rows)))
