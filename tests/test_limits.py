"""Limits of a fit: a method that breaks one is a failed row with the reason, and the rest goes on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from anchormoe import cli
from anchormoe.commands.run import parse
from anchormoe.rows import Row
from anchormoe.running import store
from anchormoe.running.identity import config_hash

CLASSES = """
import time
import numpy as np

class Quick:
    def fit(self, X, y):
        return self

    def predict(self, X):
        return np.zeros(len(X))

class Endless(Quick):
    def fit(self, X, y):
        time.sleep(600)
        return self

class Greedy(Quick):
    def fit(self, X, y):
        self.kept = np.ones(2**27)  # 1 GB
        time.sleep(600)
        return self

class Broken(Quick):
    def predict(self, X):
        return np.zeros((len(X), 2))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    sys.modules.pop("limited", None)
    (tmp_path / "limited.py").write_text(CLASSES)
    return tmp_path


def rows(folder: Path) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in store.read(folder / "results" / "ranking" / "yacht.jsonl"):
        found.setdefault(row["method"].partition(".")[2], []).append(row)
    return found


def test_a_fit_over_its_time_is_ended_and_the_others_go_on(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    methods = "methods=limited.Endless,limited.Quick"
    arguments = ["rank", methods, "dataset=yacht", "splits=1-3", "workers=1", "limit.seconds=10"]
    assert cli.main(arguments) == 1
    output = " ".join(capsys.readouterr().out.split())
    found = rows(folder)
    assert [row["status"] for row in found["Quick"]] == ["ok"] * 3
    assert {row["error"].partition(";")[0] for row in found["Endless"]} == {"stopped after limit.seconds=10"}
    assert any(row.get("tried") is False for row in found["Endless"]), "it would fail as well"
    assert "limited.Quick is the only method with 3 splits" in output
    assert output.count("failed: yacht limited.Endless") == 1
    assert "and 2 more: stopped after limit.seconds=10" in output

    assert cli.main(arguments) == 1
    assert "6 of 6 splits are stored already" in capsys.readouterr().out, "a rerun does not wait for the limits again"
    assert rows(folder) == found


def test_a_fit_over_its_memory_is_ended(folder: Path) -> None:
    assert cli.main(["rank", "methods=limited.Greedy", "dataset=yacht", "splits=1", "limit.memory_gb=1.2"]) == 1
    (row,) = rows(folder)["Greedy"]
    assert row["error"].startswith("stopped above limit.memory_gb=1.2")
    assert row["limit"] == {"memory_gb": 1.2}


def test_limits_change_no_identity() -> None:
    (plain,) = parse(["dataset=yacht"])
    (limited,) = parse(["dataset=yacht", "limit.seconds=3", "limit.memory_gb=2", "debug=on"])
    assert config_hash(plain.config()) == config_hash(limited.config())


def test_one_cause_is_reported_once_and_with_its_traceback_if_asked_for(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["rank", "limited.Broken", "dataset=yacht,boston", "splits=1-3", "workers=1"]
    assert cli.main(arguments) == 1
    output = " ".join(capsys.readouterr().out.split())
    assert output.count("predict must return one number per row") == 1
    assert "and 5 more: ValueError: predict must return one number per row" in output
    assert "Traceback" not in output
    assert cli.main([*arguments, "debug=on"]) == 1
    output = capsys.readouterr().out
    assert output.count("Traceback (most recent call last)") == 1
    assert "any_regressor.py" in output
