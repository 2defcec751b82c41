"""The documentation site builds without a warning, holds what it should, and loads nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (built.returncode, built.stdout, built.stderr) == (0, "", "")
    return folder


def test_every_page_of_the_project_is_on_the_site(site: Path) -> None:
    for page in sorted((ROOT / "docs").glob("*.md")):
        assert (site / "docs" / f"{page.stem}.html").exists()
    assert "Probabilistic regression of tables" in (site / "index.html").read_text()
    assert (site / "docs" / "images" / "ranks_crps_y.svg").exists()


@pytest.mark.parametrize(
    "name",
    [
        "estimator.regressor.AnchorMoERegressor",
        "estimator.regressor.AnchorMoERegressor.predict_interval",
        "estimator.experts.suggest_num_experts",
        "distributions.base.Distribution.quantile",
        "distributions.mixture.GaussianMixture",
        "data.columns.Columns.matrix",
        "estimator.skpro_adapter.AnchorMoEProbaRegressor",
        "run",
        "load_results",
        "methods.Regressor.predict_dist",
    ],
)
def test_the_reference_has(name: str, site: Path) -> None:
    assert f'id="anchormoe.{name}"' in (site / "docs" / "api.html").read_text()


def test_links_to_source_files_are_text(site: Path) -> None:
    page = (site / "index.html").read_text()
    assert "anchormoe/model/network.py" in page
    assert 'network.py"' not in page
    assert 'href="docs/regressor.html"' in page


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r"<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=\"(?:https?:)?//[^\"]+", page.read_text()
        )
        assert loaded == [], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", sheet.read_text()), sheet
