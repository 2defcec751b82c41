"""Whole runs through the command line: resume, kill -9, workers, failures. Small settings, the real program."""

import functools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from anchormoe import cli
from anchormoe.rows import Row
from anchormoe.running import store
from anchormoe.running.tasks import make_task

QUICK = ["dataset=yacht", "anchor=ridge", "train.epochs=3"]
METRICS = ("rmse_y", "rmse_y_uncalibrated", "nll_z", "nll_y", "crps_y", "coverage_90", "calibration_a", "calibration_b")


def run(results: Path, *arguments: str) -> int:
    return cli.main([*QUICK, f"results_dir={results}", *arguments])


def rows_by_split(results: Path, dataset: str = "yacht") -> dict[int, Row]:
    rows = store.read(results / "runs" / f"{dataset}.jsonl")
    assert len({row["split"] for row in rows}) == len(rows)
    return {row["split"]: row for row in rows}


def numbers(rows: dict[int, Row]) -> dict[int, list[float]]:
    return {split: [row[name] for name in METRICS] for split, row in rows.items()}


def test_numbers_do_not_depend_on_order_workers_or_resume(tmp_path: Path) -> None:
    assert run(tmp_path / "at_once", "splits=1-4", "workers=1") == 0
    for part in ("splits=4", "splits=2", "splits=1-4"):
        assert run(tmp_path / "in_parts", part, "workers=1") == 0
    assert run(tmp_path / "two_workers", "splits=1-4", "workers=2") == 0
    expected = numbers(rows_by_split(tmp_path / "at_once"))
    assert sorted(expected) == [1, 2, 3, 4]
    assert numbers(rows_by_split(tmp_path / "in_parts")) == expected
    assert numbers(rows_by_split(tmp_path / "two_workers")) == expected


def test_rows_that_share_a_fit_have_the_numbers_of_rows_that_do_not(tmp_path: Path) -> None:
    """In protocol=clean no_cal is the full model without its linear map, and no_router has the same anchor."""
    together, alone = tmp_path / "together", tmp_path / "alone"
    settings = ("protocol=clean", "splits=1-2")
    sweep = [*QUICK, *settings, "ablation=full,no_cal,no_router", f"results_dir={together}", "workers=1"]
    assert cli.main(sweep) == 0
    for ablation in ("full", "no_cal", "no_router"):
        assert run(alone, *settings, f"ablation={ablation}", "workers=1") == 0
    by_key = [
        {(row["ablation"], row["split"]): row for row in store.read(folder / "runs" / "yacht.jsonl")}
        for folder in (together, alone)
    ]
    assert numbers(by_key[0]) == numbers(by_key[1])
    full, no_cal = (by_key[0][ablation, 1] for ablation in ("full", "no_cal"))
    assert no_cal["rmse_y"] == full["rmse_y_uncalibrated"] != full["rmse_y"]
    assert no_cal["nll_z"] == full["nll_z"]


