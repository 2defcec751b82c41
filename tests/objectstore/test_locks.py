"""One run at a time writes to an object store, with conditional writes, without them, and where they are ignored."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from server import Server

from anchormoe.errors import UserError
from anchormoe.running import ownership, store
from anchormoe.running.object_store import ObjectPlace
from anchormoe.running.ownership import Ownership, remove_abandoned_locks
from anchormoe.running.store import Place


@pytest.fixture(scope="module")
def careless_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Start a server that ignores the conditions of a write without a word."""
    server = Server(tmp_path_factory.mktemp("s3"), "--ignore-conditions")
    yield server
    server.kill()


@pytest.fixture(params=["conditional", "not supported", "ignored"])
def rows(
    request: pytest.FixtureRequest, server: Server, careless_server: Server, monkeypatch: pytest.MonkeyPatch
) -> Place:
    if request.param == "not supported":
        monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")
    if request.param == "ignored":
        server = careless_server
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.environment["AWS_ENDPOINT_URL"])
    return store.path_for(server.new_bucket(), "runs", "yacht")


def lock_of(rows: Place) -> Place:
    return rows.with_name("yacht.jsonl.lock")


def left_by_another_host(rows: Place, **changes: object) -> None:
    content = {"token": "other", "host": "node7", "pid": 17, "process": "elsewhere/17/1", "beat": 0, **changes}
    lock_of(rows).put(json.dumps(content).encode())


def test_a_second_run_is_refused_and_told_who_the_first_is(rows: Place) -> None:
    with Ownership([rows]) as own:
        own.require(rows)
        with pytest.raises(UserError, match=rf"one run at a time, and process {os.getpid()} on \S+ is writing to it"):
            Ownership([rows]).__enter__()
        with Ownership([rows.with_name("boston.jsonl")]):
            pass
        own.require(rows)
    assert list(rows.parent.glob("*")) == []


def test_a_lock_of_a_killed_process_is_taken_over_at_once(rows: Place) -> None:
    code = (
        "import sys, time; from anchormoe.running.ownership import Ownership\n"
        "from anchormoe.running.store import path_for\n"
        "with Ownership([path_for(sys.argv[1], 'runs', 'yacht')]): print('held', flush=True); time.sleep(60)"
    )
    owner = subprocess.Popen([sys.executable, "-c", code, str(rows.parent.parent)], stdout=subprocess.PIPE, text=True)
    with owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "held\n"
        with pytest.raises(UserError, match=f"process {owner.pid}"):
            Ownership([rows]).__enter__()
        owner.kill()
    said: list[str] = []
    with Ownership([rows], said.append, watch_seconds=1000):
        pass
    assert len(said) == 1
    assert f"taking over {rows} from process {owner.pid}" in said[0]


@pytest.mark.parametrize("content", [None, b"", b"[1]", b"\xff"])
def test_a_lock_from_elsewhere_without_a_heartbeat_is_taken_over(rows: Place, content: bytes | None) -> None:
    left_by_another_host(rows)
    if content is not None:
        lock_of(rows).put(content)
    said: list[str] = []
    with Ownership([rows], said.append, watch_seconds=0.2):
        assert json.loads(lock_of(rows).read_bytes())["pid"] == os.getpid()
    assert len(said) == 2
    assert "watching for 0.2 s" in said[0]
    assert ("process 17 on node7" in said[1]) == (content is None)


def test_a_lock_from_elsewhere_with_a_heartbeat_is_respected(rows: Place) -> None:
    left_by_another_host(rows)
    beat = threading.Timer(0.2, lambda: left_by_another_host(rows, beat=1))
    beat.start()
    with pytest.raises(UserError, match="process 17 on node7 is writing to it"):
        Ownership([rows], lambda line: None, watch_seconds=10).__enter__()
    beat.join()


def test_an_owner_that_was_suspended_notices_that_it_lost_the_rows(
    rows: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "BEAT_SECONDS", 0.02)
    with Ownership([rows]) as own:
        own.require(rows)
        while json.loads(lock_of(rows).read_bytes())["beat"] < 2:
            time.sleep(0.01)
    assert list(rows.parent.glob("*")) == [], "a lock that has beaten is removed"
    monkeypatch.setattr(ownership, "BEAT_SECONDS", 60.0)
    with Ownership([rows]) as own:
        left_by_another_host(rows)
        with pytest.raises(UserError, match="taken over by process 17 on node7"):
            own.require(rows)
    assert json.loads(lock_of(rows).read_bytes())["token"] == "other", "the other's lock is left alone"


def test_a_lock_that_changes_between_looking_and_writing_is_left_alone(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = store.path_for(url, "runs", "yacht")
    with Ownership([rows]) as own:
        before = lock_of(rows).version()
        left_by_another_host(rows)
        with monkeypatch.context() as patch:
            patch.setattr(ObjectPlace, "version", lambda self: before)
            own._show_life(lock_of(rows))
            patch.setattr(ObjectPlace, "version", lambda self: None)
            assert lock_of(rows).create(b"mine") is None
    assert json.loads(lock_of(rows).read_bytes())["token"] == "other"


def test_of_many_that_start_at_once_one_has_the_rows(rows: Place) -> None:
    """Where conditions are ignored, two may begin; the one that was overwritten notices before it writes."""
    start = threading.Barrier(6)

    def enter(number: int) -> Ownership | None:
        own = Ownership([rows], lambda line: None)
        start.wait()
        try:
            return own.__enter__()
        except UserError:
            return None

    with ThreadPoolExecutor(6) as pool:
        entered = [own for own in pool.map(enter, range(6)) if own is not None]
    owners = []
    for own in entered:
        try:
            own.require(rows)
        except UserError:
            continue
        owners.append(own)
    assert len(owners) == 1
    for own in entered:
        own.__exit__()
    assert list(rows.parent.glob("*")) == []


def test_locks_of_runs_that_were_killed_after_their_last_row_are_removed(rows: Place) -> None:
    with Ownership([rows]):
        alive = lock_of(rows).read_bytes().decode()
        remove_abandoned_locks([rows])
        assert lock_of(rows).read_bytes()
    lock_of(rows).put(alive.replace(f"/{os.getpid()}/", f"/{os.getpid()}/9").encode())
    remove_abandoned_locks([rows])
    assert list(rows.parent.glob("*")) == []
    left_by_another_host(rows)
    remove_abandoned_locks([rows])
    assert lock_of(rows).read_bytes(), "that run may be alive"


def test_the_end_of_a_run_does_not_ask_a_lost_store_for_every_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(tmp_path)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    results = store.place(server.new_bucket())
    asked: list[object] = []
    original = ObjectPlace.remove_version
    monkeypatch.setattr(ObjectPlace, "remove_version", lambda *args: asked.append(args) or original(*args))
    try:
        with Ownership([results / "runs" / f"{name}.jsonl" for name in "abcdefgh"]):
            server.kill()
    finally:
        server.kill()
    assert len(asked) == 1
