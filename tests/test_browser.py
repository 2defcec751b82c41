"""The report in a real browser, Debian's chromium, without a network.

`make browser-tools` installs what these tests need; without it they are skipped.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from report_rows import HOSTILE, own_rows

from anchormoe.paths import shipped
from anchormoe.report import figures
from anchormoe.report.html import page as report_page
from anchormoe.report.selection import select
from anchormoe.rows import Row
from anchormoe.running.rerun import rerun_command
from anchormoe.running.store import load_results

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[dev]'")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
AXE = Path(__file__).parent.parent / ".venv" / "browser" / "node_modules" / "axe-core" / "axe.min.js"
CELL = "split_by_split/boston/anchormoe/full/published/gbdt/1/77f77fb469cbcea3"

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: make browser-tools"),
    pytest.mark.xdist_group("browser"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator:
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


def command_of_the_cell(row: Row, splits: Sequence[int]) -> str | None:
    """Compose the command of the one run that is opened; test_report.py composes all."""
    return rerun_command(row, splits) if CELL.endswith(row["config_hash"]) else None


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the committed rows; of the figures per dataset those of one, which are enough to test with."""
    drawn = figures.dataset_figures
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            figures, "dataset_figures", lambda chosen, name: drawn(chosen, name) if name in ("boston", "yacht") else ()
        )
        text = report_page.build(select(load_results(shipped("results"))), command_of_the_cell)
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(text, encoding="utf-8")
    assert path.stat().st_size < 3e6
    return path


@pytest.fixture(scope="module")
def own_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own") / "own.html"
    path.write_text(report_page.build(select(own_rows()), rerun_command), encoding="utf-8")
    return path


class Watched:
    """A page with everything it asked for or complained about."""

    def __init__(self, browser, path: Path, address: str = "", **settings) -> None:
        self.context = browser.new_context(offline=True, permissions=["clipboard-read", "clipboard-write"], **settings)
        self.page = self.context.new_page()
        self.problems: list[str] = []
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", lambda dialog: self.problems.append(f"dialog {dialog.message}"))
        self.page.on("request", lambda request: self._note(request.url, path))
        self.page.goto(f"{path.as_uri()}{address}")
        self.page.wait_for_selector("html[data-ready]")

    def _note(self, url: str, path: Path) -> None:
        if not url.startswith((path.as_uri(), "data:", "blob:")):
            self.problems.append(f"request {url}")

    def texts(self, selector: str) -> list[str]:
        return self.page.locator(selector).all_inner_texts()


@pytest.fixture
def opened(browser, report: Path, request: pytest.FixtureRequest) -> Iterator:
    """Open the report, and expect no request and no message in the console by the end."""
    pages: list[Watched] = []

    def opener(address: str = "", path: Path = report, **settings) -> Watched:
        pages.append(Watched(browser, path, address, **settings))
        return pages[-1]

    yield opener
    for watched in pages:
        assert watched.problems == []
        watched.context.close()


def test_it_opens_with_the_answers_and_sorts(opened) -> None:
    watched = opened()
    page = watched.page
    assert page.locator(".answers > li").count() == 3
    assert page.locator(".answers svg").count() == 3
    first = "#comparison-table tbody tr:first-child th"
    assert page.inner_text(first) == "Anchor-MoE, best"
    page.click("#comparison-table thead th:nth-child(1) button")
    names = watched.texts("#comparison-table tbody th")
    assert names == sorted(names, key=str.lower)
    assert page.get_attribute("#comparison-table thead th:nth-child(1)", "aria-sort") == "ascending"
    page.keyboard.press("Enter")  # the heading kept the focus: again, from the keyboard
    assert watched.texts("#comparison-table tbody th") == names[::-1]
    assert "sort=0%3Adown" in page.url


