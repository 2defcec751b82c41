"""A user's dataset is a file and three lines of YAML; every mistake is one line."""

import dataclasses
import lzma
from pathlib import Path

import numpy as np
import pytest
from data_files import excel_of, zip_of

from anchormoe import cli
from anchormoe.commands.run import parse
from anchormoe.data.catalogue import catalogue, info
from anchormoe.data.dataset import load, num_rows, pinned
from anchormoe.data.formats import ContainerError, content_sha256, read_table
from anchormoe.errors import UserError
from anchormoe.rows import Row
from anchormoe.running import store
from anchormoe.running.identity import config_hash

QUICK = ["dataset=houses", "anchor=ridge", "train.epochs=2", "splits=1-2", "workers=1"]
DESCRIPTION = "name: houses\npath: houses.csv\ntarget: price\n"


def table(num_rows: int = 60) -> np.ndarray:
    stream = np.random.RandomState(0)
    area, rooms = stream.uniform(30, 200, num_rows), stream.randint(1, 7, num_rows)
    price = 3 * area + 10 * rooms + stream.normal(0, 20, num_rows)
    return np.column_stack([area, rooms, price]).round(2)


def text(values: np.ndarray, heading: str = "area,rooms,price", separator: str = ",") -> str:
    return "\n".join([heading, *(separator.join(map(repr, row)) for row in values.tolist())]) + "\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a current folder with a dataset of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "houses.csv").write_text(text(table()))
    (tmp_path / "conf" / "dataset").mkdir(parents=True)
    (tmp_path / "conf" / "dataset" / "houses.yaml").write_text(DESCRIPTION)
    return tmp_path


def describe(folder: Path, content: str, name: str = "houses") -> None:
    (folder / "conf" / "dataset" / f"{name}.yaml").write_text(content)


def rows(folder: Path) -> list[Row]:
    return store.read(folder / "results" / "runs" / "houses.jsonl")


