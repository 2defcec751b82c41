"""Fits that several rows share are made once."""

import itertools
import time
from pathlib import Path
from types import SimpleNamespace

import joblib.memory
import pytest

from anchormoe.model.sharing import shared, shared_fits

calls: list[int] = []


def doubled(number: int) -> int:
    calls.append(number)
    return 2 * number


def test_a_fit_is_made_once_within_a_run_and_each_time_outside(tmp_path: Path) -> None:
    calls.clear()
    with shared_fits(str(tmp_path)):
        assert [shared(doubled)(number) for number in (1, 2, 1)] == [2, 4, 2]
    assert calls == [1, 2]
    assert [shared(doubled)(1), shared(doubled)(1)] == [2, 2]
    assert calls == [1, 2, 1, 1]


def test_a_slow_disk_is_no_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Warnings are errors in these tests, and a row that raises is a failed row."""
    clock = itertools.count(time.time(), 2.0)
    monkeypatch.setattr(joblib.memory, "time", SimpleNamespace(time=lambda: next(clock)))
    with shared_fits(str(tmp_path)):
        assert shared(doubled)(3) == 6
