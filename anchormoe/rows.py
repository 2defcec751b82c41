"""Rows: the measurement of one split, and the columns that identify it."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]

# Rows that agree in these columns are the same measurement. The config hash tells runs with different settings apart.
IDENTITY = ("dataset", "method", "ablation", "protocol", "anchor", "seed", "split", "config_hash")

# The scores that every finished row has had since the first release.
ESSENTIAL_SCORES = ("rmse_y", "nll_y")


def identity(row: Row) -> tuple[Any, ...]:
    """Return the values of the columns that identify a row."""
    return tuple(row[name] for name in IDENTITY)


def good(row: Row) -> bool:
    """Tell whether a row holds a finished measurement: `ok` alone, without its scores, is none."""
    return row["status"] == "ok" and all(isinstance(row.get(name), int | float) for name in ESSENTIAL_SCORES)
