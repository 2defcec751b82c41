"""Which differences between methods are more than chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

TEST_SHARE = 0.1  # of the rows, in every outer split


@dataclass(frozen=True)
class PairedTest:
    """Mean of first - second over splits, its corrected standard error, and the two-sided p-value."""

    mean: float
    se: float
    p_value: float


def paired_test(first: Sequence[float], second: Sequence[float], *, test_share: float = TEST_SHARE) -> PairedTest:
    """A t-test over resampled splits with the variance of Nadeau and Bengio (2003).

    Training sets of different splits overlap, so the k differences are not independent, and var / k is too small. With
    (1 / k + test / train) var in its place the test holds its level.
    """
    difference = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    k = len(difference)
    if k < 2:
        raise ValueError(f"a paired test needs at least two splits, received {k}")
    variance = float(np.var(difference, ddof=1)) * (1 / k + test_share / (1 - test_share))
    mean, se = float(difference.mean()), math.sqrt(variance)
    if se == 0:
        return PairedTest(mean, se, 1.0 if mean == 0 else 0.0)
    return PairedTest(mean, se, float(2 * stats.t.sf(abs(mean) / se, k - 1)))


@dataclass(frozen=True)
class RankTest:
    """Friedman's test over datasets: average rank of each method (1 is best), p-value, and Nemenyi's critical distance:
    average ranks that differ by less are not told apart at the 5% level."""

    average_rank: pd.Series
    p_value: float
    critical_distance: float


def rank_test(scores: pd.DataFrame, *, level: float = 0.05) -> RankTest:
    """`scores`: one row per dataset, one column per method, lower is better, nothing missing."""
    num_datasets, num_methods = scores.shape
    if scores.isna().any(axis=None):
        raise ValueError("a rank test needs every method on every dataset")
    if num_methods < 3 or num_datasets < 2:
        raise ValueError(f"a rank test needs 3 methods and 2 datasets, received {num_methods} and {num_datasets}")
    average = scores.rank(axis=1).mean().sort_values()
    p_value = float(stats.friedmanchisquare(*(scores[name] for name in scores)).pvalue)
    spread = stats.studentized_range.ppf(1 - level, num_methods, np.inf) / math.sqrt(2)
    distance = float(spread * math.sqrt(num_methods * (num_methods + 1) / (6 * num_datasets)))
    return RankTest(average, p_value, distance)
