"""Rows on disk: nothing torn, nothing twice, nothing lost."""

import json
import multiprocessing
from pathlib import Path

import pytest

from anchormoe.rows import Row
from anchormoe.running import store
from anchormoe.running.store import RowFile


def make_row(split: int, *, status: str = "ok", config_hash: str = "abc", **values: object) -> Row:
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
    assert all(RowFile(path).append(row) for row in rows)
    assert store.read(path) == rows


def test_a_good_row_is_stored_once(tmp_path: Path) -> None:
    path = tmp_path / "boston.jsonl"
    assert RowFile(path).append(make_row(1, rmse_y=1.0))
    assert not RowFile(path).append(make_row(1, rmse_y=2.0))
    assert RowFile(path).append(make_row(1, config_hash="other"))
    assert [row.get("rmse_y") for row in store.read(path)] == [1.0, None]


def test_a_failed_row_gives_way_to_a_later_good_one(tmp_path: Path) -> None:
    path = tmp_path / "boston.jsonl"
    assert RowFile(path).append(make_row(1, status="failed", error="boom"))
    assert RowFile(path).append(make_row(1, rmse_y=1.0))
    assert store.read(path) == [make_row(1, rmse_y=1.0)]


def test_a_torn_last_line_is_dropped_with_a_warning_and_cut_off_by_the_next_append(tmp_path: Path) -> None:
    path = tmp_path / "boston.jsonl"
    RowFile(path).append(make_row(1))
    RowFile(path).append(make_row(2))
    whole = path.read_bytes()
    for cut in (2, 20, len(whole) // 2 - 2):
        path.write_bytes(whole[:-cut])
        with pytest.warns(UserWarning, match="torn"):
            assert store.read(path) == [make_row(1)]
    RowFile(path).append(make_row(3))
    assert store.read(path) == [make_row(1), make_row(3)]


def test_a_damaged_line_in_the_middle_loses_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "boston.jsonl"
    lines = [json.dumps(make_row(1)), '{"dataset": "bos', json.dumps(make_row(3))]
    path.write_text("\n".join(lines) + "\n")
    with pytest.warns(UserWarning, match="line 2"):
        assert [row["split"] for row in store.read(path)] == [1, 3]


def _append_many(path: Path, first: int) -> None:
    for split in range(first, first + 25):
        RowFile(path).append(make_row(split % 40, padding="x" * 3000))


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
    RowFile(store.path_for(tmp_path, "tables", "boston")).append(make_row(1))
    RowFile(store.path_for(tmp_path, "runs", "boston")).append(make_row(2))
    assert set(store.load_results(tmp_path).experiment) == {"tables", "runs"}
    assert list(store.load_results(tmp_path, ["tables"]).split) == [1]
    assert store.load_results(tmp_path, ["absent"]).empty


def test_a_whole_last_row_without_its_newline_is_kept(tmp_path: Path) -> None:
    """An editor may leave a file without the last newline."""
    path = tmp_path / "boston.jsonl"
    RowFile(path).append(make_row(1))
    path.write_bytes(path.read_bytes()[:-1])
    assert store.read(path) == [make_row(1)]
    RowFile(path).append(make_row(2))
    assert store.read(path) == [make_row(1), make_row(2)]
    assert path.read_bytes().count(b"\n") == 2


ODD_LINES = ["123", "null", "[1, 2]", "{}", '{"a": 1}', '{"dataset": [1]}', "[" * 100_000, "\udcff", "no JSON"]


@pytest.mark.parametrize("line", ODD_LINES, ids=range(len(ODD_LINES)))
def test_an_odd_line_is_dropped_with_a_warning(line: str, tmp_path: Path) -> None:
    path = tmp_path / "boston.jsonl"
    RowFile(path).append(make_row(1))
    with path.open("ab") as file:
        file.write(line.encode(errors="surrogateescape") + b"\n")
    with pytest.warns(UserWarning, match="line 2 is not a row"):
        assert store.read(path) == [make_row(1)]
    with pytest.warns(UserWarning, match="line 2 is not a row"):
        assert RowFile(path).append(make_row(2))
    with pytest.warns(UserWarning, match="line 2 is not a row"):
        assert store.read(path) == [make_row(1), make_row(2)]


def test_two_writers_see_each_others_rows(tmp_path: Path) -> None:
    first, second = (RowFile(tmp_path / "boston.jsonl") for _ in range(2))
    assert first.append(make_row(1, rmse_y=1.0))
    assert not second.append(make_row(1, rmse_y=2.0))
    assert second.append(make_row(2))
    assert first.rows() == [make_row(1, rmse_y=1.0), make_row(2)]


def test_appending_does_not_read_the_file_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand rows are parsed a thousand times, not half a million."""
    parsed = []
    original = store._parsed
    monkeypatch.setattr(store, "_parsed", lambda line: parsed.append(line) or original(line))
    monkeypatch.setattr(store.os, "fsync", lambda descriptor: None)
    file = RowFile(tmp_path / "boston.jsonl")
    for split in range(1000):
        file.append(make_row(split))
    assert len([line for line in parsed if line]) == 1000
    assert len(file.rows()) == 1000


def test_a_file_that_was_removed_starts_anew(tmp_path: Path) -> None:
    file = RowFile(tmp_path / "boston.jsonl")
    file.append(make_row(1))
    file.path.unlink()
    assert file.rows() == []
    assert file.append(make_row(1))
    assert file.rows() == [make_row(1)]
