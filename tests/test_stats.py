"""Tests of significance against hand computations, other implementations and simulation."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from anchormoe.report.statistics import (
    chi_squared_tail,
    friedman_p_value,
    paired_test,
    rank_test,
    studentized_range_quantile,
    two_sided_t,
    uniformity_p_value,
)


def test_without_overlap_the_paired_test_is_the_ordinary_one() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal(20), rng.standard_normal(20) + 0.5
    result = paired_test(a, b, test_share=0.0)
    expected = stats.ttest_rel(a, b)
    assert result.p_value == pytest.approx(expected.pvalue)
    assert result.mean / result.se == pytest.approx(expected.statistic)


def test_overlap_widens_the_standard_error_by_a_known_factor() -> None:
    a, b = np.arange(20.0), np.sqrt(np.arange(20.0))
    plain, corrected = paired_test(a, b, test_share=0.0), paired_test(a, b)
    assert corrected.se / plain.se == pytest.approx(np.sqrt((1 / 20 + 0.1 / 0.9) / (1 / 20)))
    assert corrected.p_value > plain.p_value


def test_the_corrected_test_holds_its_level_on_overlapping_splits_where_the_plain_one_does_not() -> None:
    """Two equal methods (means of random halves of the same features) on resampled 90/10 splits of small data."""
    rng, rejections = np.random.default_rng(1), {"plain": 0, "corrected": 0}
    for _ in range(300):
        data, noise = rng.standard_normal(60), rng.standard_normal((2, 60))
        differences = []
        for _ in range(20):
            order = rng.permutation(60)
            train, test = order[:54], order[54:]
            first, second = ((data + part)[train].mean() for part in noise)
            differences.append(np.mean((data[test] - first) ** 2) - np.mean((data[test] - second) ** 2))
        zeros = np.zeros(20)
        rejections["plain"] += paired_test(differences, zeros, test_share=0.0).p_value < 0.05
        rejections["corrected"] += paired_test(differences, zeros).p_value < 0.05
    assert rejections["corrected"] / 300 < 0.10
    assert rejections["plain"] > 2 * rejections["corrected"]


def test_equal_methods_and_single_splits() -> None:
    assert paired_test([1.0, 2.0], [1.0, 2.0]).p_value == 1.0
    with pytest.raises(ValueError, match="at least two splits"):
        paired_test([1.0], [2.0])


def test_ranks_friedman_and_the_critical_distance() -> None:
    rng = np.random.default_rng(0)
    scores = pd.DataFrame(rng.standard_normal((9, 5)) + np.arange(5), columns=list("edcba"))
    result = rank_test(scores)
    assert result.average_rank.idxmin() == "e"
    assert result.average_rank.sum() == pytest.approx(15)
    assert result.p_value == pytest.approx(stats.friedmanchisquare(*scores.to_numpy().T).pvalue)
    # Demsar (2006), table 5a: q_0.05 = 2.728 for five methods
    assert result.critical_distance == pytest.approx(2.728 * np.sqrt(5 * 6 / (6 * 9)), rel=1e-3)


@pytest.mark.parametrize("df", [1, 2, 3, 4, 19, 20, 179])
def test_tails_agree_with_scipy(df: int) -> None:
    for t in (0.0, 0.1, -1.0, 2.093, -3.883, 6.0):
        assert two_sided_t(t, df) == pytest.approx(2 * stats.t.sf(abs(t), df), rel=1e-9, abs=1e-14)
    for x in (0.0, 0.3, 1.0, 3.84, 20.0, 150.0):
        assert chi_squared_tail(x, df) == pytest.approx(stats.chi2.sf(x, df), rel=1e-9, abs=1e-300)
    assert two_sided_t(np.inf, df) == pytest.approx(0, abs=1e-14)
    assert np.isnan(two_sided_t(np.nan, df))


@pytest.mark.parametrize("num_values", [2, 4, 1000])
def test_friedman_agrees_with_scipy_ties_included(num_values: int) -> None:
    scores = np.random.default_rng(num_values).integers(num_values, size=(9, 6)).astype(float)
    ranks = pd.DataFrame(scores).rank(axis=1).to_numpy()
    assert friedman_p_value(ranks) == pytest.approx(stats.friedmanchisquare(*scores.T).pvalue, rel=1e-9)


def test_methods_that_are_all_tied_are_not_told_apart() -> None:
    assert rank_test(pd.DataFrame(np.ones((4, 3)))).p_value == 1.0


@pytest.mark.parametrize("k", [3, 5, 16, 40])
@pytest.mark.parametrize("probability", [0.9, 0.95, 0.99])
def test_the_studentized_range_agrees_with_scipy(k: int, probability: float) -> None:
    expected = stats.studentized_range.ppf(probability, k, np.inf)
    assert studentized_range_quantile(probability, k) == pytest.approx(expected, rel=1e-6)


def test_nemenyi_agrees_with_scikit_posthocs() -> None:
    posthocs = pytest.importorskip("scikit_posthocs")
    rng = np.random.default_rng(3)
    scores = pd.DataFrame(rng.standard_normal((9, 6)) + 0.6 * np.arange(6), columns=list("abcdef"))
    result, p_values = rank_test(scores), posthocs.posthoc_nemenyi_friedman(scores)
    for a in scores:
        for b in scores:
            if a != b:
                apart = abs(result.average_rank[a] - result.average_rank[b]) > result.critical_distance
                assert apart == (p_values.loc[a, b] < 0.05)


def test_a_missing_score_is_refused() -> None:
    with pytest.raises(ValueError, match="every method on every dataset"):
        rank_test(pd.DataFrame({"a": [1.0, np.nan], "b": [1.0, 2.0], "c": [0.0, 1.0]}))


def test_uniformity_is_tested_as_by_scipy() -> None:
    for counts in (np.array([50, 41, 62, 47]), np.array([90, 110] * 10)):
        assert uniformity_p_value(counts) == pytest.approx(stats.chisquare(counts).pvalue)
