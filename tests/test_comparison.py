"""The comparison of methods, from rows made up so that every number in it is known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from anchormoe.config.schema import NUM_SPLITS
from anchormoe.distributions import scores
from anchormoe.distributions.scores import Metric
from anchormoe.errors import UserError
from anchormoe.report import comparison, pit, published, render
from anchormoe.report.comparison import Comparison
from anchormoe.report.figures import across
from anchormoe.report.grid import Table

OFFSET = {"anchormoe": 0.0, "ngboost": 0.5, "mdn": -0.5, "gbdt_homoscedastic": 1.0}
VARIANT = {"energy": "heating", "naval": "compressor", "power": "sheet1"}


def made_up_rows(**changes: object) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = []
    for dataset in published.DATASETS:
        hard = rng.standard_normal(NUM_SPLITS)  # shared by all methods: splits differ in difficulty
        for method, offset in OFFSET.items():
            for split in range(1, NUM_SPLITS + 1):
                score = offset + hard[split - 1] + 0.1 * rng.standard_normal()
                rows.append(
                    {
                        "dataset": dataset,
                        "method": method,
                        "ablation": "full",
                        "protocol": "clean",
                        "anchor": "trees" if method == "anchormoe" else "none",
                        "seed": 1,
                        "split": split,
                        "variant": VARIANT.get(dataset, "standard"),
                        "config_hash": method,
                        "status": "ok",
                        **dict.fromkeys((metric.name for metric in scores.compared()), score),
                        **changes,
                    }
                )
    return pd.DataFrame(rows)


def table(rows: pd.DataFrame, key: str) -> Table:
    (found,) = [item for item in comparison.build(rows) if item.key == key]
    return found


def test_means_standard_errors_and_the_best_are_those_of_the_rows() -> None:
    rows = made_up_rows()
    built = table(rows, "comparison_nll_y")
    assert [column.title for column in built.columns] == ["Anchor-MoE", "NGBoost", "GBDT, one variance", "MDN"]
    assert [row.dataset for row in built.rows] == list(published.DATASETS)
    boston = rows[(rows.dataset == "boston") & (rows.method == "mdn")].nll_y
    cell = built.rows[0].cells[3]
    assert cell.mean == pytest.approx(boston.mean())
    assert cell.deviation == pytest.approx(boston.std(ddof=1) / np.sqrt(NUM_SPLITS))
    assert [cell.bold for cell in built.rows[0].cells] == [False, False, False, True]


def test_ranks_and_their_average() -> None:
    built = table(made_up_rows(), "ranks_nll_y")
    assert [column.title for column in built.columns] == ["MDN", "Anchor-MoE", "NGBoost", "GBDT, one variance"]
    assert [[cell.mean for cell in row.cells] for row in built.rows] == [[1, 2, 3, 4]] * 10
    assert built.rows[-1].dataset == "average"
    assert any("Friedman" in note for note in built.notes)


def test_a_regressor_run_by_its_import_path_is_shown_and_ranked_under_it() -> None:
    rows = made_up_rows()
    rows["method"] = rows["method"].replace({"mdn": "mine.Best"})
    assert table(rows, "comparison_nll_y").columns[-1].title == "mine.Best"
    assert table(rows, "ranks_nll_y").columns[0].title == "mine.Best"
    (axes,) = across.critical_difference(Comparison(rows), "nll_y").axes
    assert axes.get_yticklabels()[0].get_text() == "mine.Best  1.0"


def test_a_method_that_lacks_a_dataset_is_shown_but_not_ranked() -> None:
    rows = made_up_rows()
    rows = rows[~((rows.method == "mdn") & (rows.dataset == "naval"))]
    assert "MDN" in [column.title for column in table(rows, "comparison_nll_y").columns]
    assert "MDN" not in [column.title for column in table(rows, "ranks_nll_y").columns]
    naval = table(rows, "comparison_nll_y").rows[published.DATASETS.index("naval")]
    assert naval.cells[3].text == "missing"


def test_a_method_with_fewer_splits_says_so_and_is_not_ranked() -> None:
    rows = made_up_rows()
    rows = rows[~((rows.method == "mdn") & (rows.dataset == "boston") & (rows.split > 7))]
    cell = table(rows, "comparison_nll_y").rows[0].cells[3]
    assert "(7/20)" in cell.text
    assert not cell.bold
    assert "MDN" not in [column.title for column in table(rows, "ranks_nll_y").columns]


def test_differences_are_paired_and_significant_ones_bold() -> None:
    rows = made_up_rows()
    cells = table(rows, "paired_nll_y").rows[0].cells
    wide = rows[rows.dataset == "boston"].pivot(index="split", columns="method", values="nll_y")
    assert cells[0].mean == pytest.approx((wide["ngboost"] - wide["anchormoe"]).mean())
    assert cells[0].deviation < 0.1, "unpaired it would be about 0.3"
    assert all(cell.bold for cell in cells)


def test_splits_that_state_their_share_of_test_rows_are_corrected_by_it() -> None:
    def error(**changes: object) -> float:
        found = Comparison(made_up_rows(**changes)).paired("crps_y", "ngboost", "anchormoe", "yacht")
        assert found is not None
        return found[0].se

    ratio = (1 / NUM_SPLITS + 0.03 / 0.97) / (1 / NUM_SPLITS + 0.1 / 0.9)
    assert error(test_share=0.03) == pytest.approx(error() * np.sqrt(ratio))
    assert error(test_share=0.1) == pytest.approx(error())


def test_live_numbers_stand_beside_those_of_the_methods_own_papers() -> None:
    built = table(made_up_rows(), "quoted_nll_y")
    boston = next(row for row in built.rows if (row.dataset, row.source) == ("boston", "NGBoost"))
    live, quoted, difference = boston.cells
    assert quoted.mean == 2.43
    se = np.hypot(live.deviation, 0.15 / np.sqrt(20))
    assert difference.mean == pytest.approx((live.mean - 2.43) / se)
    misprinted = ("energy", "protein", "wine")
    assert not any(row.source == "NGBoost" and row.dataset in misprinted for row in built.rows)


def test_what_the_papers_authors_ran_themselves_is_quoted_in_original_units() -> None:
    rows = made_up_rows()
    rows["method"] = rows["method"].replace({"mdn": "rff_krr", "ngboost": "ngboost_authors"})
    built = table(rows, "quoted_nll_y")
    quoted = {(row.source, row.dataset): row.cells[1].mean for row in built.rows}
    assert quoted == {
        ("Kernel ridge mixture", "kin8nm"): -1.21,
        ("NGBoost, over-trained", "protein"): 3.058,
        ("NGBoost, over-trained", "wine"): 4.744,
    }


def test_a_table_wider_than_the_terminal_goes_on_below() -> None:
    text = render.render([table(made_up_rows(), "comparison_nll_y")], "rich", width=60)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 60
    assert "…" not in text
    heads = [word for line in lines for word in line.split() if word.lower() in published.DATASETS]
    assert [head.lower() for head in heads] == list(published.DATASETS)
    assert sum(line.startswith("MDN") for line in lines) == sum(line.startswith("Method") for line in lines) > 1


@pytest.mark.parametrize("format", render.FORMATS)
def test_every_format_shows_every_table(format: str) -> None:
    built = comparison.build(made_up_rows())
    text = render.render(built, format, width=200)
    assert "MDN" in text
    assert len(built) == 6 + 4 + 4 + 1


def test_methods_go_down_and_datasets_across() -> None:
    """Sixteen methods side by side would not fit on a page."""
    lines = render.render([table(made_up_rows(), "comparison_nll_y")], "md").splitlines()
    header, _, *body = [line.split("|")[1:-1] for line in lines if line.startswith("|")]
    assert lines[0] == "### NLL in original units (nll_y ± SE)"
    assert [cell.strip() for cell in header[:2]] == ["Method", "Boston<br>(N=506)"]
    assert [line[0].strip() for line in body] == ["Anchor-MoE", "NGBoost", "GBDT, one variance", "MDN"]
    assert all(len(line) == 10 for line in body)


def test_a_metric_of_the_registry_has_its_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new metric needs only one entry in anchormoe.distributions.scores."""
    rows = made_up_rows()
    before = {item.key for item in comparison.build(rows)}
    monkeypatch.setitem(
        scores.METRICS, "pinball_y", Metric("pinball_y", "Pinball loss", "Pinball", "y", True, lambda d, y, step: 0.0)
    )
    assert {item.key for item in comparison.build(rows)} == before, "older rows do not have it"
    rows["pinball_y"] = 2 * rows["nll_y"]
    added = {item.key for item in comparison.build(rows)} - before
    assert added == {"comparison_pinball_y", "ranks_pinball_y", "paired_pinball_y"}
    values = table(rows, "comparison_pinball_y").rows[0].cells
    expected = table(rows, "comparison_nll_y").rows[0].cells
    assert [cell.mean for cell in values] == pytest.approx([2 * cell.mean for cell in expected])
    text = render.render([table(rows, "ranks_pinball_y")], "md")
    assert "### Ranks by Pinball loss" in text


