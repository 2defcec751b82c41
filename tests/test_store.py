"""Rows on disk: nothing torn, nothing twice, nothing lost."""

import json
from pathlib import Path

import pytest

from anchormoe.rows import Row
from anchormoe.running import local_store, store, stored_rows
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
        **({"rmse_y": 0.5, "nll_y": 1.5} if status == "ok" else {}),
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
    assert [row["rmse_y"] for row in store.read(path)] == [1.0, 0.5]


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


def test_rows_appended_together_are_written_once_and_synced_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    original = local_store.os.fsync
    monkeypatch.setattr(local_store.os, "fsync", lambda descriptor: synced.append(descriptor) or original(descriptor))
    file = RowFile(tmp_path / "runs" / "boston.jsonl")
    rows = [make_row(1), make_row(2), make_row(2, rmse_y=9.0), make_row(3, status="failed"), make_row(3)]
    assert file.append_all(rows) == [make_row(1), make_row(2), make_row(3)]
    assert len(synced) == 3, "the file, and the two folders that have a new entry"
    assert file.append_all([make_row(2), make_row(4)]) == [make_row(4)]
    assert len(synced) == 4
    assert store.read(file.path) == [make_row(split) for split in (1, 2, 3, 4)]


def test_a_write_that_fails_leaves_no_part_of_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RowFile(tmp_path / "boston.jsonl")
    file.append(make_row(1))
    before = file.path.read_bytes()

    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(local_store.os, "fsync", no_space)
        with pytest.raises(OSError, match="No space"):
            file.append(make_row(2))
    assert file.path.read_bytes() == before
    assert file.append(make_row(2))
    assert store.read(file.path) == [make_row(1), make_row(2)]


@pytest.mark.parametrize("missing", ["rmse_y", "nll_y"])
def test_a_row_without_its_scores_is_not_finished(tmp_path: Path, missing: str) -> None:
    file = RowFile(tmp_path / "boston.jsonl")
    assert file.append(make_row(1, **{missing: None}))
    assert file.append(make_row(1))
    assert store.read(file.path) == [make_row(1)]


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
    original = stored_rows.parsed
    monkeypatch.setattr(stored_rows, "parsed", lambda line: parsed.append(line) or original(line))
    monkeypatch.setattr(local_store.os, "fsync", lambda descriptor: None)
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
