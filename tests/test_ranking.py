"""The command rank: a class in a file of the current folder gets its rank among all methods."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from anchormoe import cli
from anchormoe.running import store

CLASS = """
import numpy as np

class Constant:
    def fit(self, X, y):
        self.value = {value}
        return self

    def predict(self, X):
        return np.full(len(X), self.value)
"""


def write_class(folder: Path, value: str) -> None:
    sys.modules.pop("at_hand", None)
    (folder / "at_hand.py").write_text(CLASS.format(value=value))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a user's working folder with a class in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # two versions within a second would share the cached file
    write_class(tmp_path, "y.mean()")
    return tmp_path


def test_one_command_ranks_a_class_at_hand_among_the_shipped_methods(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["rank", "at_hand.Constant", "workers=1"]) == 0
    output = capsys.readouterr().out
    lines = {line.split("  ")[1].strip(): line.split() for line in output.splitlines() if line.startswith("  ")}
    cross_fitted, mine = lines["Anchor-MoE, cross-fitted"], lines["at_hand.Constant"]
    assert all(float(rank) < 2 for rank in cross_fitted[-3:])
    assert all(float(rank) > 10 for rank in mine[-3:]), "a constant is no match for any of them"
    (boston,) = [line for name, line in lines.items() if name == "boston"]
    assert len(boston) == 7
    assert cli.main(["tables", "form=comparison"]) == 0
    assert capsys.readouterr().out.count("at_hand.Constant") > 10


def test_a_class_that_was_changed_is_run_anew(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["rank", "at_hand.Constant", "dataset=yacht", "splits=1", "workers=1"]

    def scores() -> list[float]:
        assert cli.main(arguments) == 0
        assert "at_hand.Constant is not ranked yet: it must have 180 splits" in " ".join(
            capsys.readouterr().out.split()
        )
        return [row["rmse_y"] for row in store.read(folder / "results" / "ranking" / "yacht.jsonl")]

    first = scores()
    assert len(first) == 1
    assert scores() == first, "unchanged: nothing to do"
    write_class(folder, "y.max()")
    both = scores()
    assert len(both) == 2
    assert both[0] == first[0] != both[1]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "rank must be followed by the import path of a regressor, such as"),
        (["mdn"], "received mdn"),
        (["dataset=yacht"], "received dataset=yacht"),
        (["at_hand.Missing"], "module 'at_hand' has no attribute 'Missing'"),
        (["at_hand.Constant", "method.params.depth=3"], "at_hand.Constant has no depth"),
    ],
)
def test_a_mistake_is_one_line(
    folder: Path, arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["rank", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert expected in line
    assert not (folder / "results").exists()
