"""Broken files of the user's: each is one clear line and exit code 2, and nothing is left behind."""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import os
import pickle
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from data_files import excel_of, zip_of
from pyarrow import parquet

from anchormoe import cli
from anchormoe.data.formats import read_table

NUMBERS = pa.array(np.arange(60.0))
ARFF = "@relation r\n@attribute area real\n@attribute rooms {0,1,2,3}\n@attribute price real\n@data\n"
GOOD = "area,rooms,price\n" + "".join(f"{n},{n % 4},{n * 3.5}\n" for n in range(60))
ROWS = GOOD.partition("\n")[2]


def write(name: str, content: bytes | str) -> Callable[[], str]:
    def make() -> str:
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return name

    return make


def a_directory() -> str:
    Path("tables").mkdir()
    return "tables"


def a_directory_of_two() -> str:
    Path("tables").mkdir()
    for name in ("a.csv", "b.csv"):
        (Path("tables") / name).write_text(GOOD)
    return "tables"


def a_symlink_loop() -> str:
    Path("a.csv").symlink_to("b.csv")
    Path("b.csv").symlink_to("a.csv")
    return "a.csv"


def a_dangling_symlink() -> str:
    Path("a.csv").symlink_to("gone.csv")
    return "a.csv"


def a_pipe() -> str:
    os.mkfifo("a.csv")
    return "a.csv"


def a_zip_bomb() -> str:
    with zipfile.ZipFile("bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.csv", b"0" * (70 * 2**20))
    return "bomb.zip"


