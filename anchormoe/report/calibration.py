"""Tables of the calibrations: coverage at every level, width, scores, and coverage of parts of the test rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd

from anchormoe.report import cells, published
from anchormoe.report.comparison import heading
from anchormoe.report.grid import MISSING, NOT_AVAILABLE, SE, Cell, Column, Row, Table

LEVELS = ("50", "80", "90", "95", "99")
# (method, calibration) -> heading, in the order of the tables; other methods follow under their own names.
LINES = {
    ("anchormoe_fast", "none"): "none",
    ("anchormoe_fast", "linear"): "linear",
    ("anchormoe_fast", "weighted"): "weighted (default)",
    ("anchormoe_fast+pit", "pit"): "pit",
    ("anchormoe_fast+conformal", "conformal"): "conformal",
    ("mapie_cross", "none"): "MAPIE, CV+",
    ("mapie_split", "none"): "MAPIE, split",
}
Value = Callable[[dict[str, Any]], float | None]


def build(rows: pd.DataFrame, *, seed: int = 1) -> list[Table]:
    """Make the tables from rows of the experiment `calibration`; none if there are none."""
    good = cells.finished(rows)
    if "intervals" not in good:
        return []
    good = good[(good["protocol"] == "clean") & (good["seed"] == seed) & good["intervals"].notna()]
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    records: list[dict[str, Any]] = good.to_dict("records")  # type: ignore[assignment]
    for row in records:
        line = LINES.get((row["method"], row["calibration"]), heading(str(row["method"])))
        found.setdefault((row["dataset"], line), []).append(row)
    if not found:
        return []
    order = [*LINES.values(), *sorted({line for _, line in found} - set(LINES.values()))]
    lines = {
        (dataset, line): found[dataset, line]
        for dataset in published.DATASETS
        for line in order
        if (dataset, line) in found
    }
    return [_table(*table, lines, seed) for table in (_coverage(), _scores(), _conditional())]


def _coverage() -> tuple[str, str, list[tuple[str, str, int, Value]]]:
    columns = [(f"{level}%", f"coverage_{level}", 3, _of_level(level, "coverage")) for level in LEVELS]
    return "calibration_coverage", "Coverage of central intervals", columns


def _scores() -> tuple[str, str, list[tuple[str, str, int, Value]]]:
    columns = [(f"Width {level}%", f"width_{level}_y", 3, _of_level(level, "width")) for level in LEVELS]
    columns += [("Interval score 90%", "interval_score_90_y", 3, _of_level("90", "score"))]
    columns += [("NLL", "nll_y", 3, _of_density("nll_y")), ("CRPS", "crps_y", 3, _of_density("crps_y"))]
    return "calibration_scores", "Width and scores", columns


def _conditional() -> tuple[str, str, list[tuple[str, str, int, Value]]]:
    columns: list[tuple[str, str, int, Value]] = [
        ("Worst slab", "slab_coverage_90", 3, lambda row: row["intervals"].get("worst_slab"))
    ]
    for number in (1, 2, 5, 9, 10):
        columns.append((f"Decile {number}", "decile_coverage_90", 3, _of_decile(number - 1)))
    return "calibration_conditional", "Coverage of 90% intervals in parts of the test rows", columns


def _of_level(level: str, name: str) -> Value:
    return lambda row: row["intervals"].get(level, {}).get(name)


def _of_density(name: str) -> Value:
    """Return the function that takes a score of the whole density, which MAPIE's intervals do not have."""
    return lambda row: None if row["method"].startswith("mapie") else row[name]


def _of_decile(number: int) -> Value:
    def share(row: dict[str, Any]) -> float | None:
        covered, rows = row["intervals"].get("deciles", [[0, 0]] * 10)[number]
        return covered / rows if rows else None

    return share


def _table(
    key: str,
    title: str,
    columns: list[tuple[str, str, int, Value]],
    lines: dict[tuple[str, str], list[dict[str, Any]]],
    seed: int,
) -> Table:
    most = max(map(len, lines.values()))
    body = []
    for (dataset, line), rows in lines.items():
        values = tuple(
            _cell(metric, decimals, [function(row) for row in rows], most) for _, metric, decimals, function in columns
        )
        body.append(Row(dataset, int(rows[0]["num_rows"]), line, values))
    heads = tuple(Column(name, (metric,), SE) for name, metric, _, _ in columns)
    notes = [f"protocol=clean, seed {seed}: mean ± SE over {most} splits; Anchor-MoE, fast, where no other is named."]
    if key == "calibration_coverage":
        notes.append(_agreement(lines))
    if key == "calibration_conditional":
        notes.append("Deciles are in the order of the interval's width: decile 1 has the narrowest intervals.")
    return Table(key, "calibration", title, tuple(notes), heads, tuple(body), ())


def _agreement(lines: dict[tuple[str, str], list[dict[str, Any]]]) -> str:
    """Say for every calibration in how many cells the coverage is within two standard errors of nominal, or above."""
    parts = []
    for line in dict.fromkeys(line for _, line in lines):
        within = above = total = 0
        for (_, name), rows in lines.items():
            for level in LEVELS if name == line else ():
                summary = cells.summarise(_numbers(_of_level(level, "coverage")(row) for row in rows))
                if summary is None or summary.se is None:
                    continue
                distance = summary.mean - float(level) / 100
                total += 1
                within += abs(distance) <= 2 * summary.se
                above += distance > 2 * summary.se
        if total:
            parts.append(f"{line} {within} within, {above} above of {total}")
    return f"Cells within two standard errors of the nominal coverage, and above: {'; '.join(parts)}."


def _numbers(values: Iterable[float | None]) -> list[float]:
    return [float(value) for value in values if value is not None and not np.isnan(value)]


def _cell(metric: str, decimals: int, values: list[float | None], planned: int) -> Cell:
    summary = cells.summarise(_numbers(values))
    if summary is None:
        return Cell(absent=NOT_AVAILABLE if values else MISSING)
    return Cell(metric, SE, summary.mean, summary.se, decimals, num_splits=summary.num_splits, planned_splits=planned)