def test_a_metric_in_which_nothing_is_better_is_shown_but_not_ranked() -> None:
    keys = {item.key for item in comparison.build(made_up_rows())}
    assert "comparison_coverage_90" in keys
    assert "ranks_coverage_90" not in keys
    assert not any(cell.bold for row in table(made_up_rows(), "comparison_coverage_90").rows for cell in row.cells)


def test_methods_are_ranked_by_the_nll_at_the_datas_resolution_once_all_rows_have_it() -> None:
    rows = made_up_rows()
    assert [metric.name for metric in Comparison(rows).ranked()] == ["nll_cell_y", "crps_y", "rmse_y"]
    rows.loc[rows.method == "mdn", "nll_cell_y"] = np.nan  # rows stored before there was this score
    assert [metric.name for metric in Comparison(rows).ranked()] == ["nll_y", "crps_y", "rmse_y"]
    assert not [item.key for item in comparison.build(rows) if "nll_cell_y" in item.key]
    one_split = rows[(rows.method != "mdn") | (rows.split == 1)]
    assert Comparison(one_split).nll().name == "nll_cell_y", "a method without all splits is not ranked anyhow"


def test_datasets_of_the_users_can_be_compared() -> None:
    rows = made_up_rows(num_rows=1234)
    rows = rows[rows["dataset"].isin(["boston", "yacht"])].replace({"dataset": {"boston": "houses"}})
    built = comparison.build(rows.drop(columns="variant"), datasets=["houses"])
    (values,) = [item for item in built if item.key == "comparison_nll_y"]
    assert [(row.dataset, row.n) for row in values.rows] == [("houses", 1234)]
    assert [cell.num_splits for cell in values.rows[0].cells] == [NUM_SPLITS] * 4
    assert not any("Wine" in note for note in values.notes)
    assert Comparison(rows, datasets=["houses"]).means("nll_y").shape == (1, 4)
    assert "quoted_nll_y" not in {item.key for item in built}


