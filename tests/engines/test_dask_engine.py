"""Dask: a scheduler and two workers started by their own commands give the rows of one machine, bit for bit."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import Cluster, dask_cluster, wait_for
from sweep import SWEEP, numbers, run, started, stopped_while_asleep, threads_inside_a_task, without_circumstances

from anchormoe import cli
from anchormoe.errors import UserError
from anchormoe.running import store
from anchormoe.running.engines.dask import open_dask
from anchormoe.running.provenance import environment
from anchormoe.running.worker import Terms, compute

pytest.importorskip("distributed")
pytestmark = pytest.mark.xdist_group("dask")

QUICK = [*SWEEP, "splits=1", "train.epochs=3"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with dask_cluster() as started:
        yield started


def test_rows_are_those_of_one_machine(cluster: Cluster, tmp_path: Path) -> None:
    remote = run(tmp_path / "dask", *QUICK, *cluster.settings)
    assert remote.returncode == 0, remote.stdout + remote.stderr
    assert run(tmp_path / "local", *QUICK, "workers=1").returncode == 0
    found = numbers(tmp_path / "dask")
    assert found == numbers(tmp_path / "local")
    assert len(found) == 4
    assert {row["threads"] for row in found.values()} == {1}


def test_a_ranking_is_that_of_one_machine(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranking = (
        "rank",
        "methods=sklearn.linear_model.Ridge,sklearn.neighbors.KNeighborsRegressor",
        "dataset=yacht",
        "splits=1-2",
    )
    remote = run(tmp_path / "dask", *ranking, *cluster.settings)
    assert remote.returncode == 0, remote.stdout + remote.stderr
    assert cli.main([*ranking, "workers=1", f"results_dir={tmp_path / 'local'}"]) == 0
    found, expected = (
        without_circumstances(store.read(tmp_path / name / "ranking" / "yacht.jsonl")) for name in ("dask", "local")
    )
    assert len(found) == 4
    assert found == expected
    (verdict,) = (line for line in remote.stdout.splitlines() if "below the next" in line)
    assert verdict in capsys.readouterr().out.splitlines()


def test_a_run_that_is_told_to_stop_leaves_no_task_running(cluster: Cluster, tmp_path: Path) -> None:
    stopped_while_asleep(tmp_path, cluster.settings, {})
    with open_dask(cluster.settings[1].partition("=")[2], 1) as engine:
        assert engine.submit(pow, 2, 3).result(60) == 8, "a worker is free again"
        assert engine._client.processing() == {worker: () for worker in engine._client.processing()}


def test_a_regressor_may_use_threads_inside_a_task(cluster: Cluster) -> None:
    with open_dask(cluster.settings[1].partition("=")[2], 1) as engine:
        threads_inside_a_task(engine)


def test_a_worker_that_dies_is_replaced_and_its_tasks_are_computed_again(cluster: Cluster, tmp_path: Path) -> None:
    settings = ("dataset=yacht", "method=sklearn.linear_model.Ridge", "splits=1-20", *cluster.settings)
    path = tmp_path / "runs" / "yacht.jsonl"
    with started(tmp_path, *settings) as process:
        wait_for(lambda: path.exists() and path.read_bytes(), "row")
        nanny = cluster.processes["worker 0"].pid
        for pid in Path(f"/proc/{nanny}/task/{nanny}/children").read_text().split():
            os.kill(int(pid), signal.SIGKILL)  # the process that computes, not the nanny that watches it
        process.communicate(timeout=120)
    assert process.returncode == 0
    assert len(numbers(tmp_path)) == 20


@pytest.mark.parametrize("name", ["numpy", "python", "anchormoe"])
def test_a_worker_with_other_versions_is_refused(name: str) -> None:
    terms = Terms.of_driver()
    changes = {"code_version": "0.1"} if name == "anchormoe" else {"versions": {**terms.versions, name: "0.1"}}
    other = dataclasses.replace(terms, **changes)
    with pytest.raises(UserError, match=rf"must have the driver's versions, received {name} \S+ instead of 0.1"):
        compute(other, pow, 2, 3)


def test_a_worker_that_may_compute_other_digits_is_refused() -> None:
    terms = Terms.of_driver()
    terms.require({**environment(), "portable_arithmetic": True})
    with pytest.raises(UserError, match=r"must compute with AVX2 like all others.*eval \"\$\(python -m anchormoe"):
        terms.require({**environment(), "portable_arithmetic": False})


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["engine=dask", "engine.address=nonsense://x"], "engine.address must be that of a running Dask scheduler"),
        (["engine=local", "engine.address=tcp://x:1"], "engine.address must be left out unless engine=dask or"),
        (["engine=slurm", "engine.jobs=0"], "engine.jobs must be a positive number, received 0"),
        (["engine=dsk"], "did you mean engine=dask?"),
        (["engine=local,dask"], "engine must be one for all jobs of a sweep"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["dataset=yacht", "splits=1", *arguments, f"results_dir={tmp_path}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert expected in line


@pytest.mark.parametrize("engine", ["dask", "ray", "slurm"])
def test_a_missing_extra_is_one_line_with_the_command_that_installs_it(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import importlib

    original = importlib.import_module

    def without(name: str, package: str | None = None):
        if name in ("distributed", "ray", "dask_jobqueue"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return original(name, package)

    monkeypatch.setattr(importlib, "import_module", without)
    assert cli.main(["dataset=yacht", "splits=1", f"engine={engine}", f"results_dir={tmp_path}"]) == 2
    assert f"pip install 'anchormoe[{engine}]'" in capsys.readouterr().err


def test_settings_of_the_engine_are_no_part_of_a_rows_identity() -> None:
    from anchormoe.commands.run import parse
    from anchormoe.running.identity import config_hash

    (one,) = parse(["dataset=yacht"])
    (other,) = parse(["dataset=yacht", "engine=slurm", "engine.jobs=7", "workers=3"])
    assert config_hash(one.config()) == config_hash(other.config())


def test_a_stock_experiment_may_run_on_any_engine() -> None:
    from anchormoe.commands.run import parse

    assert parse(["experiment=tables", "engine=dask", "engine.address=tcp://host:8786"])


@pytest.mark.engines
def test_a_scheduler_that_dies_is_one_line_and_keeps_the_rows(tmp_path: Path) -> None:
    with dask_cluster() as own:
        settings = ("dataset=yacht", "method=sklearn.linear_model.Ridge", "splits=1-20", *own.settings)
        path = tmp_path / "runs" / "yacht.jsonl"
        with started(tmp_path, *settings) as process:
            wait_for(lambda: path.exists() and path.read_bytes(), "row")
            os.killpg(own.processes["scheduler"].pid, signal.SIGKILL)
            start = time.monotonic()
            _, errors = process.communicate(timeout=120)
    if process.returncode != 0:  # else it had finished before
        assert process.returncode == 2, errors
        assert "engine=dask must stay reachable" in errors
        assert len(errors.splitlines()) == 1
    assert time.monotonic() - start < 100
    before = numbers(tmp_path)
    assert before
    assert cli.main(["dataset=yacht", "method=sklearn.linear_model.Ridge", "workers=1", f"results_dir={tmp_path}"]) == 0
    assert before.items() <= numbers(tmp_path).items()
