"""The README's code runs and its command lines are understood."""

import re
import shlex
from pathlib import Path

import pytest

from anchormoe.bench import parse
from anchormoe.cli import COMMANDS
from anchormoe.runner import require_runnable

README = (Path(__file__).parent.parent / "README.md").read_text()
COMMAND_LINES = sorted(set(re.findall(r"^    (?:\$ )?anchormoe-bench (.+)$", README, re.MULTILINE)))


def test_python_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    assert (tmp_path / "my_results" / "runs" / "yacht.jsonl").exists()


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_command_lines_are_understood(line: str) -> None:
    arguments = shlex.split(line, comments=True)
    if arguments[0] in COMMANDS or arguments == ["--help"]:
        return
    jobs = parse(arguments)
    assert jobs
    for job in jobs:
        require_runnable(job.config())


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (Path(__file__).parent.parent / target).exists(), target


def test_make_targets_exist() -> None:
    makefile = (Path(__file__).parent.parent / "Makefile").read_text()
    for target in set(re.findall(r"\bmake ([a-z-]+)", README)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