@pytest.mark.parametrize("column", ["variant", "config_hash", "method", "crps_y", "nll_cell_y"])
def test_rows_without_a_column_do_not_break_the_comparison(column: str) -> None:
    built = comparison.build(made_up_rows().drop(columns=column))
    expected = {"config_hash": 15, "crps_y": 12, "nll_cell_y": 12}.get(column, 0)
    assert len(built) == expected
    assert comparison.build(pd.DataFrame()) == []


def test_rows_of_another_protocol_or_ablation_do_not_count() -> None:
    rows = pd.concat([made_up_rows(protocol="published"), made_up_rows(ablation="no_anchor")], ignore_index=True)
    assert comparison.build(rows) == []


def test_the_diagram_names_every_ranked_method_and_its_bars_tell_them_apart() -> None:
    """With nine datasets and four methods, ranks must differ by 1.56 to be told apart."""
    (axes,) = across.critical_difference(Comparison(made_up_rows()), "nll_y").axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["MDN  1.0", "Anchor-MoE  2.0", "NGBoost  3.0", "GBDT, one variance  4.0"]
    assert "critical distance 1.6" in axes.get_xlabel()
    bars = [line.get_xdata() for line in axes.lines if len(line.get_xdata()) == 2]
    assert [np.mean(bar) for bar in bars] == pytest.approx([1, 2, 3, 4])
    assert [high - low for low, high in bars] == pytest.approx([1.563] * 4, abs=1e-3)
    assert bars[0][1] > bars[1][0], "ranks 1 and 2 are not told apart"
    assert bars[0][1] < bars[2][0], "ranks 1 and 3 are"


