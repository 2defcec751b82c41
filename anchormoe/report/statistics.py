"""Tests that tell differences between methods from chance.

With whole degrees of freedom the distributions of Student and of chi-squared are finite sums. They are written out here
because importing SciPy takes as long as reading all stored rows; tests compare them with scipy.stats.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

TEST_SHARE = 0.1  # of the rows, in every outer split


@dataclass(frozen=True)
class PairedTest:
    """Mean of first - second over splits, the standard error of that mean, and the two-sided p-value."""

    mean: float
    se: float
    p_value: float


def paired_test(first: ArrayLike, second: ArrayLike, *, test_share: float = TEST_SHARE) -> PairedTest:
    """Compare two methods on the same splits by a t-test with the variance of Nadeau and Bengio (2003).

    Training sets of different splits overlap, so the k differences are not independent, and var / k is too small. With
    (1 / k + test / train) var in its place the test holds its level. With `test_share=0` it is the ordinary test.
    """
    difference = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    k = len(difference)
    if k < 2:
        raise ValueError(f"a paired test needs at least two splits, received {k}")
    variance = float(np.var(difference, ddof=1)) * (1 / k + test_share / (1 - test_share))
    mean, se = float(difference.mean()), math.sqrt(variance)
    if se == 0:
        return PairedTest(mean, se, 1.0 if mean == 0 else 0.0)
    return PairedTest(mean, se, two_sided_t(mean / se, k - 1))


def uniformity_p_value(counts: np.ndarray) -> float:
    """Return the p-value of Pearson's chi-squared test that independent values fall into all bins alike."""
    expected = counts.sum() / len(counts)
    return chi_squared_tail(float(((counts - expected) ** 2).sum() / expected), len(counts) - 1)


@dataclass(frozen=True)
class RankTest:
    """Friedman's test over datasets.

    It holds the average rank of each method (1 is best), the p-value, and Nemenyi's critical distance: average ranks
    that differ by less are not told apart at the given level.
    """

    average_rank: pd.Series
    p_value: float
    critical_distance: float


def rank_test(scores: pd.DataFrame, *, level: float = 0.05) -> RankTest:
    """Test whether methods differ; `scores` has a row per dataset, a column per method, and lower is better."""
    num_datasets, num_methods = scores.shape
    if scores.isna().any(axis=None):
        raise ValueError("a rank test needs every method on every dataset")
    if num_methods < 3 or num_datasets < 2:
        raise ValueError(f"a rank test needs 3 methods and 2 datasets, received {num_methods} and {num_datasets}")
    ranks = scores.rank(axis=1)
    width = math.sqrt(num_methods * (num_methods + 1) / (6 * num_datasets))
    distance = studentized_range_quantile(1 - level, num_methods) / math.sqrt(2) * width
    return RankTest(ranks.mean().sort_values(), friedman_p_value(ranks.to_numpy()), distance)


def friedman_p_value(ranks: np.ndarray) -> float:
    """Return the p-value of Friedman's test, corrected for ties, from the ranks of k methods (columns) on n datasets.

    The statistic 12 / (n k (k + 1)) sum R_j^2 - 3 n (k + 1) of the rank sums R_j, divided by
    1 - sum (t^3 - t) / (n (k^3 - k)) over all groups of t tied methods, is nearly chi-squared with k - 1 degrees of
    freedom. If all methods are tied on all datasets, nothing tells them apart.
    """
    n, k = ranks.shape
    tied = sum(float((counts**3 - counts).sum()) for counts in (np.unique(row, return_counts=True)[1] for row in ranks))
    correction = 1 - tied / (n * (k**3 - k))
    if correction == 0:
        return 1.0
    statistic = 12 / (n * k * (k + 1)) * float((ranks.sum(axis=0) ** 2).sum()) - 3 * n * (k + 1)
    return chi_squared_tail(statistic / correction, k - 1)


def two_sided_t(t: float, df: int) -> float:
    """Return P(|T| > |t|) of Student's distribution (Abramowitz and Stegun 26.7.3 and 26.7.4), to about 1e-15.

    With theta = atan(|t| / sqrt(df)) the complement is sin theta (1 + 1/2 cos^2 + 1*3 / (2*4) cos^4 + ...) for even df,
    up to cos^(df - 2), and 2/pi (theta + sin theta (cos + 2/3 cos^3 + ...)) for odd df, up to the same power.
    """
    if math.isnan(t):
        return math.nan
    theta = math.atan(abs(t) / math.sqrt(df))
    odd = df % 2
    term, total = math.cos(theta) if odd else 1.0, 0.0
    for power in range(odd, df - 1, 2):
        total += term
        term *= (power + 1) / (power + 2) * math.cos(theta) ** 2
    inside = 2 / math.pi * (theta + math.sin(theta) * total) if odd else math.sin(theta) * total
    return max(1 - inside, 0.0)


def chi_squared_tail(x: float, df: int) -> float:
    """Return P(X > x) of the chi-squared distribution, which two more degrees of freedom raise by one term.

    That term is (x/2)^(df/2) exp(-x/2) / Gamma(df/2 + 1); the sum starts at erfc(sqrt(x/2)) or exp(-x/2).
    """
    half = max(x, 0.0) / 2
    tail = math.erfc(math.sqrt(half)) if df % 2 else math.exp(-half)
    for lower in range(2 - df % 2, df, 2):
        tail += half ** (lower / 2) * math.exp(-half) / math.gamma(lower / 2 + 1)
    return tail


def _normal_cdf(x: np.ndarray) -> np.ndarray:
    return np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in x.tolist()])


@functools.cache
def studentized_range_quantile(probability: float, k: int) -> float:
    """Return the quantile of the range of k independent standard normal variables.

    P(range <= q) = k * integral of phi(x) (Phi(x) - Phi(x - q))^(k - 1) dx, where x is the largest of them. The
    trapezoidal rule is exact to many digits for so smooth a function, and bisection finds q.
    """
    x = np.linspace(-8, 12, 401)
    density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    below_x = _normal_cdf(x)
    low, high = 0.0, 20.0
    while high - low > 1e-9:
        q = (low + high) / 2
        below = k * np.trapezoid(density * (below_x - _normal_cdf(x - q)) ** (k - 1), x)
        low, high = (q, high) if below < probability else (low, q)
    return high
