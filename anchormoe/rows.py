"""What a row is: one measurement of one split, and what identifies it."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]

# What makes two rows the same measurement. The config hash tells apart runs whose settings differ in any other way.
IDENTITY = ("dataset", "method", "ablation", "protocol", "anchor", "seed", "split", "config_hash")


def identity(row: Row) -> tuple[Any, ...]:
    """Return what makes a row the measurement it is."""
    return tuple(row[name] for name in IDENTITY)


def good(row: Row) -> bool:
    """Tell whether a row holds a finished measurement."""
    return row["status"] == "ok"