def mistake(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command that must fail as the user's mistake and store nothing; return its one line."""
    assert cli.main(list(arguments)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert not Path("results").exists()
    return line


def test_a_file_and_three_lines_of_yaml_are_a_dataset(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(QUICK) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "houses (standard), anchormoe full, protocol published" in output
    stored = rows(folder)
    assert [row["split"] for row in stored] == [1, 2]
    assert {row["data_sha256"] for row in stored} == {content_sha256(table())}
    assert {(row["num_rows"], row["num_features"], row["variant"]) for row in stored} == {(60, 2, "standard")}
    assert cli.main(QUICK) == 0
    assert "2 of 2 splits are stored already" in capsys.readouterr().out


def test_another_file_or_another_target_makes_other_rows(folder: Path) -> None:
    assert cli.main(QUICK) == 0
    changed = table()
    changed[3, 0] += 1
    (folder / "houses.csv").write_text(text(changed))
    assert cli.main(QUICK) == 0
    assert len(rows(folder)) == 4
    (folder / "houses.csv").write_text(text(table()))
    assert cli.main([*QUICK, "dataset.target=area"]) == 0
    assert len(rows(folder)) == 6


def test_what_is_learnt_from_makes_the_hash(folder: Path) -> None:
    def hash_of(*arguments: str) -> str:
        (job,) = parse(["dataset=houses", *arguments])
        return config_hash(job.config())

    first = hash_of()
    assert hash_of("dataset.features=[area]") != first
    assert hash_of("dataset.subsample=50") != first
    (folder / "houses.csv").write_text(text(table(), heading="rooms,price,area"))
    assert hash_of() != first  # the same values, but another column is the target
    (folder / "houses.tsv").write_text(text(table(), heading="area\trooms\tprice", separator="\t"))
    describe(folder, "name: houses\npath: houses.tsv\ntarget: price\ntitle: Houses sold\n")
    assert hash_of() == first  # another container and a title change no number


def test_a_changed_description_of_a_shipped_dataset_makes_other_rows() -> None:
    (job,) = parse(["dataset=yacht"])
    (other,) = parse(["dataset=yacht", "dataset.target=froude_number"])
    assert config_hash(job.config()) != config_hash(other.config())


def test_a_file_that_changes_during_a_run_is_refused(folder: Path) -> None:
    houses = pinned(info("houses"))
    assert houses.content_sha256 == load(houses).sha256
    (folder / "houses.csv").write_text(text(table() + 1))
    with pytest.raises(UserError, match=r"cannot be read from houses.csv: expected content hash .*, found 60 rows x 3"):
        load(houses)


def test_the_data_command_lists_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["data"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("houses "))
    assert line.split() == ["houses", "60", "x", "2", "standard", "houses.csv", "file:", "yes", "none"]
    (folder / "houses.csv").unlink()
    assert cli.main(["data"]) == 0
    assert "file: NO" in capsys.readouterr().out
    assert "is read from houses.csv, there is nothing to fetch" in mistake(capsys, "data", "fetch", "houses")


def test_variants_features_and_rows(folder: Path) -> None:
    describe(
        folder,
        """
        name: houses
        path: houses.csv
        variants:
          price: {target: price, features: [area]}
          rooms: {target: rooms, rows: [10, 60]}
        """,
    )
    houses = info("houses")
    first, second = load(houses), load(dataclasses.replace(houses, variant="rooms"))
    assert (first.variant, first.feature_names, first.target_name) == ("price", ("area",), "price")
    assert (second.variant, second.feature_names) == ("rooms", ("area", "price"))
    assert np.array_equal(first.X[:, 0], table()[:, 0])
    assert np.array_equal(second.y, table()[10:, 1])
    assert (num_rows(houses), num_rows(houses, "rooms")) == (60, 50)
    assert houses.targets == ("price", "rooms")
    assert list(catalogue())[-1] == "houses"


def test_a_dataset_named_like_a_shipped_one_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    describe(folder, "name: wine\npath: houses.csv\ntarget: price\n", name="wine")
    line = mistake(capsys, "dataset=boston")
    assert "conf/dataset/wine.yaml: a dataset 'wine' ships with the package; rename the file and its name" in line


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        ("name: house\npath: houses.csv\ntarget: price", "name must be 'houses' like the file, received 'house'"),
        (f"{DESCRIPTION}targt: price", "the key targt does not exist; did you mean 'target'?"),
        ("name: houses\npath: houses.csv", "target must name the column to predict, received none"),
        ("name: houses\ntarget: price", "path must name the file with the table"),
        ("name: houses\npath: houses.csv\ntarget: 5", "target must be text or a list of texts, received 5"),
        (f"{DESCRIPTION}features: area", "features must be a list of texts, received 'area'"),
        (f"{DESCRIPTION}features: [area, 3]", "features must be a list of texts, received ['area', 3]"),
        (f"{DESCRIPTION}features: [price]", "features must not include the target, received 'price'"),
        (f"{DESCRIPTION}subsample: many", "subsample must be a whole number or null, received 'many'"),
        (f"{DESCRIPTION}variants: [a]", "variants must be named variants, received ['a']"),
        (f"{DESCRIPTION}variants: {{a: 1}}", "variants.a: must be keys with values, received 1"),
        (f"{DESCRIPTION}variants: {{a: {{target: area}}}}", "must be left out where variants have theirs"),
        ("name: houses\npath: houses.csv\nvariants: {a: {rows: [1, 2]}}", "variants.a: target must name the column"),
        (
            "name: houses\npath: houses.csv\nvariants: {a: {target: price, rows: [5, 2]}}",
            "variants.a: rows must be the first row and the one after the last, received [5, 2]",
        ),
        ("name: [houses", "must be YAML, received: while parsing a flow sequence"),
        ("", "must be keys with values, received None"),
    ],
)
def test_a_mistake_in_the_description_names_file_and_key(
    folder: Path, capsys: pytest.CaptureFixture[str], description: str, expected: str
) -> None:
    describe(folder, description)
    line = mistake(capsys, *QUICK)
    assert line.startswith("anchormoe-bench: conf/dataset/houses.yaml: ")
    assert expected in line


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "houses.csv: found No such file or directory; correct the file or the dataset's description"),
        (text(table(), heading="area,rooms,pric"), "expected one of area, rooms, pric, received 'price'; did you mean"),
        (text(table(39)), "must have at least 40 rows, received rows 0 to 39 of 39 in"),
        (text(table()[:, 2:], heading="price"), "must have a feature beside the target 'price', received 1 columns in"),
        (text(table()) + "inf,3,300\n", "column 'area' must have finite values, found infinity in row 61"),
        (text(table()) + "80.0,3\n", "line 62 has 2 values, the first line 3"),
        (text(table()) + "80.0,three,300\n", "column 'rooms' must be numeric, found 'three' in row 61"),
        (text(table()) + "80.0,3,dear\n", "column 'price' must be numeric, found 'dear' in row 61"),
        (text(table()) + "80.0,3,300,4\n", "Expected 3 fields in line 62, saw 4"),
        (text(table(), heading="area,rooms,price,garden"), "line 2 has 3 values, the first line 4"),
        (text(table(), heading="price,rooms,price"), "column names must differ, found 'price' twice"),
        (text(table(), heading=",rooms,price"), "every column must have a name, found none for column 1"),
        ("area,rooms,price\n", "received rows 0 to 0"),
        ("", "an empty file"),
        ("<html><body>log in</body></html>", "an HTML page instead of a data file"),
    ],
)
def test_a_mistake_in_the_file_names_file_and_column(
    folder: Path, capsys: pytest.CaptureFixture[str], content: str | None, expected: str
) -> None:
    (folder / "houses.csv").unlink()
    if content is not None:
        (folder / "houses.csv").write_text(content)
    line = mistake(capsys, *QUICK)
    assert "'houses'" in line
    assert "houses.csv" in line
    assert expected in line


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("dataset=hoses", "did you mean dataset=houses?"),
        ("dataset.subsample=61", "dataset.subsample must be null or from 30 to 60, received 61"),
        ("dataset.variant=cheap", "unknown variant of dataset 'houses': expected one of standard"),
        ("dataset.features=[size]", "unknown feature of dataset 'houses' in houses.csv"),
        ("dataset.rows=61", "expected 61 rows x 3 columns, found 60 rows x 3 columns"),
        ("dataset.columns=[area,price]", "expected 60 rows x 2 columns, found 60 rows x 3 columns"),
    ],
)
def test_a_mistake_on_the_command_line(
    folder: Path, capsys: pytest.CaptureFixture[str], argument: str, expected: str
) -> None:
    assert expected in mistake(capsys, *QUICK, argument)


