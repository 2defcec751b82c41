"""The README's code runs; its command lines, and those of docs/, are understood and their links lead somewhere."""

import re
import shlex
from pathlib import Path

import pytest

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


def test_python_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    assert (tmp_path / "my_results" / "runs" / "yacht.jsonl").exists()


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
