"""Rows on disk: nothing torn, nothing twice, nothing lost."""

import json
import multiprocessing
from pathlib import Path

import pytest

from anchormoe.run import store


def make_row(split: int, *, status: str = "ok", config_hash: str = "abc", **values: object) -> store.Row:
    return {
        "dataset": "boston",
        "method": "anchormoe",
        "ablation": "full",
        "protocol": "published",
        "anchor": "gbdt",
        "seed": 1,
        "split": split,
        "config_hash": config_hash,
        "status": status,
        **values,
    }


def test_rows_come_back_as_they_were_stored(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "boston.jsonl"
    rows = [make_row(1, rmse_y=2.5337), make_row(2, rmse_y=0.1 + 0.2)]
    assert all(store.append(path, row) for row in rows)
    assert store.read(path) == rows


def test_a_good_row_is_stored_once(tmp_path: Path) -> None:
    path = tmp_path / "boston.jsonl"
    assert store.append(path, make_row(1, rmse_y=1.0))
    assert not store.append(path, make_row(1, rmse_y=2.0))
    assert store.append(path, make_row(1, config_hash="other"))
    assert [row.get("rmse_y") for row in store.read(path)] == [1.0, None]


def test_a_failed_row_gives_way_to_a_later_good_one(tmp_path: Path) -> None:
    path = tmp_path / "boston.jsonl"
    assert store.append(path, make_row(1, status="failed", error="boom"))
    assert store.append(path, make_row(1, rmse_y=1.0))
    assert store.read(path) == [make_row(1, rmse_y=1.0)]


def test_a_torn_last_line_is_dropped_with_a_warning_and_cut_off_by_the_next_append(tmp_path: Path) -> None:
    path = tmp_path / "boston.jsonl"
    store.append(path, make_row(1))
    store.append(path, make_row(2))
    whole = path.read_bytes()
    for cut in (1, 20, len(whole) // 2 - 2):
        path.write_bytes(whole[:-cut])
        with pytest.warns(UserWarning, match="torn"):
            assert store.read(path) == [make_row(1)]
    store.append(path, make_row(3))
    assert store.read(path) == [make_row(1), make_row(3)]


def test_a_damaged_line_in_the_middle_loses_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "boston.jsonl"
    lines = [json.dumps(make_row(1)), '{"dataset": "bos', json.dumps(make_row(3))]
    path.write_text("\n".join(lines) + "\n")
    with pytest.warns(UserWarning, match="line 2"):
        assert [row["split"] for row in store.read(path)] == [1, 3]


def _append_many(path: Path, first: int) -> None:
    for split in range(first, first + 25):
        store.append(path, make_row(split % 40, padding="x" * 3000))


def test_several_processes_may_append_at_once(tmp_path: Path) -> None:
    path = tmp_path / "boston.jsonl"
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_append_many, args=(path, first)) for first in (0, 10, 20)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    lines = path.read_text().splitlines()
    assert sorted(json.loads(line)["split"] for line in lines) == list(range(40))


def test_load_results_reads_the_named_experiments(tmp_path: Path) -> None:
    store.append(store.path_for(tmp_path, "tables", "boston"), make_row(1))
    store.append(store.path_for(tmp_path, "runs", "boston"), make_row(2))
    assert set(store.load_results(tmp_path).experiment) == {"tables", "runs"}
    assert list(store.load_results(tmp_path, ["tables"]).split) == [1]
    assert store.load_results(tmp_path, ["absent"]).empty
