"""Dates as features: the parts of the calendar that vary in a column."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

PARTS = ("year", "month", "day", "weekday", "hour", "minute")


def calendar_parts(name: str, seconds: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the year, month, day, weekday, hour and minute of a column of dates, without those that never vary."""
    dates = pd.to_datetime(pd.Series(seconds), unit="s").dt
    for part in PARTS:
        values = getattr(dates, part).to_numpy(dtype=np.float64)
        if np.unique(values[~np.isnan(values)]).size > 1:
            yield f"{name} ({part})", values
