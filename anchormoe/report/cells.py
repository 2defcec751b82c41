"""From stored rows to the values of one table cell: which rows belong to it, and their mean and spread."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from anchormoe.report.published import NUM_SPLITS

# A cell never mixes anchors. The published runs used scikit-learn's boosting; others stand in where that was not run.
# The stack is the cross-fitted recipe's own.
ANCHOR_PREFERENCE = ("stack", "gbdt", "trees", "xgboost", "none")

# Target and feature set behind a cell, for the datasets that have several. Rows of another target are another quantity.
_PUBLISHED_VARIANTS = {
    ("energy", "full"): "heating",
    ("energy", "no_anchor"): "heating",
    ("energy", "no_router"): "cooling",
    ("energy", "no_cal"): "cooling",
    ("naval", "full"): "compressor",
    ("naval", "no_anchor"): "compressor",
    ("naval", "no_router"): "turbine_with_compressor",
    ("naval", "no_cal"): "turbine_with_compressor",
}
_CLEAN_VARIANTS = {"energy": "heating", "naval": "compressor"}
_ONE_VARIANT = {"power": "sheet1"}

_NEEDED = ("dataset", "method", "ablation", "protocol", "anchor", "seed", "split", "variant", "config_hash", "status")


@dataclass(frozen=True)
class Run:
    """The rows of one configuration, indexed by split number."""

    anchor: str
    config_hash: str
    rows: pd.DataFrame
    num_candidates: int  # configurations that could have filled the cell, this one included


@dataclass(frozen=True)
class Summary:
    """Mean over splits, its standard error and the standard deviation (both None for a single split)."""

    mean: float
    se: float | None
    sd: float | None
    num_splits: int


def choose(
    rows: pd.DataFrame, *, dataset: str, ablation: str, protocol: str, seed: int = 1, method: str | None = None
) -> Run | None:
    """The rows that fill one cell, all of one anchor and one configuration; None if there are none.

    The method is the one behind the paper's cell unless another is named.
    Most finished splits come first, then the preferred anchor, then the configuration stored last.
    """
    if rows.empty:
        return None
    absent = [name for name in _NEEDED if name not in rows.columns]
    if absent:
        raise ValueError(f"rows need the columns {', '.join(_NEEDED)}; missing: {', '.join(absent)}")
    measured_method, variant = measured(dataset, ablation, protocol)
    chosen = rows[
        (rows["status"] == "ok")
        & (rows["dataset"] == dataset)
        & (rows["ablation"] == ablation)
        & (rows["protocol"] == protocol)
        & (rows["method"] == (method or measured_method))
        & (rows["seed"] == seed)
        & rows["split"].between(1, NUM_SPLITS)
        & rows["anchor"].isin(ANCHOR_PREFERENCE)
    ]
    if variant is not None:
        chosen = chosen[chosen["variant"] == variant]
    if chosen.empty:
        return None
    groups = [
        (str(anchor), str(config_hash), group)
        for (anchor, config_hash), group in chosen.groupby(["anchor", "config_hash"], sort=False)
    ]
    position = pd.Series(range(len(rows)), index=rows.index)
    anchor, config_hash, group = min(
        groups,
        key=lambda item: (-len(item[2]), ANCHOR_PREFERENCE.index(item[0]), -int(position[item[2].index].max())),
    )
    by_split = group.set_index("split").sort_index()
    if not by_split.index.is_unique:
        twice = sorted({int(split) for split in by_split.index[by_split.index.duplicated()]})
        raise ValueError(
            f"each split must be stored once, but {dataset} {ablation} protocol={protocol} config {config_hash} has "
            f"several rows for split {', '.join(map(str, twice))}; deduplicate the rows first"
        )
    return Run(anchor, config_hash, by_split, len(groups))


def measured(dataset: str, ablation: str, protocol: str) -> tuple[str, str | None]:
    """The method and the variant (None: the dataset has one that counts) behind a cell."""
    method = "rff_krr" if (protocol, dataset, ablation) == ("published", "kin8nm", "full") else "anchormoe"
    if protocol == "published":
        return method, _PUBLISHED_VARIANTS.get((dataset, ablation), _ONE_VARIANT.get(dataset))
    return method, _CLEAN_VARIANTS.get(dataset, _ONE_VARIANT.get(dataset))


def summarise(values: Iterable[float]) -> Summary:
    numbers = np.asarray(list(values), dtype=float)
    if numbers.size == 0:
        raise ValueError("a summary needs at least one value, received none")
    if numbers.size == 1:
        return Summary(float(numbers[0]), None, None, 1)
    sd = float(np.std(numbers, ddof=1))
    return Summary(float(np.mean(numbers)), sd / math.sqrt(numbers.size), sd, numbers.size)
