"""A table as data: columns that name their unit, cells that carry theirs.

Every column names its metric (the unit is part of the name) and what stands behind "±"; every cell carries the same,
and a table whose cell and column disagree is not made.
"""

from __future__ import annotations

from dataclasses import dataclass

from anchormoe.report.published import NUM_SPLITS

SE = "SE"  # standard error of the mean over splits
SD = "SD"  # standard deviation over splits
AS_PRINTED = "as printed"  # quoted from elsewhere: the source does not say, or the paper mixes SE and SD

MISSING = "missing"
NOT_AVAILABLE = "–"


@dataclass(frozen=True)
class Column:
    """One metric, or the several that the paper itself prints in one column, if declared as printed."""

    title: str
    metrics: tuple[str, ...]
    spread: str  # what stands behind ±; empty: nothing does
    as_printed: bool = False
    marks: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if len(self.metrics) != 1 and not self.as_printed:
            raise ValueError(
                f"column {self.title!r} must have one unit, received {', '.join(self.metrics) or 'none'}; "
                "convert the values or give each unit a column of its own"
            )

    @property
    def measure(self) -> str:
        metrics = " or ".join(self.metrics)
        return f"{metrics} ± {self.spread}" if self.spread else metrics


@dataclass(frozen=True)
class Cell:
    """mean ± spread of a metric, or the reason why there is no number."""

    metric: str | None = None
    spread: str | None = None
    mean: float | None = None
    deviation: float | None = None  # the number after ±
    decimals: int = 2  # shown
    known_decimals: int | None = None  # a quoted number is known no better than it was printed
    num_splits: int = NUM_SPLITS
    absent: str = MISSING
    ranked: bool = True  # False: incomplete, or measures something else than the rest of its row
    bold: bool = False
    marks: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        if self.mean is None:
            return self.absent
        number = f"{self.mean:.{self.decimals}f}"
        if self.deviation is not None:
            number += f" ± {self.deviation:.{self.decimals}f}"
        return number if self.num_splits == NUM_SPLITS else f"{number} ({self.num_splits}/{NUM_SPLITS})"


@dataclass(frozen=True)
class Row:
    dataset: str
    n: int | None
    source: str  # whose values: published, reproduced, ...
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    key: str
    form: str
    title: str
    notes: tuple[str, ...]  # units first
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    footnotes: tuple[str, ...]  # mark 1 first
    lines_are: str = ""  # what columns are, if each is shown as a line: for more, or longer, than fit side by side

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.cells) != len(self.columns):
                raise ValueError(f"row {row.dataset!r} must have {len(self.columns)} cells, received {len(row.cells)}")
            for column, cell in zip(self.columns, row.cells, strict=True):
                if cell.mean is not None:
                    _require_same_measure(column, cell, row)


def _require_same_measure(column: Column, cell: Cell, row: Row) -> None:
    where = f"the cell of {row.dataset} ({row.source})"
    if cell.metric not in column.metrics:
        raise ValueError(
            f"column {column.title!r} is in {' or '.join(column.metrics)}, but {where} is in {cell.metric}; "
            "convert it or give it a column of its own"
        )
    if cell.spread != column.spread:
        raise ValueError(
            f"column {column.title!r} prints ± {column.spread}, but {where} has {cell.spread}; "
            "convert it or give it a column of its own"
        )
