"""Rows in an object store: nothing twice, nothing lost, and the same rows as in a folder."""

import json
import subprocess
import sys
from pathlib import Path

import obstore
import pandas as pd
import pytest

from anchormoe.config.schema import TABLE_EXPERIMENTS
from anchormoe.errors import UserError
from anchormoe.paths import shipped
from anchormoe.rows import Row
from anchormoe.running import row_objects, store
from anchormoe.running.object_store import ObjectPlace


def make_row(split: int, *, status: str = "ok", **values: object) -> Row:
    labels = {"dataset": "boston", "method": "m", "ablation": "full", "protocol": "clean", "anchor": "none", "seed": 1}
    scores = {"rmse_y": 0.1 + 0.2, "nll_y": 1.5} if status == "ok" else {}
    return {**labels, "split": split, "config_hash": "abc", "status": status, **scores, **values}


@pytest.fixture
def path(url: str) -> ObjectPlace:
    found = store.path_for(url, "runs", "boston")
    assert isinstance(found, ObjectPlace)
    return found


def test_rows_come_back_as_they_were_stored_and_a_good_one_is_stored_once(path: ObjectPlace) -> None:
    file = path.stored_rows()
    assert file.append(make_row(1))
    assert not file.append(make_row(1, rmse_y=9.0))
    assert file.append_all([make_row(2), make_row(2, rmse_y=9.0), make_row(3, status="failed")]) == [
        make_row(2),
        make_row(3, status="failed"),
    ]
    again = path.stored_rows()
    assert not again.append(make_row(1, rmse_y=9.0))
    assert again.append(make_row(3))
    assert again.rows() == store.read(path) == [make_row(1), make_row(2), make_row(3)]
    assert len(path.sizes()) == 3, "one object for each batch"
    assert file.rows() == again.rows(), "what others wrote is found by the next reading"


def test_a_failed_row_never_hides_a_good_one(path: ObjectPlace) -> None:
    """Two owners may have written the same split, where one was suspended and has lost its lock."""
    first, second = path.stored_rows(), path.stored_rows()
    assert first.rows() == second.rows() == []
    first.append(make_row(1))
    second.append(make_row(1, status="failed"))
    assert store.read(path) == [make_row(1)]


