"""The engine of a Dask cluster: one that runs already, or one of this machine's processes."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from anchormoe.arithmetic import portable_variables
from anchormoe.errors import UserError
from anchormoe.running.engines.base import Engine, import_library
from anchormoe.running.worker import Terms, compute

if TYPE_CHECKING:
    from distributed import Client

_PATIENCE = 30.0  # seconds for a scheduler to answer, a worker to appear or to end
_FAREWELL = 5.0  # seconds for taking leave of a scheduler, which may be gone
_REFRESH = 5.0  # seconds after which the number of workers is asked for again


def open_dask(address: str | None, workers: int) -> DaskEngine:
    """Connect to the scheduler at an address; without one, start worker processes on this machine."""
    distributed = import_library("dask", "distributed")
    if address is None:
        cluster = distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit=0,
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
            env=portable_variables(),
        )
        return DaskEngine("dask", distributed.Client(cluster), cluster)
    try:
        client = distributed.Client(address, timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        raise UserError(
            f"engine.address must be that of a running Dask scheduler such as tcp://host:8786, received {address}: "
            f"{' '.join(str(error).split())}"
        ) from None
    engine = DaskEngine("dask", client)
    try:
        engine.require_workers()
    except BaseException:
        engine.shutdown()
        raise
    return engine


def _silence_logs() -> None:
    """Silence Dask's loggers, which have levels of their own: the driver reports in one line what goes wrong."""
    for name in list(logging.root.manager.loggerDict):
        if name.split(".")[0] in ("distributed", "tornado", "asyncio"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


class DaskEngine(Engine):
    """An engine around a Dask client, and the cluster that ends with it if this run started one."""

    def __init__(self, name: str, client: Client, cluster: Any = None, *, capacity: int | None = None) -> None:
        from distributed.scheduler import KilledWorker

        _silence_logs()
        self.name = name
        self.worker_died = (KilledWorker,)
        self._client = client
        self._cluster = cluster
        self._executor = client.get_executor(pure=False)
        self._terms = Terms.of_driver()
        self._fixed_capacity = capacity
        self._capacity, self._asked = 0, float("-inf")

    @property
    def capacity(self) -> int:  # type: ignore[override]
        """Return twice the number of workers, so that none waits for its next task; they may come and go."""
        if self._fixed_capacity is not None:
            return self._fixed_capacity
        if time.monotonic() - self._asked > _REFRESH:
            self._capacity = max(2, 2 * sum(self._client.nthreads().values()))
            self._asked = time.monotonic()
        return self._capacity

    def require_workers(self) -> None:
        """Raise a UserError unless there are workers, of one thread each."""
        from distributed import TimeoutError as NoWorkers

        try:
            self._client.wait_for_workers(1, timeout=_PATIENCE)
        except NoWorkers:
            raise UserError(
                f"the Dask scheduler must have workers, found none within {_PATIENCE:g} s; "
                "start some with: dask worker ADDRESS --nworkers N --nthreads 1"
            ) from None
        for worker, threads in self._client.nthreads().items():
            if threads != 1:
                raise UserError(
                    f"Dask workers must have one thread each, because a fit owns its process; {worker} has {threads}; "
                    "start them with --nworkers N --nthreads 1"
                )

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        return self._executor.submit(compute, self._terms, function, *arguments, **named)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the tasks under way: Dask cannot interrupt one, so the workers that compute them are restarted."""
        with contextlib.suppress(Exception):  # the scheduler may be gone
            if self._cluster is None:
                ours = set(self._client.futures)
                busy = [worker for worker, keys in self._client.processing().items() if ours & set(keys)]
                self._executor.shutdown(wait=False)  # cancels what is not finished
                if busy:
                    self._client.restart_workers(busy, timeout=_PATIENCE, raise_for_error=False)
        with contextlib.suppress(Exception):
            self._client.close(timeout=_FAREWELL)
        if self._cluster is not None:
            self._cluster.close(timeout=_PATIENCE)
