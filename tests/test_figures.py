"""Figures: one style, readable files, the same content every time; the stored fits are those of the stored rows."""

from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from report_rows import HOSTILE, own_rows

from anchormoe.cli import main
from anchormoe.model.paper import PaperAnchorMoE
from anchormoe.model.settings import AnchorKind, AnchorSettings, TrainingSettings
from anchormoe.paths import shipped
from anchormoe.report import figure_data, figures, published
from anchormoe.report.comparison import Comparison
from anchormoe.report.figures import across, published_numbers, style
from anchormoe.report.selection import Selection, select
from anchormoe.running import figure_data as computed
from anchormoe.running.store import load_results


@pytest.fixture(scope="module")
def selection() -> Selection:
    return select(load_results(shipped("results")))


@pytest.mark.parametrize("name", published.DATASETS)
def test_stored_fits_have_the_scores_of_the_stored_rows(name: str, selection: Selection) -> None:
    """Rounding errors grow over hundreds of epochs: such splits agree within their scatter (see tolerances.json)."""
    arrays = figure_data.load(name)
    assert arrays is not None
    for method in ("anchormoe_crossfit", "anchormoe", "ngboost"):
        run = selection.compared.runs[method, name]
        assert run.config_hash == str(arrays[f"{method}/config_hash"])
        for place, metric in enumerate(arrays["score_names"].tolist()):
            fitted = arrays[f"{method}/scores"][:, place]
            stored = run.values(metric)[: len(fitted)]
            scatter = 2 * run.values(metric).std(ddof=1) if name in ("energy", "naval", "protein", "yacht") else 0.0
            within = max(0.02 * np.abs(stored).mean(), scatter)
            np.testing.assert_allclose(fitted, stored, rtol=0, atol=within, err_msg=f"{method} {metric}")


@pytest.mark.parametrize("name", published.DATASETS)
def test_stored_fits_are_whole(name: str) -> None:
    arrays = figure_data.load(name)
    assert arrays is not None
    assert all(np.isfinite(values).all() for values in arrays.values() if values.dtype.kind == "f")
    pit, levels = arrays["anchormoe_crossfit/pit"], arrays["levels"]
    low, high = arrays["anchormoe_crossfit/interval"].T
    inside = (low <= arrays["y"]) & (arrays["y"] <= high)
    assert inside.mean() == pytest.approx(np.mean(np.abs(pit - 0.5) <= 0.45), abs=0.01)
    widths = arrays["anchormoe_crossfit/widths"].mean(0)
    assert len(widths) == len(levels)
    assert np.all(np.diff(widths) > 0), "a wider interval for a higher level"
    epoch = int(arrays["training/epoch"])
    assert arrays["training/validation"].argmin() == epoch - 1, "the selected epoch has the lowest validation NLL"
    grid, density = arrays["density_grid"], arrays["anchormoe_crossfit/density"]
    areas = np.trapezoid(density, grid, axis=1)
    assert np.all((areas > 0.8) & (areas < 1.1)), "densities of a row add up to about one"


def test_the_inside_of_a_network_is_what_it_predicts_with() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((160, 3))
    y = 5 + 2 * X[:, 0] + 0.3 * rng.standard_normal(160)
    ridge = AnchorSettings(name="ridge", kind=AnchorKind.sklearn, target="sklearn.linear_model.Ridge")
    regressor = PaperAnchorMoE(anchor=ridge, train=TrainingSettings(epochs=5)).fit(X, y)
    inside = computed._network(regressor, X, y, X[:40])
    assert len(inside["training/objective"]) == len(inside["training/validation"]) == 5
    assert inside["training/validation"].argmin() + 1 == regressor.diagnostics_["epoch"] == inside["training/epoch"]
    assert inside["calibration/line"].tolist() == [regressor.diagnostics_[f"calibration_{name}"] for name in "ab"]
    assert len(inside["calibration/y"]) == 20, "an eighth of the rows"
    slope, intercept = np.polyfit(inside["calibration/mean"], inside["calibration/y"], 1)
    assert inside["calibration/line"] == pytest.approx([slope, intercept], rel=1e-6)
    first, second = inside["router/first_axis"], inside["router/second_axis"]
    column = np.abs(first[None] - inside["router/z"][:, :1]).argmin(1)
    line = np.abs(second[None] - inside["router/z"][:, 1:]).argmin(1)
    same = inside["router/regions"][line, column] == inside["router/expert"]
    assert same.mean() > 0.9, "a test row lies in the region of its expert, but for those at a border"
    kept = {name: (regressor.predict_dist(X), y) for name in ("anchormoe_crossfit", "anchormoe")}
    drawn = computed._densities(kept)
    areas = np.trapezoid(drawn["anchormoe/density"], drawn["density_grid"], axis=1)
    assert areas == pytest.approx(np.ones(3), abs=0.02)


