"""Every command of docs/your-data.md is run in order, in one folder, and prints what the page shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import refresh_outputs

from anchormoe import cli

PAGE = (Path(__file__).parent.parent / "docs" / "your-data.md").read_text()
COMMAND = re.compile(r"^    \$ anchormoe-bench (?P<line>.+)\n(?P<shown>(?:    (?!\$ ).*\n)*)", re.MULTILINE)


def test_the_page_from_a_file_to_a_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    refresh_outputs.refreshed(PAGE, "your-data.md")  # writes the file
    commands = list(COMMAND.finditer(PAGE))
    assert len(commands) == len(re.findall(r"^    \$ ", PAGE, re.MULTILINE)) >= 5
    for command in commands:
        assert cli.main(shlex.split(command["line"])) == 0, command["line"]
        printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
        for line in command["shown"].splitlines():
            shown = line.removeprefix("    ").rstrip()
            if shown.endswith("..."):  # the rest of the line, such as seconds, is another each time
                assert any(found.startswith(shown.removesuffix("...").rstrip()) for found in printed), shown
            else:
                assert shown in printed
    assert (tmp_path / "houses.html").stat().st_size > 10_000
