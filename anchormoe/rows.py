"""Rows: the measurement of one split or of one simulation, and the columns that identify it."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]

# Rows that agree in these columns are the same measurement. The config hash tells runs with different settings apart.
IDENTITY = ("dataset", "method", "ablation", "protocol", "anchor", "seed", "split", "config_hash")

# Kinds of rows; one without the column `kind` is that of a split. A split of several targets is of another kind: its
# metrics are others, and tables of one target never see it.
SPLIT, SIMULATION, JOINT = "split", "simulation", "joint"

# The numbers that every finished row of a kind has: those of a split have had them since the first release.
ESSENTIAL = {SPLIT: ("rmse_y", "nll_y"), SIMULATION: ("replicates",), JOINT: ("nll_joint_y",)}


def identity(row: Row) -> tuple[Any, ...]:
    """Return the values of the columns that identify a row."""
    return tuple(row[name] for name in IDENTITY)


def kind(row: Row) -> str:
    """Return the kind of a row."""
    return row.get("kind", SPLIT)


def good(row: Row) -> bool:
    """Tell whether a row holds a finished measurement: `ok` alone, without its scores, is none."""
    return row["status"] == "ok" and all(
        isinstance(row.get(name), int | float) for name in ESSENTIAL.get(kind(row), ())
    )
