"""The engine of a Slurm cluster: jobs that each run Dask workers, which compute tasks until none is left.

A task is so never a job of its own: one job computes as many as fit into its time, and a job that Slurm takes back
costs the tasks under way, which another worker computes again.
"""

from __future__ import annotations

import logging
import shutil
import sys

from anchormoe.config.schema import EngineConfig
from anchormoe.errors import UserError
from anchormoe.running.engines.base import import_library
from anchormoe.running.engines.dask import DaskEngine


def open_slurm(config: EngineConfig) -> DaskEngine:
    """Submit the jobs; the run begins as soon as the first of them does."""
    distributed = import_library("slurm", "distributed")
    jobqueue = import_library("slurm", "dask_jobqueue")
    from anchormoe.running.engines.slurm_worker import EndAtOnce

    if shutil.which("sbatch") is None:
        raise UserError("engine=slurm needs Slurm's commands, found no sbatch on the PATH; run it on a login node")
    cluster = jobqueue.SLURMCluster(
        cores=config.cores,
        processes=config.cores,
        memory=config.memory,
        walltime=config.walltime,
        queue=config.partition,
        account=config.account,
        interface=config.interface,
        job_extra_directives=list(config.directives),
        job_script_prologue=[*config.prologue, f'eval "$({sys.executable} -m anchormoe.arithmetic)"'],
        death_timeout=60,  # seconds after which a worker ends that was started when the driver had been killed
        scheduler_options={"dashboard_address": None},
        silence_logs=logging.CRITICAL,
    )
    # Jobs that end before the run does, for example at their walltime, are submitted again.
    cluster.adapt(minimum_jobs=config.jobs, maximum_jobs=config.jobs)
    client = distributed.Client(cluster, set_as_default=False)
    client.register_plugin(EndAtOnce())
    return DaskEngine("slurm", client, cluster, capacity=2 * config.jobs * config.cores)
