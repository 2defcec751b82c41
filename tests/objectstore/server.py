"""An S3 server of this machine as a process: the small one of these tests, or moto's where that is asked for.

ANCHORMOE_MOTO_SERVER=path/to/moto_server runs the tests against moto's server, which needs an environment of its own.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import uuid
from contextlib import closing
from pathlib import Path

import requests

MOTO = os.environ.get("ANCHORMOE_MOTO_SERVER")
_SERVER = Path(__file__).parent / "s3_server.py"


class Server:
    """A server on a port of its own; it can be killed and started again with the objects it had."""

    def __init__(self, folder: Path, *options: str, moto: str | None = None) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        folder.mkdir(parents=True, exist_ok=True)
        own = [sys.executable, "-S", str(_SERVER), str(folder), str(self.port), *options]
        self._command = [moto, "-H", "127.0.0.1", "-p", str(self.port)] if moto else own
        self.start()

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables with which a process uses this server."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "tester",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
        }

    def start(self) -> None:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(self._command, **quiet)  # type: ignore[call-overload]
        deadline = time.monotonic() + 60
        while not self._listens():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise TimeoutError("the S3 server did not start")
            time.sleep(0.02)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def new_bucket(self) -> str:
        """Make a bucket and return the URL of a folder in it."""
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        requests.put(f"http://127.0.0.1:{self.port}/{name}", timeout=60).raise_for_status()
        return f"s3://{name}/some/folder"

    def _listens(self) -> bool:
        with closing(socket.socket()) as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
