"""The engine of a Ray cluster: one that runs already, or one of this machine's processes."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from anchormoe.arithmetic import portable_variables
from anchormoe.errors import UserError
from anchormoe.running.engines.base import Engine, import_library
from anchormoe.running.worker import Terms, compute

_REFRESH = 5.0  # seconds after which the number of cores is asked for again


class RayEngine(Engine):
    """An engine around Ray's remote functions, each on one core; a task whose worker dies is not tried again by Ray."""

    name = "ray"

    def __init__(self, address: str | None, workers: int) -> None:
        self._ray = ray = import_library("ray", "ray")
        on_terminate = signal.getsignal(signal.SIGTERM)
        where: dict[str, Any] = {"num_cpus": workers, "include_dashboard": False} if address is None else {}
        try:
            ray.init(
                address=address or "local",
                runtime_env={"env_vars": portable_variables()},
                logging_level=logging.CRITICAL,
                log_to_driver=False,
                **where,
            )
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise UserError(
                f"engine.address must be that of a running Ray cluster such as auto or host:6379, received {address}: "
                f"{' '.join(str(error).split())}. If the cluster asks for a token, set RAY_AUTH_MODE=token"
            ) from None
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_terminate)  # ray has put its own in place, which ends the process
        self.worker_died = (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError)
        self.worker_died += (ray.exceptions.OutOfMemoryError,)
        self._compute = ray.remote(max_retries=0, num_cpus=1)(compute)
        self._terms = Terms.of_driver()
        self._under_way: dict[Future[Any], Any] = {}
        self._capacity, self._asked = 0, float("-inf")

    @property
    def capacity(self) -> int:  # type: ignore[override]
        """Return twice the number of cores, so that none waits for its next task; nodes may come and go."""
        if time.monotonic() - self._asked > _REFRESH:
            self._capacity = max(2, 2 * int(self._ray.cluster_resources().get("CPU", 0)))
            self._asked = time.monotonic()
        return self._capacity

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        reference = self._compute.remote(self._terms, function, *arguments, **named)
        future: Future[Any] = Future()
        self._under_way[future] = reference

        def finish(done: Future[Any]) -> None:
            self._under_way.pop(future, None)
            error = done.exception()
            if error is None:
                future.set_result(done.result())
            else:
                future.set_exception(getattr(error, "cause", None) or error)  # what the task raised, without Ray's text

        reference.future().add_done_callback(finish)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the tasks under way and leave the cluster."""
        for reference in list(self._under_way.values()):
            self._ray.cancel(reference, force=True)
        self._ray.shutdown()
