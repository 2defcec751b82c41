"""The rule by which a cell of the published tables counts as reproduced.

Our runs and the notebooks' use the same splits, so the comparison is paired: ours minus the notebook's value of the
same split. Where training amplifies float32 rounding, these differences scatter, and so does their mean. A mean
difference is therefore judged by two things: its size in published standard errors, and the p-value of the paired
t-test, which knows the scatter of that mean. A cell is off if a bias is shown:

- more than 0.5 published standard errors, with p <= 0.001, or
- more than 2 published standard errors, with p <= 0.01, or
- more than 10 published standard errors, whatever its p-value.

A faithful run differs from the notebook's by chance alone, independently from split to split, because every split has
seeds of its own. Such a cell is off in at most one of a hundred runs, however much it scatters (up to three times the
published standard deviation). A true bias of one published standard error is found in 99 of 100 runs where the
differences' standard deviation is at most 0.15 of the published one, and in 84 of 100 at 0.2. Where it is as large as
the published one, the mean of 20 splits itself scatters by one standard error: no test can then tell a bias of one
from chance, and a bias of five is found in 98 of 100 runs.

Datasets whose splits come out one by one have a sharper rule on top: a number of splits must agree. The limits are
data, in `benchmarks/tolerances.json`. Runs that cannot be rebuilt are not judged; `benchmarks/exceptions.json` names
them with the evidence.
"""

from __future__ import annotations

import functools
import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from anchormoe.config.schema import ABLATIONS, NUM_SPLITS
from anchormoe.paths import shipped
from anchormoe.report.published import DATASETS
from anchormoe.report.statistics import paired_test


@dataclass(frozen=True)
class Limit:
    """A size of the mean difference and the p-value at or below which it counts as shown."""

    standard_errors: float
    p_value: float


@dataclass(frozen=True)
class BiasRule:
    """The limits, in ascending order of size, and what is allowed without a test."""

    limits: tuple[Limit, ...]
    rounding_of_mean: float
    min_splits: int
    standard_errors_untested: float  # allowed of fewer splits than that


@dataclass(frozen=True)
class PerSplit:
    """How many of 20 splits must be within a distance and, optionally, select the notebook's stage and epoch."""

    anchor: str  # the rule holds for rows of this anchor only
    within: float
    at_least: int
    stages_at_least: int | None = None
    epochs_at_least: int | None = None


@dataclass(frozen=True)
class Judgement:
    """A mean difference (ours minus the notebook's) with the scatter of that mean, and the limit it exceeds, if any."""

    mean: float
    scatter: float | None  # standard error of the mean over our splits; None for a single split
    published_se: float  # of a mean over as many splits
    p_value: float | None  # None where there are too few splits for a test
    exceeded: Limit | None
    within_scatter: bool  # large, but not told from chance: the cell passes and deserves a look

    @property
    def in_ses(self) -> float:
        """Return the mean difference in published standard errors."""
        return self.mean / self.published_se


def judge(differences: np.ndarray, published_se: float) -> Judgement:
    """Judge the differences of a cell; `published_se` is the standard error of the notebook's mean over 20 splits.

    A mean over fewer splits scatters more, by the root of 20 / n. Differences that are not numbers exceed every limit.
    """
    rule = bias_rule()
    mean, num_splits = float(np.mean(differences)), len(differences)
    se = published_se * math.sqrt(NUM_SPLITS / num_splits)
    size = max(abs(mean) - rule.rounding_of_mean, 0) / se if math.isfinite(mean) else math.inf
    scatter = p_value = None
    if num_splits > 1:
        test = paired_test(differences, np.zeros(num_splits), test_share=0)
        scatter = test.se
        p_value = test.p_value if num_splits >= rule.min_splits else None
    limits = rule.limits if p_value is not None else (Limit(rule.standard_errors_untested, 1.0),)
    # Written so that a p-value that is not a number counts as shown.
    exceeded = [limit for limit in limits if size > limit.standard_errors and not (p_value or 0) > limit.p_value]
    within_scatter = not exceeded and size > rule.standard_errors_untested
    return Judgement(mean, scatter, se, p_value, exceeded[-1] if exceeded else None, within_scatter)


@functools.cache
def bias_rule() -> BiasRule:
    """Read the limits of a mean difference."""
    facts = _load("tolerances.json")
    few = facts["bias"]["few_splits"]
    return BiasRule(
        limits=tuple(Limit(**entry) for entry in facts["bias"]["limits"]),
        rounding_of_mean=facts["rounding"]["mean"],
        min_splits=few["fewer_than"],
        standard_errors_untested=few["standard_errors"],
    )


@functools.cache
def per_split_rules() -> dict[str, PerSplit]:
    """Read the datasets whose splits come out one by one; what rounding does to a published value is added."""
    facts = _load("tolerances.json")
    rules = {}
    for dataset, entry in facts["datasets"].items():
        if "per_split" in entry:
            within = entry["per_split"]["within"] + facts["rounding"]["split"]
            rules[dataset] = PerSplit(**{**entry["per_split"], "within": within})
    return rules


@functools.cache
def exceptions() -> dict[tuple[str, str], str]:
    """Read the runs (dataset, ablation) that cannot be rebuilt, each with the evidence."""
    result = {}
    for entry in _load("exceptions.json"):
        if entry["dataset"] not in DATASETS or entry["ablation"] not in ABLATIONS or not entry["evidence"]:
            raise ValueError(f"benchmarks/exceptions.json must name a dataset, ablation and evidence: {entry}")
        result[entry["dataset"], entry["ablation"]] = entry["evidence"]
    return result


def _load(name: str) -> Any:
    return json.loads(shipped(f"benchmarks/{name}").read_text(encoding="utf-8"))
