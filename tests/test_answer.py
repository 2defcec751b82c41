"""The answer for one dataset: ranks, tests against the best, and a sentence that says how sure it is."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from anchormoe.report.ranking import average_ranks, holm, rank_methods
from anchormoe.report.ranking_text import fit_code, to_html


def rows_of(scores: dict[str, list[float]], *, dataset: str = "houses", **columns: object) -> pd.DataFrame:
    """Make a row per method and split; a score of nan is a failed one."""
    seconds = columns.pop("seconds", {})
    assert isinstance(seconds, dict)
    rows = [
        {
            **{"dataset": dataset, "method": method, "ablation": "full", "protocol": "clean", "anchor": "none"},
            **{"seed": 1, "split": split, "config_hash": method, "variant": "standard"},
            **({"status": "failed", "error": "it broke"} if np.isnan(score) else {"status": "ok", "crps_y": score}),
            **{"nll_y": 2 * score, "rmse_y": 3 * score, "coverage_90": 0.9, "predict_seconds": 0.0},
            "fit_seconds": seconds.get(method, 1.0),
            **columns,
        }
        for method, values in scores.items()
        for split, score in enumerate(values, start=1)
    ]
    return pd.DataFrame(rows)


def noisy(mean: float, spread: float, seed: int, count: int = 20) -> list[float]:
    return list(mean + spread * np.random.default_rng(seed).standard_normal(count))


def test_a_sure_lead_is_told_with_its_size_and_its_p_value() -> None:
    ranking = rank_methods(
        rows_of({"b": noisy(1.1, 0.02, 1), "a": noisy(1.0, 0.02, 2), "c": noisy(2.0, 0.02, 3)}), "houses"
    )
    assert [line.method for line in ranking.lines] == ["a", "b", "c"]
    assert [line.rank for line in ranking.lines] == [1, 2, 3]
    share = 1 - ranking.lines[0].crps.mean / ranking.lines[1].crps.mean
    assert ranking.recommendation == f"a, CRPS {100 * share:.1f} % below the next, b, p < 0.001."


def test_a_lead_within_noise_is_no_lead_and_a_faster_method_is_named() -> None:
    scores = {"slow": noisy(1.0, 0.1, 1), "fast": noisy(1.01, 0.1, 2), "bad": noisy(3.0, 0.1, 3)}
    ranking = rank_methods(rows_of(scores, seconds={"slow": 9.0, "bad": 0.01}), "houses")
    best, following, _ = ranking.lines
    assert following.p_value > 0.05
    assert "but 20 splits do not tell it from that one (p = " in ranking.recommendation
    expected = "; fast is within noise and 9 times faster." if best.method == "slow" else "."
    assert ranking.recommendation.endswith(expected)
    assert "bad" not in ranking.recommendation, "it is faster still, and much worse"


def test_p_values_are_those_of_the_corrected_test_adjusted_by_holm() -> None:
    scores = {"a": noisy(1.0, 0.1, 1), "b": noisy(1.05, 0.1, 2), "c": noisy(1.1, 0.1, 3)}
    ranking = rank_methods(rows_of(scores), "houses")
    best = ranking.lines[0].method
    raw = {}
    for name in scores:
        if name != best:
            difference = np.array(scores[name]) - scores[best]
            t = difference.mean() / np.sqrt(difference.var(ddof=1) * (1 / 20 + 1 / 9))
            raw[name] = 2 * scipy.stats.t.sf(abs(t), 19)
    (small, p_small), (large, p_large) = sorted(raw.items(), key=lambda item: item[1])
    found = {line.method: line.p_value for line in ranking.lines[1:]}
    assert found[small] == pytest.approx(min(1, 2 * p_small))
    assert found[large] == pytest.approx(max(2 * p_small, p_large))


def test_holm_agrees_with_another_implementation() -> None:
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    p_values = {str(k): float(p) for k, p in enumerate(np.random.default_rng(0).uniform(size=12) ** 3)}
    expected = multitest.multipletests(list(p_values.values()), method="holm")[1]
    np.testing.assert_allclose(list(holm(p_values).values()), expected)


def test_methods_without_all_splits_are_shown_but_not_ranked() -> None:
    nan = float("nan")
    ranking = rank_methods(rows_of({"a": [1.0, 1.1, 1.2], "b": [0.1, nan, 0.1], "c": [nan] * 3}), "houses")
    assert [(line.method, line.rank, line.num_splits) for line in ranking.lines] == [
        ("a", 1, 3),
        ("b", None, 2),
        ("c", None, 0),
    ]
    assert ranking.lines[2].failure == "it broke"
    assert "a is the only method with 3 splits" in ranking.recommendation
    assert rank_methods(rows_of({"a": [nan]}), "houses").recommendation.startswith("No method has finished")


def test_on_given_splits_only_these_count() -> None:
    ranking = rank_methods(rows_of({"a": [1.0, 9.0, 9.0], "b": [2.0, 1.0, 1.0]}), "houses", splits=[1])
    assert ranking.lines[0].method == "a"
    assert "a single split cannot say whether that is chance" in ranking.recommendation


def test_a_smoothed_density_is_marked_and_poor_coverage_is_said() -> None:
    rows = rows_of({"a": noisy(1.0, 0.01, 1), "b": noisy(2.0, 0.01, 2)}, density="smoothed draws", coverage_90=0.7)
    ranking = rank_methods(rows, "houses")
    assert ranking.table.density.tolist() == ["smoothed draws"] * 2
    assert "its 90% intervals hold 70% of the targets" in ranking.recommendation
    page = to_html(ranking)
    assert "2*</td>" in page or "*</td>" in page
    assert "that of a smoothed one" in page


def test_names_cannot_break_out_of_the_page() -> None:
    page = to_html(rank_methods(rows_of({"<script>": [1.0, 2.0], "b": [1.0, 3.0]}, dataset="<b>"), "<b>"))
    assert "<script>" not in page
    assert "<b>:" not in page


def test_average_ranks_are_of_methods_ranked_everywhere() -> None:
    first = rank_methods(rows_of({"a": [1.0, 1.0], "b": [2.0, 2.0], "c": [3.0, 3.0]}), "houses")
    second = rank_methods(rows_of({"b": [1.0, 1.0], "a": [2.0, 2.0]}, dataset="flats"), "flats")
    assert average_ranks([first, second]) == {"a": 1.5, "b": 1.5}


def test_the_code_of_each_kind_of_method() -> None:
    assert fit_code("anchormoe_fast", None).splitlines() == [
        "import anchormoe",
        "model = anchormoe.AnchorMoERegressor(random_state=1).fit(X, y)",
    ]
    assert 'AnchorMoERegressor("best", random_state=1)' in fit_code("anchormoe_best", None)
    assert fit_code("mine.Model", 'load("x")', {"alpha": 3, "kind": "a"}).splitlines()[1:] == [
        'X, y = load("x")',
        "model = anchormoe.MethodRegressor(\"mine.Model\", alpha=3, kind='a').fit(X, y)",
    ]
