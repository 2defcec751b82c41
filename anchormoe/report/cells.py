"""The values of one table cell: which stored rows belong to it, and their mean and spread."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from anchormoe.config import protocols
from anchormoe.config.schema import NUM_SPLITS

SPLITS = range(1, NUM_SPLITS + 1)

# A cell never mixes anchors. The published runs used scikit-learn's boosting (gbdt); the others stand in where that was
# not run. The stacks are the anchors of the cross-fitted recipe and of its presets.
ANCHOR_PREFERENCE = ("stack", "stack_fast", "stack_best", "gbdt", "trees", "xgboost", "none")

_CELL = ("dataset", "ablation", "protocol", "method", "seed")
_CONFIGURATION = ("variant", "anchor", "config_hash")
_SPLIT = ("split", "status")
_COLUMNS = (*_CELL, *_CONFIGURATION, *_SPLIT, "experiment", "model")


@dataclass(frozen=True)
class Run:
    """The finished splits of one configuration."""

    method: str
    anchor: str
    config_hash: str
    splits: tuple[int, ...]  # ascending
    num_candidates: int  # configurations that could have filled the cell, this one included
    _rows: pd.DataFrame  # of all runs
    _positions: list[int]  # of this run's splits in them

    def __contains__(self, name: str) -> bool:
        return name in self._rows

    def column(self, name: str) -> np.ndarray:
        """Return what the rows hold under a name, in the order of the splits; None where they do not have it."""
        if name not in self._rows:
            return np.full(len(self.splits), None)
        return self._rows[name].to_numpy()[self._positions]

    def by_split(self) -> dict[int, dict[str, Any]]:
        """Return the rows by the number of their split."""
        records: list[Any] = self._rows.iloc[self._positions].to_dict("records")
        return dict(zip(self.splits, records, strict=True))

    def values(self, name: str) -> np.ndarray:
        """Return a column of numbers, with NaN wherever there is none."""
        return self.column(name).astype(float)


@dataclass(frozen=True)
class Summary:
    """Mean over splits, its standard error and the standard deviation (both None for a single split)."""

    mean: float
    se: float | None
    sd: float | None
    num_splits: int


def finished(rows: pd.DataFrame) -> pd.DataFrame:
    """Keep the finished rows. Columns that every row should have are added, empty, where they are missing."""
    complete = rows.assign(**{name: None for name in _COLUMNS if name not in rows})
    return complete[complete["status"] == "ok"]


class StoredRuns:
    """Finished rows, grouped once so that every cell of every table can be looked up quickly.

    Each measurement counts once: where two experiments hold the same one, the first. A row without what identifies it
    fills no cell.
    """

    def __init__(self, rows: pd.DataFrame) -> None:
        self.rows = rows
        # (dataset, ablation, protocol, method, seed) -> (variant, anchor, config_hash) -> split -> position
        self._groups: dict[tuple[Any, ...], dict[tuple[str, ...], dict[int, int]]] = {}
        nothing = [None] * len(rows)
        columns = [rows[name].tolist() if name in rows else nothing for name in (*_CELL, *_CONFIGURATION, *_SPLIT)]
        for position, (*values, split, status) in enumerate(zip(*columns, strict=True)):
            cell, configuration = tuple(values[: len(_CELL)]), tuple(map(str, values[len(_CELL) :]))
            if status == "ok" and split in SPLITS and configuration[1] in ANCHOR_PREFERENCE:
                self._groups.setdefault(cell, {}).setdefault(configuration, {}).setdefault(int(split), position)

    @property
    def methods(self) -> list[str]:
        """Return the methods that have rows, in order of appearance."""
        return list(dict.fromkeys(str(method) for _, _, _, method, _ in self._groups))

    def choose(
        self,
        *,
        dataset: str,
        ablation: str,
        protocol: str,
        seed: int = 1,
        method: str | None = None,
        variant: str | None = None,
    ) -> Run | None:
        """Return the rows that fill one cell, all of one anchor and one configuration; None if there are none.

        The method and the variant are those behind the paper's cell unless others are named. The configuration with
        most finished splits comes first, then the preferred anchor, then the one stored last.
        """
        behind, variant_behind = measured(dataset, ablation, protocol)
        method, wanted_variant = method or behind, variant or variant_behind
        configurations = self._groups.get((dataset, ablation, protocol, method, seed), {})
        candidates = [
            (-len(found), ANCHOR_PREFERENCE.index(anchor), -max(found.values()), anchor, config_hash, found)
            for (stored_variant, anchor, config_hash), found in configurations.items()
            if wanted_variant in (None, stored_variant)
        ]
        if not candidates:
            return None
        *_, anchor, config_hash, found = min(candidates)
        splits, positions = zip(*sorted(found.items()), strict=True)
        return Run(method, anchor, config_hash, splits, len(candidates), self.rows, list(positions))


def measured(dataset: str, ablation: str, protocol: str) -> tuple[str, str | None]:
    """Return the method and the variant behind a cell, as the protocol states them (None: any variant)."""
    return (
        protocols.method_behind(dataset, ablation, protocol),
        protocols.variant_behind(dataset, ablation, protocol),
    )


def summarise(values: Iterable[float]) -> Summary | None:
    """Return mean and spread of the values that are numbers, None if there are none."""
    numbers = [float(value) for value in values if value is not None and not math.isnan(value)]
    n = len(numbers)
    if n == 0:
        return None
    mean = math.fsum(numbers) / n
    if n == 1:
        return Summary(mean, None, None, 1)
    sd = math.sqrt(math.fsum((number - mean) ** 2 for number in numbers) / (n - 1))
    return Summary(mean, sd / math.sqrt(n), sd, n)
