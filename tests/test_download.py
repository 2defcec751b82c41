"""Fetching against a real HTTP server that misbehaves: what is reported, and that nothing half-written stays behind."""

import contextlib
import dataclasses
import io
import socket
import threading
import time
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from anchormoe.commands.data import main
from anchormoe.data.catalogue import DatasetInfo, catalogue, info
from anchormoe.data.dataset import file_table, load
from anchormoe.data.download import Policy, cache_folder, cached_path, fetch
from anchormoe.errors import UserError

DATASETS = {name: dataset for name, dataset in catalogue().items() if dataset.urls}
ORIGINALS = Path(__file__).resolve().parents[2] / "shared" / "uci"
FAST = Policy(attempts=2, backoff_seconds=0.01, timeout_seconds=0.3, deadline_seconds=3.0)


def plain_text(name: str) -> bytes:
    return "\n".join(" ".join(map(repr, row)) for row in file_table(DATASETS[name]).values.tolist()).encode()


YACHT = plain_text("yacht")
HTML = b"<!doctype html>\n<html><body>Moved. Please log in.</body></html>"


def archive(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    return buffer.getvalue()


def boston_arff() -> bytes:
    """Make an ARFF file like OpenML's, where CHAS and RAD are nominal attributes."""
    boston = DATASETS["boston"]
    kinds = {"CHAS": "{0,1}", "RAD": "{1,2,3,4,5,6,7,8,24}"}
    header = ["@relation boston"] + [f"@attribute {column} {kinds.get(column, 'REAL')}" for column in boston.columns]
    rows = [",".join(repr(v).removesuffix(".0") for v in row) for row in file_table(boston).values.tolist()]
    return "\n".join([*header, "@data", *rows]).encode()


class Misbehaving(BaseHTTPRequestHandler):
    """A server that misbehaves as the path says; `server.requests` records the requested paths."""

    def do_GET(self) -> None:
        requests = self.server.requests  # type: ignore[attr-defined]
        requests.append(self.path)
        behaviour = self.path.strip("/").split("/")[0]
        answers = {
            "good": (200, YACHT),
            "yacht.zip": (200, archive(**{"folder/yacht_hydrodynamics.data": YACHT, "Readme.txt": b"words"})),
            "boston.arff": (200, boston_arff()),
            "evil.zip": (200, archive(**{"yacht_hydrodynamics.data": YACHT, "../evil": b"x"})),
            "html": (200, HTML),
            "other": (200, b"1 2 3\n4 5 6\n"),
            "empty": (200, b""),
            "always500": (500, b"broken"),
            "once500": (500, b"broken") if requests.count(self.path) == 1 else (200, YACHT),
            "truncated": (200, YACHT),
            "once_truncated": (200, YACHT),
            "slow": (200, YACHT),
            "stalls": (200, YACHT),
            "drips": (200, YACHT),
            "superscript": (200, YACHT),
            "long_length": (200, YACHT),
        }
        status, body = answers.get(behaviour, (404, HTML))
        cut = behaviour == "truncated" or (behaviour == "once_truncated" and requests.count(self.path) == 1)
        released = self.server.released  # type: ignore[attr-defined]
        if behaviour == "slow":
            released.wait(5)
        try:
            if behaviour == "drips_head":
                while not released.wait(0.05):
                    self.wfile.write(b"H")
                return
            if behaviour == "elsewhere":
                self.send_response(302)
                self.send_header("Location", "http://[::1")
                self.end_headers()
                return
            self.send_response(status)
            lengths = {"superscript": "\u00b2", "long_length": "9" * 5000}
            self.send_header("Content-Length", lengths.get(behaviour, str(len(body))))
            self.end_headers()
            if behaviour == "drips":
                while not released.wait(0.05):
                    self.wfile.write(b"1")
                return
            self.wfile.write(body[: len(body) // 2] if cut or behaviour == "stalls" else body)
            if behaviour == "stalls":
                self.wfile.flush()
                self.server.released.wait(5)  # type: ignore[attr-defined]
        except (BrokenPipeError, ConnectionResetError):
            pass  # the client gave up, as intended in the slow cases

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch) -> Iterator[ThreadingHTTPServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Misbehaving)
    httpd.requests = []  # type: ignore[attr-defined]
    httpd.released = threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield httpd
    httpd.released.set()  # type: ignore[attr-defined]
    httpd.shutdown()
    thread.join()
    httpd.server_close()


def at(server: ThreadingHTTPServer, *paths: str, name: str = "yacht") -> DatasetInfo:
    """Return the dataset with these paths of the local server as its only addresses."""
    urls = [f"http://127.0.0.1:{server.server_port}/{path}" for path in paths]
    return dataclasses.replace(DATASETS[name], urls=urls)


def get(dataset: DatasetInfo, cache: Path, **options):
    return fetch(dataset, cache_dir=cache, policy=FAST, console=Console(file=io.StringIO()), **options)


@pytest.mark.parametrize(
    ("name", "path"), [("yacht", "good"), ("yacht", "yacht.zip"), ("boston", "boston.arff"), ("yacht", "once500")]
)
def test_good_answers_are_verified_and_kept(server, tmp_path, name, path):
    fetched = get(at(server, path, name=name), tmp_path / "new" / "cache")
    assert np.array_equal(fetched.table, file_table(DATASETS[name]).values)
    assert [fetched.path] == list((tmp_path / "new" / "cache").iterdir())
    assert fetched.path.stem == name
    assert fetched.path.stat().st_mode & 0o777 == 0o644
    assert not fetched.is_original  # re-written values, not the original bytes


@pytest.mark.parametrize("path", ["once500", "once_truncated"])
def test_failures_that_pass_are_tried_again(server, tmp_path, path):
    get(at(server, path), tmp_path)
    assert server.requests == [f"/{path}"] * 2


@pytest.mark.parametrize(
    ("path", "reason", "attempts"),
    [
        ("missing", "HTTP 404 Not Found", 1),
        ("always500", r"HTTP 500 Internal Server Error \(2 attempts\)", 2),
        ("html", "an HTML page instead of a data file", 1),
        ("truncated", rf"truncated: expected {len(YACHT)} bytes, found {len(YACHT) // 2} \(2 attempts\)", 2),
        ("other", "expected 308 rows x 7 columns with content hash .*, found 2 rows x 3 columns with content hash", 1),
        ("empty", "an empty file", 1),
        ("boston.arff", "found 506 rows x 14 columns", 1),
        ("evil.zip", r"refused: zip member '\.\./evil' would land outside the folder", 1),
        ("slow", r"no answer within 0.3 s \(2 attempts\)", 2),
        ("stalls", r"(no answer within 0.3 s|truncated).*\(2 attempts\)", 2),
        ("elsewhere", "request failed", 1),
    ],
)
def test_bad_answers_are_one_clear_line_and_leave_nothing_behind(server, tmp_path, path, reason, attempts):
    with pytest.raises(UserError, match=reason) as error:
        get(at(server, path), tmp_path)
    message = str(error.value)
    assert "\n" not in message
    assert f"127.0.0.1:{server.server_port}/{path}: " in message
    assert "expected its table of 308 rows x 7 columns" in message
    assert "data.mirror=" in message
    assert server.requests == [f"/{path}"] * attempts
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["drips", "drips_head"])
def test_a_server_that_sends_a_byte_now_and_then_is_given_up_on(server, tmp_path, path):
    policy = dataclasses.replace(FAST, deadline_seconds=0.4)
    with pytest.raises(UserError, match=r"not finished within 0.4 s"):
        fetch(at(server, path), cache_dir=tmp_path, policy=policy, console=Console(file=io.StringIO()))
    assert server.requests == [f"/{path}"]
    server.released.set()
    time.sleep(0.1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["superscript", "long_length"])
def test_a_length_that_is_no_number_is_no_traceback(server, tmp_path, path):
    with contextlib.suppress(UserError):  # what the library makes of such an answer is its own affair
        get(at(server, path), tmp_path)
    assert all(file.stem == "yacht" for file in tmp_path.iterdir())


def test_no_network_is_reported(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with socket.socket() as unused:  # bound but not listening: connections are refused
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/yacht.zip"
        with pytest.raises(UserError, match=r"no connection \(2 attempts\).*check the network"):
            get(dataclasses.replace(DATASETS["yacht"], urls=[url]), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_mirrors_are_tried_in_order_and_all_failures_named(server, tmp_path):
    assert get(at(server, "missing", "html", "good", "never"), tmp_path / "a").address.endswith("/good")
    assert server.requests == ["/missing", "/html", "/good"]
    with pytest.raises(UserError, match=r"/missing: HTTP 404 Not Found \| http://\S+/html: an HTML page"):
        get(at(server, "missing", "html"), tmp_path / "b")


def test_backoff_grows_between_attempts(server, tmp_path, monkeypatch):
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    with pytest.raises(UserError):
        fetch(at(server, "always500"), cache_dir=tmp_path, policy=Policy(attempts=4, backoff_seconds=0.5))
    assert pauses == [0.5, 1.0, 2.0]


def test_own_mirror_comes_first(server, tmp_path):
    base = f"http://127.0.0.1:{server.server_port}/good/"
    get(at(server, "never"), tmp_path / "url", mirror=base)
    assert server.requests == ["/good/yacht_hydrodynamics.data"]
    folder = tmp_path / "mirror"
    folder.mkdir()
    assert get(at(server, "good"), tmp_path / "fallback", mirror=str(folder)).address.endswith("/good")
    (folder / "yacht_hydrodynamics.data").write_bytes(YACHT)
    fetched = get(at(server, "never"), tmp_path / "folder", mirror=str(folder))
    assert fetched.address == str(folder / "yacht_hydrodynamics.data")
    with pytest.raises(UserError, match=r"data.mirror must be an existing folder or an http"):
        get(at(server, "good"), tmp_path / "none", mirror="ftp://somewhere")


def test_cached_file_is_used_without_network_and_verified_again(server, tmp_path):
    first = get(at(server, "yacht.zip"), tmp_path)
    again = get(at(server, "never"), tmp_path)
    assert again.address == str(first.path) == str(again.path)
    assert server.requests == ["/yacht.zip"]

    first.path.write_bytes(first.path.read_bytes()[:-40])
    output = io.StringIO()
    repaired = fetch(at(server, "good"), cache_dir=tmp_path, policy=FAST, console=Console(file=output))
    assert "is damaged" in output.getvalue()
    assert "fetching it again" in output.getvalue()
    assert get(at(server, "never"), tmp_path).path == repaired.path  # the good file is used from now on


@pytest.mark.parametrize("place", ["", "below"])
def test_unwritable_cache_is_reported(server, tmp_path, place):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(UserError, match=r"cache folder must be a writable folder, received .*file.*ANCHORMOE_DATA"):
        get(at(server, "good"), blocked / place)
    assert blocked.read_text() == "in the way"
    assert server.requests == []


def test_a_full_disk_is_reported_and_leaves_nothing_behind(server, tmp_path, monkeypatch):
    def no_space(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", no_space)
    with pytest.raises(UserError, match="No space left on device"):
        get(at(server, "good"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_cache_folder_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("ANCHORMOE_DATA", str(tmp_path / "named"))
    assert cache_folder() == tmp_path / "named"
    assert cached_path(DATASETS["yacht"]) is None
    monkeypatch.delenv("ANCHORMOE_DATA")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert cache_folder() == tmp_path / ".cache" / "anchormoe"


@pytest.mark.skipif(not ORIGINALS.is_dir(), reason="needs the original files in ../shared/uci")
def test_originals_come_through_the_mirror_unchanged(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ANCHORMOE_DATA", str(tmp_path))
    assert main(["fetch", f"data.mirror={ORIGINALS}"]) == 0
    assert capsys.readouterr().out.count("verified (the original file), from") == 9
    for name in ("concrete", "naval", "power"):
        downloaded, embedded = load(info(name), source="download"), load(info(name))
        assert np.array_equal(downloaded.X, embedded.X)
        assert np.array_equal(downloaded.y, embedded.y)


def test_load_downloads_from_a_mirror(server, tmp_path):
    mirror = f"http://127.0.0.1:{server.server_port}/good"
    dataset = load(info("yacht"), source="download", mirror=mirror, cache_dir=tmp_path)
    assert np.array_equal(dataset.X, load(info("yacht")).X)
    assert (tmp_path / "yacht.data").is_file()