def test_workers_own_one_thread_each_whatever_the_environment_says(tmp_path: Path) -> None:
    """Two threads in two processes on two cores run many times slower."""
    command = [sys.executable, "-m", "anchormoe.cli", *QUICK, f"results_dir={tmp_path}", "splits=1-2", "workers=2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    assert [row["threads"] for row in rows_by_split(tmp_path).values()] == [1, 1]


def test_a_second_run_stores_nothing_new(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "splits=1-2", "workers=1") == 0
    before = (tmp_path / "runs" / "yacht.jsonl").read_bytes()
    assert run(tmp_path, "splits=1-2", "workers=1") == 0
    assert (tmp_path / "runs" / "yacht.jsonl").read_bytes() == before
    assert "2 of 2 splits are stored already" in capsys.readouterr().out


def test_other_settings_are_other_rows(tmp_path: Path) -> None:
    assert run(tmp_path, "splits=1", "workers=1") == 0
    assert run(tmp_path, "splits=1", "workers=1", "model.num_experts=4") == 0
    assert len(store.read(tmp_path / "runs" / "yacht.jsonl")) == 2


def test_a_row_says_what_it_measured_and_with_what(tmp_path: Path) -> None:
    assert run(tmp_path, "splits=3", "workers=1") == 0
    row = rows_by_split(tmp_path)[3]
    assert (row["dataset"], row["method"], row["ablation"], row["protocol"]) == (
        "yacht",
        "anchormoe",
        "full",
        "published",
    )
    assert (row["anchor"], row["seed"], row["split"], row["status"]) == ("ridge", 1, 3, "ok")
    assert row["threads"] == 1
    assert {"numpy", "scikit-learn", "torch", "xgboost"} <= set(row["versions"])
    assert row["fit_seconds"] > 0
    assert row["peak_memory_mb"] > 10
    for name in ("config_hash", "data_sha256", "code_version", "code_dirty", "cpu", "epoch", "anchor_stage"):
        assert name in row


def test_a_failed_split_is_recorded_runs_again_and_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from anchormoe import methods

    original = methods.make

    def fails_on_split_2(name, arguments, **columns):
        if arguments["weight_draws"] == 2:
            raise FloatingPointError("on purpose")
        return original(name, arguments, **columns)

    monkeypatch.setattr(methods, "make", fails_on_split_2)
    assert run(tmp_path, "splits=1-3", "workers=1") == 1
    rows = rows_by_split(tmp_path)
    assert {split: row["status"] for split, row in rows.items()} == {1: "ok", 2: "failed", 3: "ok"}
    assert "on purpose" in rows[2]["error"]
    assert "1 of 3 splits failed" in capsys.readouterr().out
    monkeypatch.undo()
    assert run(tmp_path, "splits=1-3", "workers=1") == 0
    assert {row["status"] for row in rows_by_split(tmp_path).values()} == {"ok"}


def test_a_script_without_a_main_guard_may_call_run(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"""
import anchormoe
rows = anchormoe.run(*{QUICK}, splits="1-2", workers=2, results_dir={str(tmp_path)!r})
assert list(rows.split) == [1, 2]
"""
    )
    assert subprocess.run([sys.executable, script], stdout=subprocess.DEVNULL, check=False).returncode == 0


def test_a_dead_worker_costs_the_splits_under_way_and_nothing_else(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "anchormoe.cli", *QUICK, "workers=2", f"results_dir={tmp_path}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    path = tmp_path / "runs" / "yacht.jsonl"
    while not (path.exists() and path.read_bytes()):
        time.sleep(0.01)
    workers = [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and b"spawn_main" in _command_line(entry) and _parent(entry) == process.pid
    ]
    os.kill(workers[0], signal.SIGKILL)
    output, errors = process.communicate()
    assert process.returncode == 1
    assert "Traceback" not in output + errors
    rows = rows_by_split(tmp_path)
    failed = [row for row in rows.values() if row["status"] == "failed"]
    assert len(rows) == 20
    assert len(failed) == 1, "the split that its worker was computing"
    assert all("worker process died" in row["error"] for row in failed)
    assert run(tmp_path, "workers=1") == 0
    assert {row["status"] for row in rows_by_split(tmp_path).values()} == {"ok"}


def _command_line(entry: Path) -> bytes:
    try:
        return (entry / "cmdline").read_bytes()
    except OSError:  # the process has ended meanwhile
        return b""


def _parent(entry: Path) -> int:
    return int((entry / "stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_told_to_stop_says_so_and_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C reaches all processes of the terminal, workers too; a kill reaches only its process."""
    command = [sys.executable, "-m", "anchormoe.cli", *QUICK, "workers=2", f"results_dir={tmp_path}"]
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(temporary)}
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    # Tests may run in the background, where Ctrl-C is ignored; this program must not inherit that.
    attended = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(command, env=environment, start_new_session=True, preexec_fn=attended, **pipes)
    path = tmp_path / "runs" / "yacht.jsonl"
    while not (path.exists() and path.read_bytes()):
        time.sleep(0.01)
    (os.killpg if number is signal.SIGINT else os.kill)(process.pid, number)
    _, errors = process.communicate()
    assert process.returncode == 130
    assert "the same command goes on" in errors
    assert "Traceback" not in errors
    assert not list(temporary.iterdir())
    stored = set(rows_by_split(tmp_path))
    assert 0 < len(stored) < 20
    assert run(tmp_path, "workers=1") == 0
    assert len(rows_by_split(tmp_path)) == 20


def test_kill_9_ten_times_loses_and_duplicates_nothing(tmp_path: Path) -> None:
    """Each round is killed as soon as it has stored something new; the last one finishes the sweep."""
    command = [sys.executable, "-m", "anchormoe.cli", *QUICK, "dataset=yacht,boston", "workers=2"]
    command.append(f"results_dir={tmp_path}")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    paths = [tmp_path / "runs" / f"{name}.jsonl" for name in ("yacht", "boston")]

    def stored() -> list[bytes]:
        return [line for path in paths if path.exists() for line in path.read_bytes().splitlines()]

    kills = 0
    while kills < 10:
        before = stored()
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while len(stored()) == len(before) and process.poll() is None:
            time.sleep(0.01)
        time.sleep(0.02 * (kills % 5))  # at another moment of a split each time
        finished = process.poll() is not None
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert set(before) <= set(stored())
        assert not finished, "the sweep ended before it was killed ten times"
        kills += 1
    time.sleep(1.0)  # orphaned workers notice and exit
    assert subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False).returncode == 0
    rows = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    found = sorted((row["dataset"], row["split"]) for row in rows)
    assert found == sorted((name, split) for name in ("yacht", "boston") for split in range(1, 21))


def test_seed_moves_every_stream(tmp_path: Path) -> None:
    from anchormoe.config.compose import jobs

    (one,) = jobs(["dataset=yacht", "ablation=no_router"])
    (two,) = jobs(["dataset=yacht", "ablation=no_router", "seed=2"])
    first, second = (make_task(job.config(), 7) for job in (one, two))
    assert [task.arguments["inner_seed"] for task in (first, second)] == [8, 9]
    assert [task.arguments["random_state"] for task in (first, second)] == [1, 2]
    assert first.split.rows(308)[1].tolist() != second.split.rows(308)[1].tolist()