def test_filters_and_search(opened) -> None:
    watched = opened()
    page = watched.page
    page.fill("#search", "ngboost")
    assert sorted(watched.texts("#comparison-table tbody th")) == ["NGBoost", "NGBoost, over-trained"]
    page.select_option("#run-dataset", "wine")
    page.select_option("#run-ablation", "no_router")
    lines = watched.texts("#runs-table tbody tr")
    assert lines
    assert all(line.startswith("wine") and "no_router" in line for line in lines)
    page.fill("#run-search", "nothing like this")
    assert "Nothing matches" in page.inner_text("#runs-table")
    page.fill("#audit-search", "cooling")
    assert page.locator("#audit-table tbody tr:visible").count() == 1
    assert page.inner_text("#audit-count") == "1 of 35 findings"


def test_the_unit_switch_shows_how_the_ranking_changes(opened) -> None:
    watched = opened()
    page = watched.page
    row = page.locator("#comparison-table tbody tr", has=page.locator("th", has_text=re.compile("^Anchor-MoE$")))
    before = row.inner_text()
    page.check("input[value=mixed]")
    assert "▲9" in row.inner_text()
    assert row.inner_text() != before
    assert page.inner_text("#unit-note").startswith("Against original units: Anchor-MoE gains 9 places")
    page.check("input[value=z]")
    assert "0.586" in row.inner_text(), "the mean NLL of the z-scored target on boston, protocol=clean"
    page.select_option("#metric", "coverage_90")
    assert page.inner_text("#unit-note") == "This metric has no unit to switch."


def test_a_cell_opens_its_splits_beside_the_published_ones(opened) -> None:
    watched = opened()
    page = watched.page
    page.locator("#check-table tbody tr", has_text="boston").filter(has_text="full").filter(has_text="NLL").locator(
        "button"
    ).click()
    assert page.inner_text("#cell-title") == "Anchor-MoE on boston"
    assert page.locator("#cell-splits tbody tr").count() == 20
    assert page.inner_text("#cell-splits tbody tr:nth-child(2)").split() == ["2", "0.2538", "0.2538", "2.513e-5"]
    assert page.locator("#cell-chart circle").count() == 20
    assert page.locator("#cell-chart rect").count() == 20
    facts = page.inner_text("#cell-facts")
    for fact in (
        "77f77fb469cbcea3",
        "bb9509cda8e4107522d803c47bc5a4eac484e7f2a6cea61da0dafadd510944a6",
        "9c84647291b4",
        "torch 2.13.0+cpu",
    ):
        assert fact in facts
    page.click("#copy-command")
    sync_api.expect(page.locator("#status")).to_have_text("Copied to the clipboard.")
    assert page.evaluate("navigator.clipboard.readText()") == "anchormoe-bench dataset=boston anchor=gbdt splits=1-20"
    page.keyboard.press("Escape")
    assert not page.locator("#cell").is_visible()
    assert "open=" not in page.url


def test_a_deep_link_opens_what_it_names(opened) -> None:
    from urllib.parse import quote

    watched = opened(f"#unit=z&metric=crps_y&show=yacht&open={quote(CELL, safe='')}&om=rmse_y")
    page = watched.page
    assert page.inner_text("#cell-title") == "Anchor-MoE on boston"
    assert page.input_value("#cell-metric") == "rmse_y"
    assert page.input_value("#metric") == "crps_y"
    assert page.is_checked("input[value=z]")
    assert page.input_value("#figures-dataset") == "yacht"
    address = page.url
    page.click("#copy-link")
    sync_api.expect(page.locator("#status")).to_have_text("Copied to the clipboard.")
    assert page.evaluate("navigator.clipboard.readText()") == address
    section = opened("#audit")
    sync_api.expect(section.page.locator("#audit-title")).to_be_in_viewport()


