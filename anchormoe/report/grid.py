"""A table as data: columns that name their unit, cells that carry theirs.

Every column names its metric (the unit is part of the name) and what stands behind "±". Every cell names the same, and
a table with a cell that disagrees with its column is refused.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from anchormoe.config.schema import NUM_SPLITS
from anchormoe.report import numbers

SE = "SE"  # standard error of the mean over splits
SD = "SD"  # standard deviation over splits
AS_PRINTED = "as printed"  # quoted from elsewhere: the source does not say, or the paper mixes SE and SD

MISSING = "missing"
NOT_AVAILABLE = "–"


@dataclass(frozen=True)
class Column:
    """A column of one metric, or of the several that the paper itself prints in one column, declared as printed."""

    title: str
    metrics: tuple[str, ...]
    spread: str  # what stands behind ±; empty where nothing does
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
        """Return what the column shows, such as `nll_y ± SE`."""
        metrics = " or ".join(self.metrics)
        return f"{metrics} ± {self.spread}" if self.spread else metrics


@dataclass(frozen=True)
class Cell:
    """The value `mean ± deviation` of a metric, or the reason why there is no number."""

    metric: str | None = None
    spread: str | None = None
    mean: float | None = None
    deviation: float | None = None  # the number after ±
    decimals: int = 2  # shown at least; numbers.plus_minus says when there are more
    fixed: bool = False  # exactly these decimals: a quoted number is known no better than it was printed
    num_splits: int = NUM_SPLITS
    planned_splits: int = NUM_SPLITS  # where there are fewer, the text says so
    absent: str = MISSING
    ranked: bool = True  # False: incomplete, or measures something else than the rest of its row
    bold: bool = False
    marks: tuple[int, ...] = ()

    @functools.cached_property
    def text(self) -> str:
        """Return what the cell shows, in plain text."""
        if self.mean is None:
            return self.absent
        if self.fixed:
            number = numbers.fixed(self.mean, self.deviation, self.decimals)
        else:
            number = numbers.plus_minus(self.mean, self.deviation, least=self.decimals)
        complete = self.num_splits == self.planned_splits
        return number if complete else f"{number} ({self.num_splits}/{self.planned_splits})"


@dataclass(frozen=True)
class Row:
    """One line of values; every cell belongs to the column at the same position."""

    dataset: str
    n: int | None
    source: str  # whose values: published, reproduced, ...
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """A table with its notes. It checks that every cell has the unit and the spread of its column."""

    key: str
    form: str
    title: str
    notes: tuple[str, ...]  # units first
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    footnotes: tuple[str, ...]  # mark 1 first
    lines_are: str = ""  # if set, every column is shown as a line, and this is what the columns are

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.cells) != len(self.columns):
                raise ValueError(f"row {row.dataset!r} must have {len(self.columns)} cells, received {len(row.cells)}")
            for column, cell in zip(self.columns, row.cells, strict=True):
                if cell.mean is not None:
                    _require_same_measure(column, cell, row)


def with_best_bold(row: Sequence[Cell]) -> tuple[Cell, ...]:
    """Set the lowest ranked value in bold, ties included; nothing if all are equal or only one can be compared.

    Beside a number that is known to two decimals, a third decimal of another one decides nothing.
    """
    contenders = [(index, cell, cell.mean) for index, cell in enumerate(row) if cell.mean is not None and cell.ranked]
    known = [cell.decimals for _, cell, _ in contenders if cell.fixed]
    means = {index: round(mean, min(known)) if known else mean for index, _, mean in contenders}
    if len(set(means.values())) < 2:
        return tuple(row)
    best = min(means.values())
    return tuple(replace(cell, bold=means.get(index) == best) for index, cell in enumerate(row))


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