def test_appending_lists_nothing_and_fetches_nothing(path: ObjectPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    file = path.stored_rows()
    file.append(make_row(0))
    calls: list[str] = []
    for name in ("list", "get"):
        original = getattr(obstore, name)
        monkeypatch.setattr(obstore, name, lambda *a, _n=name, _o=original, **k: calls.append(_n) or _o(*a, **k))
    for split in range(1, 30):
        file.append(make_row(split))
    assert calls == []
    assert len(file.rows()) == 30
    assert calls == ["list", "get"], "a single listing, and the place where a copied file would be"
    assert len(store.read(path)) == 30


def test_a_merge_keeps_every_row_and_leaves_one_object(path: ObjectPlace) -> None:
    rows = [make_row(split) for split in range(20)]
    file = path.stored_rows()
    for row in rows:
        file.append(row)
    file.tidy()
    assert len(path.sizes()) == 1
    assert store.read(path) == file.rows() == rows
    file.append(make_row(20))
    assert store.read(path) == file.rows() == [*rows, make_row(20)]
    path.stored_rows().tidy()
    file.tidy()
    assert len(path.sizes()) == 1
    assert path.glob("*")[0].read_bytes().count(b"\n") == 21


def test_large_objects_are_not_merged_again(path: ObjectPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    file = path.stored_rows()
    for split, padding in enumerate(("x" * 2000, "", "")):
        file.append(make_row(split, padding=padding))
    monkeypatch.setattr(row_objects, "SMALL_BYTES", 1000)
    file.tidy()
    assert len(path.sizes()) == 2
    assert len(store.read(path)) == 3


def test_a_merge_that_is_killed_before_it_removes_anything_loses_and_doubles_nothing(
    path: ObjectPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [make_row(split) for split in range(5)]
    file = path.stored_rows()
    for row in rows:
        file.append(row)
    with monkeypatch.context() as patch:
        patch.setattr(ObjectPlace, "remove", lambda self, keys: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            file.tidy()
    assert len(path.sizes()) == 6
    assert store.read(path) == rows
    again = path.stored_rows()
    assert again.append_all(rows) == []
    again.tidy()
    assert len(path.sizes()) == 1
    assert path.glob("*")[0].read_bytes().count(b"\n") == 5


def test_rows_that_are_merged_while_they_are_read_are_read(path: ObjectPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    file = path.stored_rows()
    rows = [make_row(split) for split in range(5)]
    for row in rows:
        file.append(row)
    original = ObjectPlace.sizes

    def stale(self: ObjectPlace) -> dict[str, int]:
        found = original(self)
        monkeypatch.setattr(ObjectPlace, "sizes", original)
        file.tidy()
        return found

    monkeypatch.setattr(ObjectPlace, "sizes", stale)
    assert store.read(path) == rows
    file.append(make_row(5))
    monkeypatch.setattr(ObjectPlace, "sizes", stale)
    assert len(store.load_results(path.parent.parent)) == 6
    monkeypatch.setattr(ObjectPlace, "sizes", lambda self: {f"{path.key}/000000001-gone.jsonl": 1})
    with pytest.raises(UserError, match="objects vanish"):
        store.read(path)


def test_rows_that_somebody_removed_are_gone(path: ObjectPlace) -> None:
    file = path.stored_rows()
    file.append(make_row(1))
    path.remove(list(path.sizes()))
    assert file.rows() == []
    assert file.append(make_row(1))


@pytest.mark.parametrize("line", [b"123", b"null", b"{}", b'{"dataset": [1]}', b"[" * 50_000, b"\xff\xfe", b"no JSON"])
def test_foreign_lines_are_dropped_with_a_warning(path: ObjectPlace, line: bytes) -> None:
    text = json.dumps(make_row(1)).encode() + b"\n" + line + b"\n" + json.dumps(make_row(2)).encode()
    (path / "000000004-other.jsonl").put(text)
    with pytest.warns(UserWarning, match=r"boston.jsonl/000000004-other.jsonl: line 2 is not a row and was dropped"):
        assert store.read(path) == [make_row(1), make_row(2)]
    with pytest.warns(UserWarning, match="line 2 is not a row"):
        assert path.stored_rows().append(make_row(3))
    assert [key for key in path.sizes() if "/000000005-" in key], "numbers go on"


def test_foreign_objects_are_skipped_with_a_warning(path: ObjectPlace) -> None:
    path.stored_rows().append(make_row(1))
    (path / "notes.txt").put(b"\x00" * 100)
    with pytest.warns(UserWarning, match=r"boston.jsonl/notes.txt is no object of rows and was skipped"):
        assert store.read(path) == [make_row(1)]
    with pytest.warns(UserWarning, match="was skipped"):
        assert len(store.load_results(path.parent.parent)) == 1
    path.stored_rows().tidy()
    assert path.glob("notes.txt"), "what is not ours stays"


def test_a_copied_folder_gives_the_same_table(url: str, tmp_path: Path) -> None:
    """Files of rows are read as they are; a run goes on beside them."""
    local = shipped("results")
    results = store.place(url)
    for experiment in TABLE_EXPERIMENTS:
        for file in (local / experiment).glob("*.jsonl"):
            (results / experiment / file.name).put(file.read_bytes())
    expected = store.load_results(local, TABLE_EXPERIMENTS)
    assert len(expected) > 0
    pd.testing.assert_frame_equal(store.load_results(url, TABLE_EXPERIMENTS), expected)
    path = results / TABLE_EXPERIMENTS[0] / "boston.jsonl"
    before = store.read(path)
    file = path.stored_rows()
    assert file.append_all(before) == []
    assert file.append(make_row(99))
    file.tidy()
    assert store.read(path) == [*before, make_row(99)]


def test_files_of_other_kinds_are_stored_beside_the_rows(url: str, tmp_path: Path) -> None:
    for results in (store.place(url), store.place(str(tmp_path))):
        target = (results / "runs" / "boston.jsonl").with_suffix(".predictions") / "m-abc.parquet"
        with pytest.raises(FileNotFoundError):
            target.read_bytes()
        target.put(b"first")
        target.put(b"\x00second")
        assert target.read_bytes() == b"\x00second"
        (found,) = results.glob("*/*.predictions/*.parquet")
        assert found == target
        assert str(found).endswith("/runs/boston.predictions/m-abc.parquet")
        assert target.parent.parent.name == "runs"
        assert list(results.glob("*/*.jsonl")) == []
        assert store.load_results(results).empty
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["m-abc.parquet"]


def test_reading_loads_no_library_of_object_stores_for_a_folder(tmp_path: Path) -> None:
    code = (
        "import sys; from anchormoe.running.store import load_results; load_results(sys.argv[1]); "
        "print('obstore' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_rows_of_other_folders_of_the_bucket_are_not_seen(url: str, path: ObjectPlace) -> None:
    path.stored_rows().append(make_row(1))
    assert len(store.load_results(url)) == 1
    for other in (f"{url}-2", url.removesuffix("/folder"), f"{url}/runs"):
        assert store.load_results(other).empty
    assert not store.place(f"{url}-2").is_dir()
    assert len(store.load_results(f"{url}/")) == 1