def test_downloads(opened) -> None:
    page = opened().page
    with page.expect_download() as rows:
        page.click("#all-rows")
    lines = Path(rows.value.path()).read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1 + len(load_results(shipped("results")))
    assert lines[0].startswith("experiment,dataset,method")
    with page.expect_download() as table:
        page.click("button[data-csv=comparison-table]")
    assert Path(table.value.path()).read_text(encoding="utf-8").splitlines()[0].startswith("method,average rank,boston")
    with page.expect_download() as figure:
        page.click("figure[data-name=units] button")
    drawn = Path(figure.value.path()).read_text(encoding="utf-8")
    assert drawn.startswith("<svg")
    assert "var(" not in drawn


def test_figures_of_a_dataset_can_be_chosen(opened) -> None:
    watched = opened()
    assert watched.page.locator("#dataset-figures figure").count() == 9
    watched.page.select_option("#figures-dataset", "yacht")
    assert "yacht/router" in [
        figure.get_attribute("data-name") for figure in watched.page.locator("#dataset-figures figure").all()
    ]
    assert "show=yacht" in watched.page.url


def test_dark_and_light(opened) -> None:
    def brightness(page) -> float:
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", colour)[:3]))

    assert brightness(opened().page) == 3 * 255
    page = opened(color_scheme="dark").page
    assert brightness(page) < 120
    page.click("#theme")
    assert brightness(page) == 3 * 255


@pytest.mark.parametrize("own", [False, True])
def test_nothing_overflows_a_phone(opened, report: Path, own_report: Path, own: bool) -> None:
    address = "" if own else f"#open={CELL.replace('/', '%2F')}"
    page = opened(address, own_report if own else report, viewport={"width": 390, "height": 844}).page
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    if not own:
        assert page.evaluate("document.getElementById('cell').getBoundingClientRect().right") <= 390
        assert page.evaluate(
            "document.getElementById('cell').scrollWidth <= document.getElementById('cell').clientWidth"
        )


def test_it_prints_without_controls(opened, tmp_path: Path) -> None:
    page = opened(color_scheme="dark").page
    printed = page.pdf(path=str(tmp_path / "report.pdf"))
    pages = len(re.findall(rb"/Type\s*/Page[^s]", printed))
    assert 5 <= pages <= 25
    page.emulate_media(media="print")
    assert not page.locator("#theme").is_visible()
    assert not page.locator("#metric").is_visible()
    assert page.locator(".answers svg").first.is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


@pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not installed: make browser-tools")
@pytest.mark.parametrize(
    ("scheme", "where", "rules"),
    [
        ("light", "document", None),
        ("light", "'#cell'", None),
        ("dark", "'#answers, #compare, #audit'", "color-contrast"),
    ],
)
def test_no_accessibility_rule_is_violated(opened, scheme: str, where: str, rules: str | None) -> None:
    page = opened(f"#open={CELL}" if "cell" in where else "", color_scheme=scheme).page
    page.evaluate(AXE.read_text(encoding="utf-8"))
    only = f", runOnly: {{type: 'rule', values: ['{rules}']}}" if rules else ""
    found = page.evaluate(
        f"axe.run({where}, {{resultTypes: ['violations']{only}}}).then((result) => result.violations)"
    )
    assert [(one["id"], [node["html"][:150] for node in one["nodes"][:3]]) for one in found] == []


def test_hostile_names_are_shown_as_text(opened, own_report: Path) -> None:
    watched = opened(path=own_report)
    page = watched.page
    assert page.evaluate("window.hacked") is None
    assert watched.texts("#comparison-table tbody th")[0] == "mine.Best<img src=x onerror='window.hacked=1'>"
    assert HOSTILE in watched.texts("#comparison-table thead th")
    assert page.locator("main img").count() == 0
    page.select_option("#figures-dataset", HOSTILE)
    page.locator("#runs-table tbody tr").first.click()
    assert HOSTILE in page.inner_text("#cell-title")
    assert HOSTILE in page.inner_text("#cell-facts")
    assert page.is_visible("#cell-no-rerun")
    assert page.evaluate("window.hacked") is None
    assert page.locator("#check-table").count() == 0
    page.keyboard.press("Escape")
    page.check("input[value=z]")
    assert "no ranking" in page.inner_text("#unit-note")