def a_damaged_parquet() -> str:
    pd.DataFrame({"area": np.arange(60.0), "price": np.arange(60.0)}).to_parquet("a.parquet")
    data = bytearray(Path("a.parquet").read_bytes())
    data[len(data) // 2 :] = b"\x00" * (len(data) - len(data) // 2)
    Path("a.parquet").write_bytes(bytes(data))
    return "a.parquet"


def a_nested_parquet() -> str:
    pd.DataFrame({"area": [[1, 2]] * 60, "price": np.arange(60.0)}).to_parquet("a.parquet")
    return "a.parquet"


def a_database() -> str:
    with sqlite3.connect("a.csv") as connection:
        connection.execute("create table houses (price real)")
    connection.close()
    return "a.csv"


def an_encrypted_zip() -> str:
    data = bytearray(zip_of({"a.csv": GOOD.encode()}))
    data[data.find(b"PK\x03\x04") + 6] |= 1
    data[data.find(b"PK\x01\x02") + 8] |= 1
    return write("a.zip", bytes(data))()


def a_workbook_with_a_damaged_member() -> str:
    data = bytearray(excel_of(np.ones((50, 2)), ("area", "price")))
    start = data.find(b"xl/worksheets/sheet1.xml") + 60
    data[start : start + 40] = b"\xff" * 40
    return write("a.xlsx", bytes(data))()


def a_parquet_of(*columns: pa.Array, names: tuple[str, ...] = ("area", "price")) -> Callable[[], str]:
    def make() -> str:
        parquet.write_table(pa.table(list(columns), names=names), "a.parquet")
        return "a.parquet"

    return make


def a_link_in_a_circle_in_a_folder() -> str:
    Path("tables").mkdir()
    (Path("tables") / "a.csv").symlink_to("a.csv")
    return "tables"


def two_sheets() -> str:
    one = excel_of(np.ones((50, 2)), ("area", "price"))
    with zipfile.ZipFile("one.zip", "w") as archive:
        archive.writestr("a.xlsx", one)
        archive.writestr("b.xlsx", one)
    return "one.zip"


# name: how the file is made, and what the line must say
BROKEN: dict[str, tuple[Callable[[], str], str]] = {
    "not there": (lambda: "gone.csv", "No such file or directory"),
    "empty": (write("a.csv", ""), "an empty file"),
    "white space": (write("a.csv", "\n \n\t\n"), "an empty file"),
    "heading only": (write("a.csv", "area,rooms,price\n"), "at least 40 rows"),
    "few rows": (write("a.csv", "\n".join(GOOD.splitlines()[:30])), "at least 40 rows"),
    "one column": (write("a.csv", "price\n" + "1\n2\n" * 30), "must have a feature beside the target 'price'"),
    "nothing but remarks": (
        write("a.csv", "remark,price\n" + "".join(f"flat {n},{n}\n" for n in range(60))),
        "received 2 columns in a.csv; remark is left out: free text: 60 different values in 60 rows",
    ),
    "ragged, a value too many": (write("a.csv", f"{GOOD}1,2,3,4\n"), "Expected 3 fields in line 62, saw 4"),
    "ragged, a value too few": (write("a.csv", f"{GOOD}1,2\n"), "line 62 has 2 values, the first line 3"),
    "heading longer than rows": (write("a.csv", "a," + GOOD), "line 2 has 3 values, the first line 4"),
    "repeated names": (write("a.csv", f"price,rooms,price\n{ROWS}"), "found 'price' twice"),
    "a column without a name": (write("a.csv", f"area,,price\n{ROWS}"), "found none for column 2"),
    "another target": (write("a.csv", f"area,rooms,prize\n{ROWS}"), "did you mean 'prize'?"),
    "mixed types": (write("a.csv", f"{GOOD}80,many,300\n"), "column 'rooms' must be numeric, found 'many' in row 61"),
    "a target of words": (
        write("a.csv", "area,price\n" + "1,dear\n2,cheap\n" * 30),
        "column 'price' must be numeric, found categorical values such as 'cheap'",
    ),
    "a target of dates": (
        write("a.csv", "area,price\n" + "1,2020-01-01\n2,2020-01-02\n" * 30),
        "column 'price' must be numeric, found date values",
    ),
    "a target with some words": (
        write("a.csv", f"{GOOD}80,3,unknown\n"),
        "column 'price' must be numeric, found 'unknown' in row 61",
    ),
    "an empty target": (write("a.csv", "area,price\n" + "1,\n2,\n" * 30), "column 'price' must have values"),
    "a target that never varies": (
        write("a.csv", "area,price\n" + "".join(f"{n},5\n" for n in range(60))),
        "column 'price' must vary by more than 1e-30, found values from 5 to 5",
    ),
    "a target of denormal numbers": (
        write("a.csv", "area,price\n" + "".join(f"{n},{n}e-320\n" for n in range(60))),
        "column 'price' must vary by more than 1e-30",
    ),
    "numbers beyond float32": (
        write("a.csv", "area,price\n" + "".join(f"{n}e200,{n}\n" for n in range(60))),
        "column 'area' must have values up to 1e+36, found 1e+200 in row 2",
    ),
    "infinity": (write("a.csv", f"{GOOD}inf,3,300\n"), "found infinity in row 61"),
    "huge integers": (
        write("a.csv", "id,price\n" + "".join(f"12345678901234567890123{n},{n}\n" for n in range(60))),
        "whole numbers up to 2**53",
    ),
    "64-bit identifiers": (
        write("a.csv", "id,price\n" + "".join(f"{2**60 + n},{n}\n" for n in range(60))),
        "whole numbers up to 2**53",
    ),
    "UTF-16 without a mark": (write("a.csv", GOOD.encode("utf-16-le")), "a binary file of unknown type"),
    "truncated UTF-16": (write("a.csv", GOOD.encode("utf-16")[:3]), "a.csv"),
    "UTF-32": (write("a.csv", GOOD.encode("utf-32")), "a text in UTF-32; save it as UTF-8"),
    "nothing but a mark of UTF-8": (write("a.csv", b"\xef\xbb\xbf"), "an empty file"),
    "NUL bytes": (write("a.csv", GOOD.encode() + b"1,\x00,3\n"), "a binary file of unknown type"),
    "JSON": (write("a.csv", '[{"area": 1, "price": 2}]'), "a JSON file instead of a table"),
    "a bzip2 file": (write("a.csv.bz2", bz2.compress(GOOD.encode())), "a binary file of unknown type"),
    "one very long value": (write("a.csv", "area,price\n1," + "9" * 10**7), "larger than field limit"),
    "one very long quote": (write("a.csv", 'area,price\n"' + "x" * 10**7 + '",1\n'), "larger than field limit"),
    "a web page": (write("a.csv", "<!DOCTYPE html><html><body>log in</body></html>"), "an HTML page"),
    "a pickle": (write("a.csv", pickle.dumps(list(range(100)))), "a binary file of unknown type"),
    "a database": (a_database, "a binary file of unknown type"),
    "an unfinished quote": (write("a.csv", 'area,price\n"1,2\n' + "3,4\n" * 50), "a.csv"),
    "too many columns": (write("a.csv", ",".join(["a"] * 20_000) + "\n"), "more than 10000 columns"),
    "a directory without a table": (a_directory, "a folder must hold one table, found 0"),
    "a directory of two tables": (a_directory_of_two, "a folder must hold one table, found 2 (a.csv, b.csv)"),
    "a symlink loop": (a_symlink_loop, "Too many levels of symbolic links"),
    "a dangling symlink": (a_dangling_symlink, "No such file or directory"),
    "a named pipe": (a_pipe, "must be a file"),
    "an endless device": (lambda: "/dev/zero", "must be a file or a folder with one"),
    "the home of nobody": (lambda: "~nobody-of-this-name/a.csv", "No such file or directory"),
    "a name that is too long": (lambda: "a" * 300 + ".csv", "File name too long"),
    "a folder with a link in a circle": (a_link_in_a_circle_in_a_folder, "Too many levels of symbolic links"),
    "an encrypted zip": (an_encrypted_zip, "damaged or encrypted zip member 'a.csv'"),
    "a zip in a zip": (
        write("a.zip", zip_of({"b.zip": zip_of({"a.csv": GOOD.encode()})})),
        "must hold one data file, found 0 in the archive",
    ),
    "a zip bomb": (a_zip_bomb, "unpacks to more than 64 MiB"),
    "a zip with a path outside": (write("a.zip", zip_of({"../a.csv": GOOD.encode()})), "would land outside the folder"),
    "a truncated zip": (write("a.zip", zip_of({"a.csv": GOOD.encode()})[:50]), "zip archive"),
    "two tables in a zip": (two_sheets, "must hold one data file, found 2"),
    "a gzip bomb": (write("a.csv.gz", gzip.compress(b"0" * (70 * 2**20), 1)), "a truncated or oversized gzip file"),
    "a truncated gzip": (write("a.csv.gz", gzip.compress(GOOD.encode())[:40]), "a truncated or oversized gzip file"),
    "a damaged xz": (write("a.csv.xz", lzma.compress(GOOD.encode())[:-20]), "xz file"),
    "a workbook with a damaged member": (a_workbook_with_a_damaged_member, "damaged or encrypted zip member"),
    "a damaged workbook": (write("a.xls", b"\xd0\xcf\x11\xe0 cut off"), "not readable as a table"),
    "a damaged parquet": (a_damaged_parquet, "not readable as a table"),
    "lists in a parquet": (a_nested_parquet, "column 'area' must hold numbers, dates or categories"),
    "structures in a parquet": (
        a_parquet_of(pa.array([{"a": 1}] * 60), NUMBERS),
        "column 'area' must hold numbers, dates or categories, found values of type dict",
    ),
    "bytes in a parquet": (a_parquet_of(pa.array([b"\xff"] * 60), NUMBERS), "found values of type bytes"),
    "repeated names in a parquet": (
        a_parquet_of(NUMBERS, NUMBERS, names=("price", "price")),
        "column names must differ, found 'price' twice",
    ),
    "a parquet without rows": (a_parquet_of(NUMBERS[:0], NUMBERS[:0]), "must have at least 40 rows"),
    "nothing but the mark of a parquet": (write("a.parquet", b"PAR1"), "not readable as a table"),
    "an arff of sparse rows": (
        write("a.arff", ARFF + "".join(f"{{0 {n}, 2 {n}}}\n" for n in range(60))),
        "an arff file with sparse rows",
    ),
    "an arff with an unknown level": (write("a.arff", ARFF + "1,7,3\n" * 60), "7 value not in"),
    "an arff with ragged rows": (write("a.arff", ARFF + "1,2\n" * 60), "not readable as a table"),
    "an arff without data": (write("a.arff", "@relation r\n@attribute price real\n"), "a.arff"),
    "no number of OpenML": (lambda: "openml:boston", "must be named as openml:<id>"),
}


def test_there_are_thirty_kinds_and_more() -> None:
    assert len(BROKEN) >= 60


@pytest.mark.parametrize("command", ["data add", "rank"])
@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_is_one_line(
    kind: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make, expected = BROKEN[kind]
    path = make()
    before = sorted(Path().rglob("*"))
    table = ["data", "add", path] if command == "data add" else ["rank", f"data={path}", "methods=gamlss"]
    assert cli.main([*table, "target=price"]) == 2
    output = capsys.readouterr()
    (line,) = output.err.splitlines()
    assert line.startswith("anchormoe-bench: ")
    assert expected in line
    assert len(line) < 600
    assert output.out == ""
    assert sorted(Path().rglob("*")) == before


def test_an_unreadable_file_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "houses.csv"
    path.write_text(GOOD)
    path.chmod(0)
    if os.geteuid() == 0:  # root may read everything

        def refuse(self: Path) -> bytes:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

        monkeypatch.setattr(Path, "read_bytes", refuse)
    assert cli.main(["data", "add", str(path), "target=price"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "Permission denied" in line


def test_an_arff_of_keel_is_read() -> None:
    lines = "".join(f"{n},{n % 4},{n * 2}\n" for n in range(60))
    named = ARFF.replace("@data", "@inputs area, rooms\n@outputs price\n@data")
    table = read_table((named + lines).encode(), trusted=True)
    assert table.names == ["area", "rooms", "price"]
    assert table.values[:, 2].tolist() == [n * 2 for n in range(60)]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "data must name a file, a folder with one, or openml:<id>, received nothing"),
        (["houses.csv"], "target must name the column of houses.csv to predict, received nothing"),
        (["houses.csv", "target=price", "groups=price"], "groups must not be the target, received 'price'"),
        (["houses.csv", "target=price", "time=price"], "time must not be the target, received 'price'"),
        (["houses.csv", "target=price", "groups=area", "time=rooms"], "groups and time must not both be given"),
        (["houses.csv", "target=price", "groups=owner"], "unknown groups of dataset 'houses'"),
        (["houses.csv", "target=price", "categorical=colour"], "unknown categorical column of dataset 'houses'"),
        (
            ["houses.csv", "target=price", "groups=rooms"],
            "groups must name a column with at least 5 groups, received 4",
        ),
        (["houses.csv", "target=price", "time=rooms"], "time must name a column whose later half has at least 20"),
        (["houses.csv", "target=price", "name=wine"], "name must not be that of a shipped dataset, received 'wine'"),
        (["houses.csv", "target=price", "name=a/b"], "name must be letters, digits, - and _, received 'a/b'"),
        (["houses.csv", "target=price", "colour=red"], "data add takes target=, name=, groups="),
        (["houses.csv", "target=price", "target=area"], "target must be given once, received 'price' and 'area'"),
        (["houses.csv", "more.csv", "target=price"], "data add takes one file, received houses.csv and more.csv"),
    ],
)
def test_a_wrong_argument_is_one_line(
    arguments: list[str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("houses.csv").write_text(GOOD)
    assert cli.main(["data", "add", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert expected in line
    assert [path.name for path in Path().iterdir()] == ["houses.csv"]
