"""Commands whose results_dir is an object store: the same rows, one line for every mistake, nothing lost."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from server import MOTO, Server

from anchormoe import cli, load_results
from anchormoe.commands.rows import rows_to_show, stored_rows
from anchormoe.errors import UserError
from anchormoe.paths import shipped
from anchormoe.running import object_store, store
from anchormoe.running.ownership import Ownership

RUN = ["dataset=yacht", "method=sklearn.linear_model.Ridge", "workers=1"]
MEASURED = ["dataset", "split", "config_hash", "status", "rmse_y", "nll_y", "crps_y", "data_sha256"]


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    error = capsys.readouterr().err.strip()
    assert error.startswith("anchormoe-bench: ")
    assert "\n" not in error
    return error


def test_a_run_stores_the_same_rows_as_in_a_folder_and_resumes(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for results in (url, str(tmp_path)):
        assert cli.main([*RUN, "splits=1-2", f"results_dir={results}"]) == 0
        assert cli.main([*RUN, "splits=1-4", f"results_dir={results}"]) == 0
        assert "2 of 4 splits are stored already" in capsys.readouterr().out
    there, here = load_results(url), load_results(str(tmp_path))
    assert len(here) == 4
    assert there[MEASURED].equals(here[MEASURED])
    assert [path.name for path in store.place(url).glob("runs/*")] == [], "no lock is left"
    assert len(store.place(url).glob("runs/yacht.jsonl/*")) == 1, "the objects of a run are merged"
    assert cli.main([*RUN, "splits=1-4", f"results_dir={url}"]) == 0
    assert "4 of 4 splits are stored already" in capsys.readouterr().out


def test_a_second_driver_is_one_line_and_loses_nothing(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Ownership([store.path_for(url, "runs", "yacht")]):
        assert cli.main([*RUN, "splits=1", f"results_dir={url}"]) == 2
        assert "must be written by one run at a time" in one_line(capsys)
    assert cli.main([*RUN, "splits=1", f"results_dir={url}"]) == 0


def test_kill_9_of_the_driver_loses_nothing_that_was_stored(url: str, tmp_path: Path) -> None:
    results = store.place(url)
    settings = [*RUN, "splits=1-12"]
    program = [sys.executable, "-m", "anchormoe.cli", *settings, f"results_dir={url}"]
    with subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and len(results.glob("runs/yacht.jsonl/*")) < 3:
            time.sleep(0.01)
        process.kill()
    before = load_results(url)
    assert len(before) >= 1
    assert cli.main([*settings, f"results_dir={url}"]) == 0
    assert cli.main([*settings, f"results_dir={tmp_path}"]) == 0
    after, undisturbed = (load_results(where).sort_values("split", ignore_index=True) for where in (url, str(tmp_path)))
    assert after[MEASURED].equals(undisturbed[MEASURED])
    kept = after[after["split"].isin(before["split"])]
    assert sorted(kept["fit_seconds"]) == sorted(before["fit_seconds"]), "what was stored is not computed again"
    assert results.glob("runs/*.lock") == []


def test_commands_read_the_same_rows_from_a_bucket_as_from_a_folder(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for experiment in ("tables", "comparison"):
        for file in (shipped("results") / experiment).glob("[by]*.jsonl"):
            for results in (url, tmp_path):
                (store.place(results) / experiment / file.name).put(file.read_bytes())
    for read in (stored_rows, rows_to_show, partial(stored_rows, beside_shipped=True)):
        there, here = read(url), read(str(tmp_path))
        assert len(here) > 100
        pd.testing.assert_frame_equal(there, here)
    for results in (url, str(tmp_path)):
        assert cli.main(["check", "missing=ok", "live=0", f"results_dir={results}"]) == 0
    first, second = capsys.readouterr().out.split("check: ")[1:]
    assert first.split("\n")[0] == second.split("\n")[0]


def no_bucket(patch: pytest.MonkeyPatch) -> str:
    return "there is no such bucket"


def no_permission(patch: pytest.MonkeyPatch) -> str:
    patch.setenv("AWS_ACCESS_KEY_ID", "denied")
    return "permission denied (AccessDenied)"


def unknown_key(patch: pytest.MonkeyPatch) -> str:
    patch.setenv("AWS_ACCESS_KEY_ID", "unknown")
    return "permission denied (InvalidAccessKeyId)"


def no_network(patch: pytest.MonkeyPatch) -> str:
    patch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    return "no connection to the store"


def no_name(patch: pytest.MonkeyPatch) -> str:
    patch.setenv("AWS_ENDPOINT_URL", "http://no-such-host.invalid")
    return "no connection to the store"


def no_credentials(patch: pytest.MonkeyPatch) -> str:
    patch.delenv("AWS_ACCESS_KEY_ID")
    patch.delenv("AWS_SECRET_ACCESS_KEY")
    patch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    return "no credentials were found; set AWS_ACCESS_KEY_ID"


def no_library(patch: pytest.MonkeyPatch) -> str:
    patch.setitem(sys.modules, "obstore", None)
    patch.setitem(sys.modules, "obstore.exceptions", None)
    return "pip install 'anchormoe[objectstore]'"


@pytest.mark.skipif(bool(MOTO), reason="moto knows no permissions")
@pytest.mark.parametrize(
    "mistake", [no_bucket, no_permission, unknown_key, no_network, no_name, no_credentials, no_library]
)
def test_a_store_that_cannot_be_used_is_one_line(
    mistake: Callable[[pytest.MonkeyPatch], str],
    url: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(object_store, "PATIENCE_SECONDS", 0.3)
    if mistake is no_bucket:
        url = url.replace("bucket-", "other-")
    words = mistake(monkeypatch)
    for command in ([*RUN, "splits=1"], ["check"]):
        assert cli.main([*command, f"results_dir={url}"]) == 2
        line = one_line(capsys)
        assert words in line
        assert url in line


@pytest.mark.skipif(bool(MOTO), reason="moto knows no permissions")
def test_a_bucket_that_can_only_be_read_is_refused_before_anything_is_computed(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.main([*RUN, "splits=1", f"results_dir={url}"]) == 0
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "reader")
    assert cli.main([*RUN, "splits=1", f"results_dir={url}"]) == 0, "there is nothing to do"
    capsys.readouterr()
    assert cli.main([*RUN, "splits=1-2", f"results_dir={url}"]) == 2
    assert "permission denied (AccessDenied)" in one_line(capsys)
    assert len(load_results(url)) == 1


@pytest.mark.parametrize("url", ["ftp://host/folder", "s3://", "s3:///folder", "file:///tmp/x", "https://host/x"])
def test_a_url_that_is_no_bucket_is_one_line(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ([*RUN, "splits=1"], ["tables"]):
        assert cli.main([*command, f"results_dir={url}"]) == 2
        assert "results_dir must be" in one_line(capsys)


@pytest.mark.parametrize(
    "url", ["gs://bucket/folder", "abfs://container@account.dfs.core.windows.net/folder", "az://c/f"]
)
def test_buckets_of_other_providers_are_known(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("GOOGLE_SKIP_SIGNATURE", "true")
    assert str(store.path_for(url, "runs", "yacht")) == f"{url}/runs/yacht.jsonl"


def test_a_store_that_is_lost_during_a_run_loses_nothing_that_was_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(tmp_path / "server")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(object_store, "PATIENCE_SECONDS", 0.3)
    url = server.new_bucket()
    original = object_store.ObjectPlace.put
    written: list[str] = []

    def put(self: object_store.ObjectPlace, content: bytes) -> None:
        if len(written) == 3:
            server.kill()
        original(self, content)
        written.append(str(self))

    try:
        with monkeypatch.context() as patch:
            patch.setattr(object_store.ObjectPlace, "put", put)
            assert cli.main([*RUN, "splits=1-6", f"results_dir={url}"]) == 2
        assert "no connection to the store; what was stored is safe, the same command goes on" in one_line(capsys)
        with pytest.raises(UserError, match="no connection"):
            load_results(url)
        server.start()
        assert len(load_results(url)) == 3
        assert cli.main([*RUN, "splits=1-6", f"results_dir={url}"]) == 0
        assert "3 of 6 splits are stored already" in capsys.readouterr().out
        assert sorted(load_results(url).split) == [1, 2, 3, 4, 5, 6]
    finally:
        server.kill()


def test_a_short_loss_of_the_store_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(tmp_path / "server")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    place = store.path_for(server.new_bucket(), "runs", "yacht") / "file"
    server.kill()
    again = threading.Timer(0.5, server.start)
    again.start()
    try:
        place.put(b"1")
        again.join()
        assert place.read_bytes() == b"1"
    finally:
        server.kill()