def test_stated_columns_name_those_of_a_file_without_heading(folder: Path) -> None:
    (folder / "houses.csv").write_text(text(table()).partition("\n")[2])
    assert load(dataclasses.replace(info("houses"), target="x3", variants={})).feature_names == ("x1", "x2")
    describe(folder, f"{DESCRIPTION}columns: [area, rooms, price]\n")
    assert load(info("houses")).feature_names == ("area", "rooms")


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (text(table()).encode(), ["area", "rooms", "price"]),
        (text(table(), "area;rooms;price", ";").replace("\n", "\r\n").encode("utf-8-sig"), ["area", "rooms", "price"]),
        (text(table(), "living area\trooms\tprice", "\t").encode(), ["living area", "rooms", "price"]),
        (text(table(), "Fläche,rooms,price").encode("latin-1"), ["Fläche", "rooms", "price"]),
        (text(table(), "area rooms price", "  ").encode(), ["area", "rooms", "price"]),
        (lzma.compress(text(table()).encode()), ["area", "rooms", "price"]),
        (text(table()).partition("\n")[2].encode(), ["x1", "x2", "x3"]),
        (
            text(
                table(), "@relation r\n@attribute area real\n@attribute rooms real\n@attribute price real\n@data"
            ).encode(),
            ["area", "rooms", "price"],
        ),
    ],
)
def test_names_and_values_of_a_table(data: bytes, names: list[str]) -> None:
    found = read_table(data)
    assert found.names == names
    assert np.array_equal(found.values, table())


def test_a_table_is_read_from_one_sheet_or_member_only() -> None:
    excel = excel_of(table(), ("area", "rooms", "price"))
    for data in (excel, zip_of({"houses.xlsx": excel, "readme.md": b"about"})):
        found = read_table(data)
        assert found.names == ["area", "rooms", "price"]
        assert np.array_equal(found.values, table())
    with pytest.raises(ContainerError, match="must hold one data file, found 2 in the archive"):
        read_table(zip_of({"a.csv": b"a,b\n1,2\n", "b.csv": b"a,b\n1,2\n"}))
