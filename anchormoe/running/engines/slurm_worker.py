"""The part of the Slurm engine that is sent to the workers; it needs the distributed package to be imported."""

import os

from distributed import Worker, WorkerPlugin


class EndAtOnce(WorkerPlugin):
    """Ends a worker's process when it closes, as it does when the driver was killed.

    Dask cannot interrupt a task: a worker that closes waits for it, up to half a minute.
    """

    name = "end_at_once"

    def teardown(self, worker: Worker) -> None:
        """End the process; Dask's nanny, which knows already that the worker closes, removes its folder and ends."""
        os._exit(0)
