"""Predictions kept beside the rows: complete, never half-written, found again by the next run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import anchormoe
from anchormoe import cli
from anchormoe.commands.run import parse
from anchormoe.data.catalogue import info
from anchormoe.data.dataset import load
from anchormoe.rows import Row
from anchormoe.running import predictions, store
from anchormoe.running.evaluate import evaluate
from anchormoe.running.identity import config_hash
from anchormoe.running.tasks import make_task

RIDGE = ["dataset=wine", "method=sklearn.linear_model.Ridge", "protocol=clean", "splits=1-3", "workers=1"]
HOUSES = "name: houses\npath: houses.csv\ntarget: price\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str, dataset: str = "wine") -> list[Row]:
    settings = [f"dataset={dataset}" if argument.startswith("dataset=") else argument for argument in RIDGE]
    assert cli.main([*settings, *arguments]) == 0
    return store.read(Path(f"results/runs/{dataset}.jsonl"))


def the_file(dataset: str = "wine") -> Path:
    (path,) = Path(f"results/runs/{dataset}.predictions").iterdir()
    return path


def test_every_score_of_a_row_can_be_computed_from_its_predictions(folder: Path) -> None:
    rows, kept = run("predictions=on"), anchormoe.load_predictions()
    assert set(kept["experiment"]) == {"runs"}
    dataset = load(info("wine"))
    for row in rows:
        mine = kept[kept["split"] == row["split"]]
        assert set(mine["config_hash"]) == {row["config_hash"]}
        np.testing.assert_array_equal(mine["y"], dataset.y[mine["row"]])
        assert -mine["log_prob"].mean() == pytest.approx(row["nll_y"], rel=1e-12)
        assert -mine["log_cell"].mean() == pytest.approx(row["nll_cell_y"], rel=1e-12)
        assert mine["crps"].mean() == pytest.approx(row["crps_y"], rel=1e-12)
        assert np.sqrt(((mine["y"] - mine["mean"]) ** 2).mean()) == pytest.approx(row["rmse_y"], rel=1e-12)
        assert np.histogram(mine["pit"], bins=20, range=(0, 1))[0].tolist() == row["pit_counts"]
        inside = (mine["y"] >= mine["q0.05"]) & (mine["y"] <= mine["q0.95"])
        assert inside.mean() == pytest.approx(row["coverage_90"])
        assert (mine["q0.25"] < mine["q0.75"]).all()
        assert "predictions" not in row
    first = kept.sort_values("split", kind="stable").drop_duplicates("row")
    assert len(first) < len(kept)
    for row in rows:
        places = first.loc[first["split"] == row["split"], "pit"]
        assert np.histogram(places, bins=20, range=(0, 1))[0].tolist() == row["pit_counts_once"]


def test_predictions_change_neither_the_row_nor_its_identity(folder: Path) -> None:
    def without_cost(row: Row) -> Row:
        return {key: value for key, value in row.items() if not key.endswith(("_seconds", "_mb"))}

    kept = [without_cost(row) for row in run("predictions=on")]
    assert [without_cost(row) for row in run("predictions=off", "results_dir=other", "experiment_name=x")] == kept
    other = [without_cost(row) for row in store.read(Path("other/x/wine.jsonl"))]
    assert other == kept
    assert not Path("other/x/wine.predictions").exists()
    (job,) = parse([*RIDGE, "predictions=on"])
    (plain,) = parse(RIDGE)
    assert config_hash(job.config()) == config_hash(plain.config())


def test_they_are_kept_of_ones_own_data_and_only_on_demand_of_the_shipped(folder: Path) -> None:
    run()
    assert not Path("results/runs/wine.predictions").exists()
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(60, 3)), columns=["area", "rooms", "price"])
    table.to_csv("houses.csv", index=False)
    Path("conf/dataset").mkdir(parents=True)
    Path("conf/dataset/houses.yaml").write_text(HOUSES)
    run(dataset="houses")
    assert predictions.stored_splits(the_file("houses")) == {1, 2, 3}


def test_what_is_missing_is_computed_and_nothing_else(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []

    def counting(task: Any) -> Row:
        computed.append(task.labels["split"])
        return evaluate(task)

    monkeypatch.setattr("anchormoe.running.evaluate.evaluate", counting)
    rows = run()
    assert sorted(computed) == [1, 2, 3]
    computed.clear()
    assert run("predictions=on") == rows, "rows that are stored stay as they are"
    assert sorted(computed) == [1, 2, 3], "they had no predictions"
    computed.clear()
    run("predictions=on")
    assert computed == []
    kept = pd.read_parquet(the_file())
    kept[kept["split"] != 2].to_parquet(the_file(), index=False)
    run("predictions=on")
    assert computed == [2]
    pd.testing.assert_frame_equal(
        pd.read_parquet(the_file()).sort_values(["split"], kind="stable", ignore_index=True), kept
    )
    computed.clear()
    Path("results/runs/wine.jsonl").unlink()
    run("predictions=on", "splits=3")
    assert computed == [3], "predictions without their row are computed again"
    pd.testing.assert_frame_equal(
        pd.read_parquet(the_file()).sort_values(["split"], kind="stable", ignore_index=True), kept
    )


def test_a_file_that_cannot_be_read_is_replaced(folder: Path) -> None:
    run("predictions=on")
    before = pd.read_parquet(the_file())
    the_file().write_bytes(b"PAR1 no more")
    with pytest.warns(UserWarning, match="cannot be read and will be replaced"):
        run("predictions=on")
    pd.testing.assert_frame_equal(pd.read_parquet(the_file()), before)


def test_a_disk_that_is_full_costs_neither_old_predictions_nor_makes_a_row(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("predictions=on", "splits=1")
    before = the_file().read_bytes()

    def full(self: pd.DataFrame, file: Any, **settings: Any) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pd.DataFrame, "to_parquet", full)
    assert cli.main([*RIDGE, "predictions=on", "splits=2"]) == 2
    assert "predictions must be stored in" in capsys.readouterr().err
    assert the_file().read_bytes() == before
    assert [row["split"] for row in store.read(Path("results/runs/wine.jsonl"))] == [1]


def test_evaluation_returns_predictions_with_the_row_and_writes_nothing(folder: Path) -> None:
    (job,) = parse(RIDGE)
    assert "predictions" not in evaluate(make_task(job.config(), 1))
    row = evaluate(make_task(job.config(), 1, keep_predictions=True))
    assert len(row["predictions"]["y"]) == len(row["predictions"]["q0.5"]) == 160
    assert list(folder.iterdir()) == []
