"""Dask, Ray and Slurm: real clusters of this machine give the rows of one machine, bit for bit, and stop when told."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from clusters import Cluster, Unavailable, dask_cluster, ray_cluster, slurm_cluster
from sweep import SWEEP, killed_while_asleep, numbers, run, stopped_while_asleep, threads_inside_a_task

from anchormoe.config.schema import EngineConfig, EngineKind
from anchormoe.running.engines import open_engine

pytestmark = pytest.mark.engines

CLUSTERS: dict[str, Callable[[], AbstractContextManager[Cluster]]] = {
    "dask": dask_cluster,
    "ray": ray_cluster,
    "slurm": slurm_cluster,
}
SPLITS = os.environ.get("ANCHORMOE_ENGINE_SPLITS", "1-2")  # make test-engines SPLITS=1-20 compares all of them
SETTINGS = [*SWEEP, f"splits={SPLITS}"]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict:
    results = tmp_path_factory.mktemp("local")
    assert run(results, *SETTINGS, "workers=2").returncode == 0
    return numbers(results)


@pytest.fixture(scope="module", params=CLUSTERS)
def cluster(request: pytest.FixtureRequest):
    try:
        with CLUSTERS[request.param]() as started:
            yield started
    except Unavailable as reason:
        pytest.skip(str(reason))


def test_a_run_that_is_told_to_stop_leaves_no_task_running(cluster: Cluster, tmp_path: Path) -> None:
    stopped_while_asleep(tmp_path, cluster.settings, cluster.environment)


def test_a_run_that_is_killed_leaves_no_task_running(cluster: Cluster, tmp_path: Path) -> None:
    if cluster.settings[0] == "engine=dask":
        pytest.skip("the workers are not the run's own: they finish what they have begun")
    killed_while_asleep(tmp_path, cluster.settings, cluster.environment)


def test_rows_are_those_of_one_machine(cluster: Cluster, expected: dict, tmp_path: Path) -> None:
    """The cluster has just been told to stop a run, and serves the next."""
    done = run(tmp_path, *SETTINGS, *cluster.settings, **cluster.environment)
    assert done.returncode == 0, done.stdout + done.stderr
    found = numbers(tmp_path)
    assert len(found) >= 8
    assert found == expected
    assert {row["threads"] for row in found.values()} == {1}


def test_a_regressor_may_use_threads_inside_a_task_of_ray(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, address = (setting.partition("=")[2] for setting in cluster.settings[:2])
    if engine != "ray":
        pytest.skip("Slurm's workers are Dask's, which the default suite has")
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    with open_engine(EngineConfig(kind=EngineKind.ray, address=address), 2) as opened:
        threads_inside_a_task(opened)
