"""Engines: executors that move tasks to where they are computed and bring the rows back. The driver stores them."""

from __future__ import annotations

import os

from anchormoe.arithmetic import is_portable
from anchormoe.config.schema import EngineConfig, EngineKind, LimitConfig
from anchormoe.errors import UserError
from anchormoe.running.engines.base import Engine
from anchormoe.running.provenance import resident_bytes


def open_engine(config: EngineConfig, workers: int, limit: LimitConfig | None = None) -> Engine:
    """Start, or connect to, the engine that a configuration names; `workers` counts the processes on this machine.

    Limits of a fit hold on this machine's processes, which can be ended; other engines have limits of their own.
    """
    if config.kind is EngineKind.dask:
        from anchormoe.running.engines.dask import open_dask

        return open_dask(config.address, workers)
    if config.kind is EngineKind.ray:
        from anchormoe.running.engines.ray import RayEngine

        return RayEngine(config.address, workers)
    if config.kind is EngineKind.slurm:
        from anchormoe.running.engines.slurm import open_slurm

        return open_slurm(config)
    from anchormoe.running.engines.local import InProcess, LocalProcesses

    limit = limit or LimitConfig()
    if limit.memory_gb is not None and resident_bytes(os.getpid()) == 0:
        raise UserError("limit.memory_gb needs a system that tells a process's memory by /proc; leave it out")
    # Only another process can be ended when it breaks a limit.
    return InProcess() if workers == 1 and is_portable() and not limit.is_set else LocalProcesses(workers, limit)
