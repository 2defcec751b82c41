"""Preflight: what a table holds and what could mislead a comparison on it, found before anything is fitted."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from anchormoe.data.catalogue import DatasetInfo
from anchormoe.data.dataset import Dataset, load
from anchormoe.data.hazards import Hazards, find_hazards
from anchormoe.data.leaks import Leak, find_leaks, level_r2
from anchormoe.data.splits import NUM_SPLITS, OuterSplit, Scheme
from anchormoe.errors import UserError

_SPLITS_LOOKED_AT = 5
_FAR_OUT = 6.0  # robust standard deviations from the median
_MOST_DECIMALS = 6
_FEW_VALUES = 100
_HEAVY_SKEWNESS = 2.0
_MANY_OUTLIERS = 0.005  # share of rows far out; of a normal distribution a billionth, of a t with 3 degrees 0.7%
_IDENTIFIER = re.compile(r"(?i)(^|[\W_])(id|ids|key|code)$|[a-z]I[dD]$|^(customer|patient|subject|user|client)s?$")


@dataclass(frozen=True)
class TargetFacts:
    """The values of the target: their range, the step they are recorded in, repeats, outliers, a suggestion."""

    name: str
    lowest: float
    highest: float
    step: float | None  # all values are multiples of it; None if there is none of up to six decimals
    distinct: int  # number of different values
    repeated_share: float  # share of the rows whose value an earlier row has
    outliers: int  # rows more than six robust standard deviations from the median
    suggestion: str  # "log", "counts", "tails" or ""


@dataclass(frozen=True)
class Preflight:
    """The findings about one dataset."""

    dataset: str
    sha256: str
    rows: int
    missing_targets: int  # rows that were dropped
    features: int
    kinds: dict[str, int]  # number of features of each kind
    left_out: dict[str, str]  # columns of the file that are no features, and why
    missing: dict[str, float]  # share of missing values, of the features that have any
    constant: list[str]
    identical: list[list[str]]
    hazards: Hazards
    repeated_across_splits: float  # share of the test rows of a split of which a copy is among its training rows
    target: TargetFacts
    leaks: list[Leak]
    group_candidates: list[str]
    scheme: str
    num_groups: int | None
    test_rows: list[int]  # of the first splits
    seconds: dict[str, float] = field(default_factory=dict)  # estimated for each method; filled by whoever fits

    def findings(self) -> list[str]:
        """Return one sentence for everything that the reader should decide about; the list is empty if all is well."""
        return list(self._findings())

    def _findings(self) -> Iterator[str]:
        for leak in self.leaks:
            yield f"leak: {leak.describe()}"
        if self.repeated_across_splits >= 0.01 and self.hazards.repeated_rows:
            yield (
                f"repeated rows: {self.repeated_across_splits:.0%} of the test rows of a split are also among its "
                "training rows; a method that remembers rows is flattered (remove them, or add groups=)"
            )
        for name in self.group_candidates:
            yield (
                f"groups: several rows share each value of {name}; if new rows will have new values, random splits "
                f"flatter every method: add groups={name}"
            )
        if self.hazards.target_features:
            yield f"other targets of the file are inputs: {', '.join(self.hazards.target_features)}"
        if self.constant:
            yield f"columns that never vary: {', '.join(self.constant)}"
        for names in self.identical:
            yield f"identical columns: {', '.join(names)}"
        if self.target.suggestion == "log":
            yield "the target has a heavy right tail, its logarithm has none: consider predicting the logarithm"
        if self.target.suggestion == "tails":
            yield (
                f"the target has heavy tails: {self.target.outliers or 'some'} rows far from the median decide NLL and "
                "RMSE; look at CRPS, and at the largest targets"
            )
        if self.target.suggestion == "counts":
            yield "the target counts something: a density with spikes at whole numbers can reach any likelihood"
        elif self.target.distinct <= min(_FEW_VALUES, self.rows // 2):
            yield (
                f"the target takes {self.target.distinct} values only: a density with spikes at them can reach any "
                "likelihood; look at CRPS"
            )
        if self.num_groups is not None and self.num_groups < NUM_SPLITS:
            yield f"only {self.num_groups} groups: several of {NUM_SPLITS} splits test on the same ones"

    def as_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "findings": self.findings()}


def preflight(info: DatasetInfo, *, seed: int = 1) -> Preflight:
    """Load a dataset and look at it; a mistake in it is a UserError."""
    dataset = load(info)
    if dataset.is_joint:
        raise UserError(
            f"preflight needs a dataset of one target, received {info.name!r} with {dataset.target_name}: name one"
        )
    splits = [OuterSplit(number, seed, scheme=dataset.scheme) for number in range(1, NUM_SPLITS + 1)]
    cut = [split.rows(len(dataset.y), dataset.split_key) for split in splits][:_SPLITS_LOOKED_AT]
    groups = dataset.split_key if dataset.scheme is Scheme.groups else None
    return Preflight(
        dataset=dataset.name,
        sha256=dataset.sha256,
        rows=len(dataset.y),
        missing_targets=dataset.missing_targets,
        features=dataset.X.shape[1],
        kinds=dict(Counter(kind.value for kind in dataset.kinds)),
        left_out=dataset.left_out,
        missing=_missing(dataset),
        constant=[name for name, x in _columns(dataset) if len(np.unique(x)) < 2],
        identical=_identical(dataset),
        hazards=find_hazards(info, dataset),
        repeated_across_splits=_repeated_across(dataset, cut),
        target=target_facts(dataset.target_name, dataset.y),
        leaks=find_leaks(dataset.X, dataset.y, dataset.feature_names, dataset.categorical),
        group_candidates=_group_candidates(dataset) if groups is None else [],
        scheme=dataset.scheme.value,
        num_groups=None if groups is None else len(np.unique(groups)),
        test_rows=[len(test) for _, test in cut],
    )


def target_facts(name: str, y: np.ndarray) -> TargetFacts:
    """Describe the values of a target."""
    low, median, high = np.percentile(y, [25, 50, 75])
    spread = (high - low) / 1.349  # of a normal distribution this is the standard deviation
    far_out = np.abs(y - median) > _FAR_OUT * spread if spread > 0 else np.zeros(len(y), bool)
    return TargetFacts(
        name=name,
        lowest=float(y.min()),
        highest=float(y.max()),
        step=_step(y),
        distinct=len(np.unique(y)),
        repeated_share=round(1 - len(np.unique(y)) / len(y), 4),
        outliers=int(far_out.sum()),
        suggestion=_suggestion(y, far_out),
    )


def _step(y: np.ndarray) -> float | None:
    """Return the largest step of which all differences of the values are multiples, if they have few decimals."""
    for decimals in range(_MOST_DECIMALS + 1):
        scaled = y * 10**decimals
        whole = np.round(scaled)
        if np.abs(whole).max() < 2**53 and np.allclose(scaled, whole, rtol=1e-12, atol=1e-6):
            gaps = np.diff(np.unique(whole)).astype(np.int64)
            return int(np.gcd.reduce(gaps)) / 10**decimals if len(gaps) else None
    return None


def _suggestion(y: np.ndarray, far_out: np.ndarray) -> str:
    """Suggest what is obvious: the logarithm of a positive target with a heavy right tail, small counts, or tails."""
    are_small = y.min() == 0 and np.median(y) <= 20 and len(np.unique(y)) > 2
    if are_small and np.all(y == np.round(y)) and _skewness(y) > 0.5:
        return "counts"
    if y.min() > 0 and _skewness(y) > _HEAVY_SKEWNESS and abs(_skewness(np.log(y))) < 1:
        return "log"
    mostly_equal = not np.subtract(*np.percentile(y, [75, 25]))  # then no row counts as far out
    has_tails = far_out.mean() >= _MANY_OUTLIERS or (mostly_equal and abs(_skewness(y)) > _HEAVY_SKEWNESS)
    return "tails" if has_tails and len(np.unique(y)) > 2 else ""


def _skewness(y: np.ndarray) -> float:
    centred = y - y.mean()
    spread = centred.std()
    return float((centred**3).mean() / spread**3) if spread > 0 else 0.0


def _columns(dataset: Dataset) -> Iterator[tuple[str, np.ndarray]]:
    return zip(dataset.feature_names, dataset.X.T, strict=True)


def _missing(dataset: Dataset) -> dict[str, float]:
    shares = {name: float(np.isnan(x).mean()) for name, x in _columns(dataset)}
    return {name: round(share, 4) for name, share in shares.items() if share}


def _identical(dataset: Dataset) -> list[list[str]]:
    """Return groups of columns with equal values in all rows; columns that never vary are reported by themselves."""
    groups: dict[bytes, list[str]] = {}
    for name, x in _columns(dataset):
        if len(np.unique(x)) > 1:
            groups.setdefault((np.where(np.isnan(x), np.nan, x) + 0.0).tobytes(), []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def _repeated_across(dataset: Dataset, cut: list[tuple[np.ndarray, np.ndarray]]) -> float:
    rows = pd.DataFrame(np.column_stack([dataset.X, dataset.y]) + 0.0)
    ids = pd.util.hash_pandas_object(rows, index=False).to_numpy()
    return round(float(np.mean([np.isin(ids[test], ids[train]).mean() for train, test in cut])), 4)


def _group_candidates(dataset: Dataset) -> list[str]:
    """Return columns that name what a row belongs to: identifiers by name, or categories that explain half the target.

    They have at least 20 values, each of which two or more rows share on average.
    """
    found = []
    for position, (name, x) in enumerate(_columns(dataset)):
        present = x[~np.isnan(x)]
        distinct = len(np.unique(present))
        if distinct < 20 or len(present) < 2 * distinct or not np.all(present == np.round(present)):
            continue
        is_category = position in dataset.categorical
        if _IDENTIFIER.search(name) or (is_category and level_r2(x, dataset.y) > 0.5):
            found.append(name)
    return found
