"""A short part of the campaign of faults, for every change; `make faults` is the long one."""

import random
from pathlib import Path

from store_kills import kill_store


def test_a_killed_writer_loses_doubles_and_changes_nothing(tmp_path: Path) -> None:
    outcome = kill_store(5, tmp_path / "store", random.Random(0))
    assert outcome.kills == 5
    assert outcome.rows > 0
    assert outcome.is_clean
