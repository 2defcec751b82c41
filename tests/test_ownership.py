"""One run at a time writes to a file of rows, without flock and without trust in any clock."""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from anchormoe import cli
from anchormoe.errors import UserError
from anchormoe.running import ownership
from anchormoe.running.ownership import Ownership


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs" / "yacht.jsonl"


def lock_of(rows: Path) -> Path:
    return rows.with_name(f"{rows.name}.lock")


def left_by_another_host(rows: Path, **changes: object) -> dict[str, object]:
    content = {"token": "other", "host": "node7", "pid": 17, "process": "elsewhere/17/1", "beat": 0, **changes}
    lock_of(rows).write_text(json.dumps(content))
    return content


def test_a_second_run_is_refused_and_told_who_the_first_is(rows: Path) -> None:
    with Ownership([rows]):
        with pytest.raises(UserError, match=rf"one run at a time, and process {os.getpid()} on \S+ is writing to it"):
            Ownership([rows]).__enter__()
        with Ownership([rows.with_name("boston.jsonl")]):
            pass  # another file may be written at the same time
    assert list(rows.parent.iterdir()) == []


def test_nothing_stays_locked_where_one_of_several_files_is_taken(rows: Path) -> None:
    boston = rows.with_name("boston.jsonl")
    with Ownership([rows]), pytest.raises(UserError):
        Ownership([boston, rows]).__enter__()
    with Ownership([boston, rows]):
        pass


def test_a_lock_of_a_killed_process_is_taken_over_at_once(rows: Path) -> None:
    code = (
        "import os, sys, time; from pathlib import Path; from anchormoe.running.ownership import Ownership\n"
        "with Ownership([Path(sys.argv[1])]): print('held', flush=True); time.sleep(60)"
    )
    owner = subprocess.Popen([sys.executable, "-c", code, str(rows)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    assert owner.stdout.readline() == "held\n"
    with pytest.raises(UserError, match=f"process {owner.pid}"):
        Ownership([rows]).__enter__()
    owner.kill()
    owner.wait()
    said: list[str] = []
    with Ownership([rows], said.append, watch_seconds=1000):
        pass
    assert len(said) == 1
    assert f"taking over {rows} from process {owner.pid}" in said[0]
    owner.stdout.close()


def test_what_a_run_left_that_was_killed_after_its_last_row_is_cleared_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rows = tmp_path / "runs" / "yacht.jsonl"
    arguments = ["dataset=yacht", "method=sklearn.linear_model.Ridge", "splits=1", "workers=1"]
    assert cli.main([*arguments, f"results_dir={tmp_path}"]) == 0
    (tmp_path / "anchormoe-run-left").mkdir()
    with Ownership([rows]):
        alive = lock_of(rows).read_text()
    lock_of(rows).write_text(alive.replace(f"/{os.getpid()}/", f"/{os.getpid()}/9"))  # of a process that started later
    assert cli.main([*arguments, f"results_dir={tmp_path}"]) == 0
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["runs", "yacht.jsonl"]
    left_by_another_host(rows)
    assert cli.main([*arguments, f"results_dir={tmp_path}"]) == 0
    assert lock_of(rows).exists(), "that run may be alive"


@pytest.mark.parametrize("content", [None, "", "{", "[1]", '{"pid": 1}'])
def test_a_lock_from_elsewhere_without_a_heartbeat_is_taken_over(rows: Path, content: str | None) -> None:
    left_by_another_host(rows)
    if content is not None:
        lock_of(rows).write_text(content)
    said: list[str] = []
    with Ownership([rows], said.append, watch_seconds=0.3):
        assert json.loads(lock_of(rows).read_text())["pid"] == os.getpid()
    assert len(said) == 2
    assert "watching for 0.3 s" in said[0]
    assert ("process 17 on node7" in said[1]) == (content is None)


def test_a_lock_from_elsewhere_with_a_heartbeat_is_respected(rows: Path) -> None:
    left_by_another_host(rows)
    beat = threading.Timer(0.2, lambda: left_by_another_host(rows, beat=1))
    beat.start()
    with pytest.raises(UserError, match="process 17 on node7 is writing to it"):
        Ownership([rows], lambda line: None, watch_seconds=10).__enter__()
    beat.join()


def test_a_lock_whose_owner_ends_meanwhile_is_free(rows: Path) -> None:
    left_by_another_host(rows)
    end = threading.Timer(0.2, lock_of(rows).unlink)
    end.start()
    with Ownership([rows], lambda line: None, watch_seconds=10):
        pass
    end.join()


def test_an_owner_that_was_suspended_notices_that_it_lost_the_file(rows: Path) -> None:
    with Ownership([rows]) as own:
        own.require(rows)
        left_by_another_host(rows)
        with pytest.raises(UserError, match="taken over by process 17 on node7"):
            own.require(rows)
    assert json.loads(lock_of(rows).read_text())["token"] == "other", "the other's lock is left alone"


@pytest.mark.parametrize("jump", [-(10**9), 10**9])
def test_clocks_that_jump_make_no_difference(rows: Path, monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    with Ownership([rows]):
        os.utime(lock_of(rows), (time.time() + jump, time.time() + jump))
        monkeypatch.setattr(time, "time", lambda: jump)
        with pytest.raises(UserError, match="is writing to it"):
            Ownership([rows]).__enter__()


def test_the_heart_beats(rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "BEAT_SECONDS", 0.02)
    with Ownership([rows]):
        first = json.loads(lock_of(rows).read_text())
        while json.loads(lock_of(rows).read_text())["beat"] == 0:
            time.sleep(0.01)
        assert json.loads(lock_of(rows).read_text())["token"] == first["token"]


def test_a_second_driver_is_one_line_and_loses_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "runs" / "yacht.jsonl"
    rows.parent.mkdir()
    arguments = ["dataset=yacht", "method=sklearn.linear_model.Ridge", "splits=1", "workers=1"]
    with Ownership([rows]):
        assert cli.main([*arguments, f"results_dir={tmp_path}"]) == 2
        assert "must be written by one run at a time" in capsys.readouterr().err
    assert cli.main([*arguments, f"results_dir={tmp_path}"]) == 0
