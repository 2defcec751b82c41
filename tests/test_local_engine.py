"""The engine of this machine: a worker that dies costs its task and nothing else, and nothing stays behind."""

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from multiprocessing.context import SpawnProcess
from pathlib import Path

import pytest

from anchormoe import cli, methods
from anchormoe.errors import UserError
from anchormoe.running.engines import local
from anchormoe.running.engines.base import WorkerDied
from anchormoe.running.engines.local import LocalProcesses
from anchormoe.running.temporary import temporary_folder


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalProcesses]:
    with LocalProcesses(2) as opened:
        yield opened


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _die_in_the_middle_of_a_result() -> None:
    frame = sys._getframe()
    while "pipe" not in frame.f_locals:
        assert frame.f_back is not None
        frame = frame.f_back
    frame.f_locals["pipe"]._send(b"\x00\x00\x10\x00only a part")
    _die()


def test_a_worker_that_dies_costs_its_own_task(engine: LocalProcesses) -> None:
    futures = [engine.submit(pow, 2, 3), engine.submit(_die), engine.submit(pow, 2, 5)]
    assert futures[0].result(60) == 8
    assert isinstance(futures[1].exception(60), WorkerDied)
    assert futures[2].result(60) == 32


def test_a_worker_killed_while_it_sends_its_result_does_not_hang_the_run(engine: LocalProcesses) -> None:
    assert isinstance(engine.submit(_die_in_the_middle_of_a_result).exception(60), WorkerDied)
    assert engine.submit(pow, 2, 3).result(60) == 8


def test_workers_that_died_while_idle_lose_no_task(engine: LocalProcesses) -> None:
    """A process that has just been killed may take a call before its end: the call comes to another one."""
    pids = {engine.submit(os.getpid).result(60) for _ in range(4)}
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    futures = [engine.submit(os.getpid) for _ in range(4)]
    assert not {future.result(60) for future in futures} & pids


def _die_and_leave_a_child() -> None:
    if os.fork() == 0:
        time.sleep(20)
        os._exit(0)
    _die()


def test_a_child_of_a_dead_worker_does_not_keep_the_run_waiting(engine: LocalProcesses) -> None:
    """It has inherited the pipe, so the pipe does not end."""
    start = time.monotonic()
    assert isinstance(engine.submit(_die_and_leave_a_child).exception(60), WorkerDied)
    assert time.monotonic() - start < 15


def test_no_process_to_be_had_is_a_lost_task_and_not_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(process: SpawnProcess) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    with LocalProcesses(2) as engine:
        with monkeypatch.context() as patch:
            patch.setattr(SpawnProcess, "start", refuse)
            error = engine.submit(pow, 2, 3).exception(60)
        assert isinstance(error, WorkerDied)
        assert "Resource temporarily unavailable" in str(error)
        assert engine.submit(pow, 2, 3).result(60) == 8


def test_what_a_task_raises_comes_back(engine: LocalProcesses) -> None:
    assert isinstance(engine.submit(pow, 0, -1).exception(60), ZeroDivisionError)
    assert isinstance(engine.submit(sys.exit, 3).exception(60), SystemExit)


def test_what_cannot_be_sent_is_an_error_of_its_task(engine: LocalProcesses) -> None:
    assert isinstance(engine.submit(lambda: None).exception(60), (pickle.PicklingError, AttributeError))
    assert "cannot pickle" in str(engine.submit(threading.Lock).exception(60))
    assert engine.submit(pow, 2, 3).result(60) == 8


def test_the_death_of_pythons_resource_tracker_leaves_no_traceback() -> None:
    """A tracker that is started anew prints a traceback for each semaphore of before that is given back."""
    code = """
import os, signal
from multiprocessing import resource_tracker
from anchormoe.running.engines.local import LocalProcesses
with LocalProcesses(2) as engine:
    worker, tracker = engine.submit(os.getpid).result(60), resource_tracker._resource_tracker._pid
    for pid in (worker, tracker):
        os.kill(pid, signal.SIGKILL)
    os.waitpid(tracker, 0)
    print(engine.submit(pow, 2, 3).result(60))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "8\n"
    assert "relaunching" in done.stderr
    assert "Traceback" not in done.stderr


def test_shutdown_ends_what_is_under_way_at_once() -> None:
    with LocalProcesses(2) as engine:
        pids = [engine.submit(os.getpid).result(60) for _ in range(2)]
        engine.submit(time.sleep, 1000)
        engine.submit(time.sleep, 1000)
        start = time.monotonic()
    assert time.monotonic() - start < 60
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_worker_that_does_not_exit_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose rows are all stored must end, whatever has become of its workers."""
    monkeypatch.setattr(local, "_PATIENCE", 1.0)
    with LocalProcesses(1) as engine:
        pid = engine.submit(os.getpid).result(60)
        os.kill(pid, signal.SIGSTOP)
        start = time.monotonic()
    assert time.monotonic() - start < 20
    assert not Path(f"/proc/{pid}").exists()


