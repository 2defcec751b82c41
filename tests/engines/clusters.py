"""Real clusters of this one machine, each started by its own commands, for tests, campaigns and benchmarks."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from anchormoe.arithmetic import portable_variables

SLURM_SCRIPT = Path(__file__).parents[2] / "scripts" / "one_machine_slurm.sh"
_BIN = Path(sys.executable).parent
_QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


class Unavailable(Exception):
    """Raised with the reason why this machine cannot have a cluster."""


@dataclass
class Cluster:
    """The settings with which a run uses a cluster, and the processes that it consists of."""

    settings: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(condition, what: str, seconds: float = 60.0) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {what} within {seconds:g} s")
        time.sleep(0.05)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def dask_cluster(workers: int = 2) -> Iterator[Cluster]:
    """Start a scheduler and workers, as `dask scheduler` and `dask worker` do on a real cluster."""
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        cluster = Cluster(["engine=dask", f"engine.address={address}"])

        def start(name: str, *arguments: str) -> None:
            command = [str(_BIN / "dask"), *arguments]
            environment = {**os.environ, **portable_variables()}
            process = subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True, **_QUIET)
            cluster.processes[name] = process
            stack.callback(_end, process)

        start("scheduler", "scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard")
        wait_for(lambda: _listens(port), "Dask scheduler")
        for number in range(workers):
            options = ("--nthreads", "1", "--no-dashboard", "--memory-limit", "0", "--local-directory", folder)
            start(f"worker {number}", "worker", address, "--name", f"worker{number}", *options)
        yield cluster


@contextmanager
def ray_cluster(cores: int = 2) -> Iterator[Cluster]:
    """Start a head node, as `ray start --head` does on a real cluster.

    It asks for a token of its own: one that lies in the home folder, as Ray leaves it there, must not matter.
    """
    if not (_BIN / "ray").exists():
        raise Unavailable("ray is not installed")
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="ray") as folder:  # its sockets' paths must be short
        options = ("--node-ip-address=127.0.0.1", "--include-dashboard=false", "--disable-usage-stats")
        sizes = (f"--num-cpus={cores}", "--object-store-memory=100000000", f"--temp-dir={folder}")
        command = [str(_BIN / "ray"), "start", "--head", "--block", f"--port={port}", *options, *sizes]
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}
        head = subprocess.Popen(command, env={**os.environ, **token}, start_new_session=True, **_QUIET)
        try:
            wait_for(lambda: _listens(port), "Ray head")
            time.sleep(2)  # the raylet follows the port
            yield Cluster(["engine=ray", f"engine.address=127.0.0.1:{port}"], token, {"head": head})
        finally:
            _end(head)
            with suppress(ProcessLookupError):
                os.killpg(head.pid, signal.SIGKILL)  # workers that outlived it


@contextmanager
def slurm_cluster() -> Iterator[Cluster]:
    """Start munge, slurmctld and slurmd on this machine."""
    folder = tempfile.mkdtemp(prefix="slurm")
    try:
        done = subprocess.run([SLURM_SCRIPT, "start", folder], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Unavailable(done.stdout.strip() or done.stderr.strip())
        environment = {"SLURM_CONF": f"{folder}/slurm.conf"}
        settings = ["engine=slurm", "engine.jobs=2", "engine.memory=2GB", "engine.interface=lo"]
        logs = "engine.directives=['--output=/dev/null','--error=/dev/null']"
        yield Cluster([*settings, "engine.walltime='00:30:00'", logs], environment)
    finally:
        subprocess.run([SLURM_SCRIPT, "stop", folder], check=False, **_QUIET)
        shutil.rmtree(folder, ignore_errors=True)
