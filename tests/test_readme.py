"""The Python code of README and docs/ runs and prints what they say; their command lines are understood."""

import re
import shlex
from pathlib import Path

import pytest
import refresh_outputs

from anchormoe.cli import COMMANDS
from anchormoe.commands.run import parse
from anchormoe.running.tasks import require_runnable

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND_LINES = sorted(
    {
        line
        for page in PAGES
        for line in re.findall(r"^    (?:\$ )?anchormoe-bench (.+)$", page.read_text(), re.MULTILINE)
        if "mypackage" not in line and "<name>" not in line  # the reader's own
    }
)


@pytest.mark.parametrize("page", refresh_outputs.pages(), ids=lambda page: page.name)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    text = page.read_text()
    assert refresh_outputs.refreshed(text, page.name) == text, "run make docs-outputs"
    if page.name == "README.md":
        assert (tmp_path / "my_results" / "runs" / "yacht.jsonl").exists()


def test_every_python_block_is_found() -> None:
    """Blocks are fenced in one way, and each of them is run."""
    for page in PAGES:
        text = page.read_text()
        assert len(refresh_outputs.BLOCK.findall(text)) == len(
            re.findall(r"(?mi)^ *[`~]{3,} *(?:python|py|pycon)\b", text)
        )
    assert {"README.md", "regressor.md"} <= {page.name for page in refresh_outputs.pages()}


def test_what_a_block_prints_is_written_below_it() -> None:
    page = "```python\nnumber = 1\n```\n\n```python\nprint(number + 1)\n```\n\n```text\n3\n```\n\nThe end.\n"
    assert refresh_outputs.refreshed(page, "page") == page.replace("3", "2")
    with pytest.raises(ZeroDivisionError) as caught:
        refresh_outputs.refreshed("A page.\n\n```python\n1 / 0\n```\n", "page")
    assert caught.traceback[-1].lineno == 3, "the line of the page, counted from 0"


@pytest.fixture
def _houses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader's own dataset, as the pages describe it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf" / "dataset").mkdir(parents=True)
    (tmp_path / "conf" / "dataset" / "houses.yaml").write_text("name: houses\npath: houses.csv\ntarget: price\n")
    (tmp_path / "houses.csv").write_text("area,price\n" + "".join(f"{n},{n * n}\n" for n in range(50)))


@pytest.mark.usefixtures("_houses")
@pytest.mark.parametrize("line", COMMAND_LINES)
def test_command_lines_are_understood(line: str) -> None:
    arguments = shlex.split(line, comments=True)
    if arguments[0] in COMMANDS or "--help" in arguments or "--cfg" in arguments:
        return
    jobs = parse(arguments)
    assert jobs
    for job in jobs:
        require_runnable(job.config())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"\bmake ([a-z-]+)", README)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