# --- temporary folders


def test_folders_of_killed_runs_are_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = (
        "import time; from anchormoe.running.temporary import temporary_folder\n"
        "with temporary_folder() as folder: print(folder, flush=True); time.sleep(60)"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as other:
        assert other.stdout is not None
        left = Path(other.stdout.readline().strip())
        (left / "file").write_text("something")
        with temporary_folder():
            assert left.exists(), "its run is alive"
        other.kill()
    assert left.exists()
    with temporary_folder() as folder:
        assert list(tmp_path.iterdir()) == [Path(folder)]
    assert list(tmp_path.iterdir()) == []


def test_no_place_for_temporary_files_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with (
        pytest.raises(UserError, match=r"temporary files is required, received: No such file.*TMPDIR"),
        temporary_folder(),
    ):
        pass


# --- what a task may do


class _Regressor:
    def fit(self, X: object, y: object) -> "_Regressor":
        raise self.error

    def __init__(self, error: BaseException) -> None:
        self.error = error


def run_with(error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(methods, "make", lambda name, arguments, **columns: _Regressor(error))
    arguments = ["dataset=yacht", "method=sklearn.linear_model.Ridge", "splits=1-2", "workers=1"]
    return cli.main([*arguments, f"results_dir={tmp_path}"])


def test_a_regressor_that_calls_exit_fails_its_split_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_with(SystemExit(3), tmp_path, monkeypatch) == 1
    assert "2 of 2 splits failed" in capsys.readouterr().out


def test_an_interrupt_that_became_another_error_is_still_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """numba turns an interrupt during compilation into an error of its own."""
    wrapped = RuntimeError("Failed in nopython mode pipeline")
    wrapped.__context__ = KeyboardInterrupt()
    assert run_with(wrapped, tmp_path, monkeypatch) == 130
    assert "interrupted" in capsys.readouterr().err
    assert (tmp_path / "runs" / "yacht.jsonl").read_bytes() == b""


def test_diagnostics_that_json_cannot_hold_do_not_cost_the_row() -> None:
    import json

    import numpy as np

    from anchormoe.running.evaluate import _plain

    odd = {
        "nan": float("nan"),
        "inf": np.float32("inf"),
        "array": np.array([1.0, np.nan]),
        "count": np.int64(3),
        "flag": np.bool_(True),
        "nested": {"list": [float("inf"), (1, 2)]},
        "path": Path("x"),
        "none": None,
    }
    expected = {
        "nan": None,
        "inf": None,
        "array": [1.0, None],
        "count": 3,
        "flag": True,
        "nested": {"list": [None, [1, 2]]},
        "path": "x",
        "none": None,
    }
    assert json.loads(json.dumps(_plain(odd), allow_nan=False)) == expected


# --- whose code runs


def test_a_strangers_folder_runs_no_code_of_its_own(tmp_path: Path) -> None:
    for name in ("hydra_plugins/x.py", "numexpr.py", "bottleneck.py", "my_model.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r})\n")
    program = [str(Path(sys.executable).with_name("anchormoe-bench")), "dataset=yacht", "--cfg", "job"]
    subprocess.run(program, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    assert not (tmp_path / "ran").exists()


def test_the_folder_is_on_the_path_only_for_a_class_that_is_found_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anchormoe.model.anchors.imported import import_regressor

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "exits.py").write_text("import sys\nsys.exit(4)\n")
    import_regressor("method.target", "sklearn.linear_model.Ridge")
    assert str(tmp_path) not in sys.path
    with pytest.raises(UserError, match=r"received exits.Model: 4"):
        import_regressor("method.target", "exits.Model")
    assert str(tmp_path) not in sys.path


def test_a_checkout_of_another_user_still_names_its_commit() -> None:
    code = "from anchormoe.running.provenance import environment; print(environment()['code_version'])"
    commits = [
        subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True).stdout
        for env in (dict(os.environ), {**os.environ, "GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"})
    ]
    assert commits[0] == commits[1]
