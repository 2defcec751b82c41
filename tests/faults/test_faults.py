"""A short part of the campaign of faults, for every change; `make faults` is the long one."""

import random
from pathlib import Path

import engines_path  # noqa: F401  (makes the modules of tests/objectstore importable)
import pytest
from object_faults import object_store
from store_kills import kill_store


def test_a_killed_writer_loses_doubles_and_changes_nothing(tmp_path: Path) -> None:
    outcome = kill_store(5, tmp_path / "store", random.Random(0))
    assert outcome.kills == 5
    assert outcome.rows > 0
    assert outcome.is_clean


def test_a_killed_writer_to_an_object_store_loses_doubles_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with object_store(tmp_path, monkeypatch.setenv) as server:
        outcome = kill_store(4, server.new_bucket(), random.Random(0))
    assert outcome.kills == 4
    assert outcome.rows > 0
    assert outcome.is_clean