def test_a_diagram_of_too_few_methods_is_refused() -> None:
    rows = made_up_rows()
    few = Comparison(rows[rows.method.isin(["mdn", "ngboost"])])
    with pytest.raises(
        UserError, match=r"must have 3 methods with all splits of 2 or more datasets, received 2 methods"
    ):
        across.critical_difference(few, "nll_y")


def test_pit_histograms_add_the_counts_of_all_splits() -> None:
    rows = made_up_rows()
    rows["pit_counts_once"] = [[row, 1, 2, 1] for row in range(len(rows))]
    mine = rows[(rows.method == "mdn") & (rows.dataset == "boston")]
    expected = np.array([mine.index.to_series().sum(), 20, 40, 20])
    counts = Comparison(rows).pit_counts("mdn", "boston")
    assert counts is not None
    assert counts.tolist() == expected.tolist()
    assert Comparison(made_up_rows()).pit_counts("mdn", "boston") is None
    assert Comparison(made_up_rows(pit_counts_once=[0] * 4)).pit_counts("mdn", "boston") is None, "no row is counted"
    figure = across.pit_histograms(Comparison(rows), "mdn")
    heights = [bar.get_height() for bar in figure.axes[0].patches if bar.get_width() == 0.92 * 0.25]
    assert heights == pytest.approx((4 * expected / expected.sum()).tolist())


def test_calibration_is_told_of_every_dataset_and_counted_where_it_is_whole() -> None:
    even, uneven = [10] * 20, [9, 11] * 10
    rows = made_up_rows(coverage_90=0.9)
    rows["pit_counts_once"] = [even if name == "boston" else uneven for name in rows["dataset"]]
    rows.loc[rows["dataset"] == "yacht", "coverage_90"] = 0.95
    rows = rows[~((rows["dataset"] == "wine") & (rows["split"] == 3))]
    lines = [line.split(" | ") for line in pit.calibration_of(Comparison(rows), "mdn").splitlines()]
    by_dataset = {line[0].strip("| "): line for line in lines}
    assert by_dataset["boston"][2:4] == ["4000", "1"]
    assert by_dataset["datasets"][1] == "7 of 8 in 88% to 92%"
    expected = scipy.stats.chisquare(20 * np.array(uneven)).pvalue
    assert by_dataset["concrete"][3] == f"**{expected:.2g}**"
    assert by_dataset["datasets"][3] == "1 of 8 pass"
    assert "(19/20)" in by_dataset["wine"][1]


def test_the_method_with_most_counts_is_the_first_of_those() -> None:
    rows = made_up_rows()
    rows["pit_counts_once"] = [[1, 1] if method in ("ngboost", "mdn") else None for method in rows["method"]]
    compared = Comparison(rows)
    assert across.most_counted(compared) == next(name for name in compared.methods if name in ("ngboost", "mdn"))