def test_one_dataset_has_all_nine_figures(selection: Selection) -> None:
    with style.house_style():
        drawn = list(figures.dataset_figures(selection, "yacht"))
    assert [item.name.split("/")[1] for item in drawn] == [
        *("predicted", "pit", "reliability", "width", "splits", "router", "training", "calibration", "densities")
    ]
    assert all(item.caption.endswith(".") for item in drawn)


def test_the_paper_has_all_four_figures() -> None:
    with style.house_style():
        names = [drawn.name for drawn in figures.paper_figures()]
    assert names == [
        *("paper/1_architecture", "paper/2_interval", "paper/3_gradient_field", "paper/4_learning_dynamics")
    ]


def test_a_drawing_is_the_same_every_time_and_needs_nothing_else(selection: Selection) -> None:
    with style.house_style():
        first, again = (style.svg_text(published_numbers.units(), "units") for _ in range(2))
        inline = style.inline_svg(published_numbers.units(), "units", 'a "label" & more')
    assert first == again
    ElementTree.fromstring(first)
    root = ElementTree.fromstring(inline)
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == 'a "label" & more'
    assert "var(--blue,#0072b2)" in inline
    links = re.findall(r'(?:href|src)="([^"]*)"', inline)
    assert all(link.startswith(("#", "data:")) for link in links)


def test_a_hostile_name_is_text_in_a_drawing() -> None:
    chosen = select(own_rows())
    with style.house_style():
        (drawn,) = [item for item in figures.dataset_figures(chosen, HOSTILE) if item.name.endswith("/splits")]
        inline = style.inline_svg(drawn.figure, drawn.name, drawn.title)
        heat_map = style.inline_svg(across.rank_heat_map(chosen.compared, "nll_y"), "heat", HOSTILE)
    for text in (inline, heat_map):
        assert "<script" not in text
        assert "<img" not in text
        ElementTree.fromstring(text)
    assert "&lt;script&gt;" in heat_map


def test_gains_are_measured_against_the_best_single_baseline(selection: Selection) -> None:
    with style.house_style():
        crps, nll = across.skill(selection.compared).axes
    means = selection.compared.means("nll_y")
    rivals = means.drop(columns=[name for name in means if name.startswith("anchormoe")])
    best = means.rank(axis=1)[rivals.columns].mean().idxmin()
    gains = next(line.get_xdata() for line in nll.lines if line.get_marker() == "o")
    np.testing.assert_allclose(gains, (means[best] - means["anchormoe_best"]).to_numpy())
    assert "CRPS" in crps.get_title(loc="left")


def test_labels_are_moved_apart_and_no_further() -> None:
    assert across._apart([1.0, 5.0], least=1) == [1.0, 5.0]
    assert across._apart([1.0, 1.0, 5.0], least=1) == [0.5, 1.5, 5.0]
    places = across._apart([1, 1.2, 1.9, 2.0, 2.1], least=1)
    assert np.all(np.diff(places) >= 1 - 1e-9)


def test_the_command_writes_both_formats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["figures", "only=units,paper/1_architecture", f"output={tmp_path}"]) == 0
    names = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*"))
    assert names == ["paper/1_architecture.png", "paper/1_architecture.svg", "units.png", "units.svg"]
    assert main(["figures", "only=unitz", f"output={tmp_path}"]) == 2
    assert "received unitz" in capsys.readouterr().err


def test_rows_without_a_method_to_compare_have_no_pit_figure(selection: Selection) -> None:
    empty = dataclasses.replace(selection, compared=Comparison(selection.rows.iloc[:0]))
    with style.house_style():
        names = [item.name for item in figures.across_figures(empty)]
    assert "resolution" in names
    assert "pit" not in names
