"""Servers for the tests of object stores."""

from collections.abc import Iterator

import pytest
from server import MOTO, Server


@pytest.fixture(scope="session")
def running_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Start a server whose listings come in pages of seven."""
    server = Server(tmp_path_factory.mktemp("s3"), "--page", "7", moto=MOTO)
    yield server
    server.kill()


@pytest.fixture
def server(running_server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """Return the server that this process uses."""
    for name, value in running_server.environment.items():
        monkeypatch.setenv(name, value)
    return running_server


@pytest.fixture
def url(server: Server) -> str:
    """Return the URL of an empty folder."""
    return server.new_bucket()
