"""Engines: executors that move tasks to where they are computed and bring the rows back. The driver stores them."""

from __future__ import annotations

from anchormoe.arithmetic import is_portable
from anchormoe.config.schema import EngineConfig, EngineKind
from anchormoe.running.engines.base import Engine


def open_engine(config: EngineConfig, workers: int) -> Engine:
    """Start, or connect to, the engine that a configuration names; `workers` counts the processes on this machine."""
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

    return InProcess() if workers == 1 and is_portable() else LocalProcesses(workers)
