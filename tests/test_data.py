"""Embedded tables, variants, containers and hazards: every documented fact about the nine datasets."""

import dataclasses
import io
import lzma
import re
import runpy
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from data_files import arff_of, excel_of, text_of, zip_of
from omegaconf import OmegaConf

from anchormoe.commands.data import main
from anchormoe.data.catalogue import DatasetInfo, catalogue, info, is_shipped
from anchormoe.data.dataset import file_table, load, table_path
from anchormoe.data.formats import ContainerError, content_sha256, is_original, parse, verified_table
from anchormoe.data.hazards import find_hazards
from anchormoe.errors import UserError
from anchormoe.paths import shipped

DATASETS = {name: dataset for name, dataset in catalogue().items() if dataset.urls}  # those of the paper
ORIGINALS = Path(__file__).resolve().parents[2] / "shared" / "uci"
needs_originals = pytest.mark.skipif(not ORIGINALS.is_dir(), reason="needs the original files in ../shared/uci")

# name, variant: rows, features, target range
DOCUMENTED = {
    ("boston", "standard"): (506, 13, 5.0, 50.0),
    ("concrete", "standard"): (1030, 8, 2.332, 82.599),
    ("energy", "heating"): (768, 8, 6.01, 43.1),
    ("energy", "cooling"): (768, 8, 10.9, 48.03),
    ("kin8nm", "standard"): (8192, 8, 0.040, 1.459),
    ("naval", "compressor"): (11934, 16, 0.95, 1.0),
    ("naval", "turbine"): (11934, 16, 0.975, 1.0),
    ("naval", "turbine_with_compressor"): (11934, 17, 0.975, 1.0),
    **{("power", f"sheet{k}"): (9568, 4, 420.26, 495.76) for k in range(1, 6)},
    ("protein", "standard"): (45730, 9, 0.0, 20.999),
    ("protein", "all_rows"): (45730, 9, 0.0, 20.999),
    ("wine", "standard"): (1599, 11, 3.0, 8.0),
    ("yacht", "standard"): (308, 6, 0.01, 62.42),
}


@pytest.fixture(scope="module")
def tables() -> dict[str, np.ndarray]:
    return {name: file_table(dataset).values for name, dataset in DATASETS.items()}


def test_hydra_reads_the_same_descriptions():
    schema = OmegaConf.structured(DatasetInfo)
    for name, dataset in DATASETS.items():
        merged = OmegaConf.merge(schema, OmegaConf.load(shipped("conf") / "dataset" / f"{name}.yaml"))
        assert OmegaConf.to_object(merged) == dataset


def test_a_changed_description_is_not_a_shipped_one():
    yacht = info("yacht")
    assert is_shipped(dataclasses.replace(yacht, variant="standard", subsample=100))
    assert not is_shipped(dataclasses.replace(yacht, target="froude_number", variants={}))
    assert not is_shipped(dataclasses.replace(yacht, name="boat"))


def test_reading_the_descriptions_needs_no_heavy_library():
    code = (
        "import sys; from anchormoe.data.catalogue import catalogue; catalogue(); "
        "sys.exit(any(name in sys.modules for name in ('pandas', 'torch', 'hydra')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_documented_tasks_are_exactly_the_registered_ones():
    assert list(DOCUMENTED) == [(name, variant) for name, dataset in DATASETS.items() for variant in dataset.variants]


@pytest.mark.parametrize(("name", "variant"), DOCUMENTED)
def test_variant_has_documented_shape_and_target(name, variant):
    rows, features, lowest, highest = DOCUMENTED[name, variant]
    dataset = load(info(name), variant=variant)
    assert dataset.X.shape == (rows, features) == (rows, len(dataset.feature_names))
    assert dataset.y.shape == (rows,)
    assert dataset.X.dtype == dataset.y.dtype == np.float64
    assert dataset.X.flags.c_contiguous
    assert np.isfinite(dataset.X).all()
    assert dataset.target_name not in dataset.feature_names
    assert dataset.sha256 == DATASETS[name].content_sha256
    assert dataset.y.min() == pytest.approx(lowest, abs=5e-4)
    assert dataset.y.max() == pytest.approx(highest, abs=5e-4)


def test_first_variant_is_the_default():
    defaults = {name: load(info(name)).variant for name in ("energy", "naval", "power", "wine")}
    assert defaults == {"energy": "heating", "naval": "compressor", "power": "sheet1", "wine": "standard"}


def test_first_rows_are_those_of_the_original_files():
    assert load(info("boston")).X[0, :4].tolist() == [0.00632, 18.0, 2.31, 0.0]
    assert load(info("power")).X[0].tolist() == [14.96, 41.76, 1024.07, 73.17]
    protein = load(info("protein"))
    assert protein.y[0] == 17.284
    assert protein.X[0, 0] == 13558.3
    assert load(info("yacht")).X[-1].tolist() == [-2.3, 0.6, 4.34, 4.23, 2.73, 0.45]


def test_naval_targets_are_the_grid_of_the_simulation(tables):
    i = np.arange(11934)
    assert np.array_equal(tables["naval"][:, 16], (950 + i // 234) / 1000)
    assert np.array_equal(tables["naval"][:, 17], (975 + (i // 9) % 26) / 1000)
    with_compressor = load(info("naval"), variant="turbine_with_compressor")
    assert np.array_equal(with_compressor.X[:, 16], load(info("naval")).y)


def test_power_sheets_hold_the_same_records_in_other_orders():
    sheets = [load(info("power"), variant=f"sheet{k}") for k in range(1, 6)]
    records = [np.column_stack([sheet.X, sheet.y]) for sheet in sheets]
    in_order = [rows[np.lexsort(rows.T)] for rows in records]
    for k in range(1, 5):
        assert np.array_equal(in_order[0], in_order[k])
        assert not np.array_equal(records[0], records[k])


def test_embedded_files_are_small_and_described():
    assert sum(table_path(dataset).stat().st_size for dataset in DATASETS.values()) < 5_000_000
    readme = (shipped("data") / "README.md").read_text()
    for dataset in DATASETS.values():
        for fact in (dataset.content_sha256, dataset.citation, dataset.homepage, dataset.licence):
            assert fact in readme


def test_build_script_writes_what_is_shipped(tables, monkeypatch):
    script = Path(__file__).resolve().parents[1] / "scripts" / "build_data.py"
    monkeypatch.setattr("sys.path", [*sys.path])  # the script puts the checkout in front
    build = runpy.run_path(str(script))
    sizes = {name: table_path(dataset).stat().st_size for name, dataset in catalogue().items()}
    assert build["readme"](sizes) == (shipped("data") / "README.md").read_text()
    for name in ("yacht", "insurance"):
        dataset = info(name)
        assert build["compress"](dataset, file_table(dataset)) == table_path(dataset).read_bytes()
    without_compressor = np.delete(tables["naval"], 16, axis=1)
    assert np.array_equal(build["add_compressor_decay"](without_compressor), tables["naval"])


@needs_originals
@pytest.mark.parametrize("name", DATASETS)
def test_embedded_table_equals_the_original(name, tables):
    data = (ORIGINALS / DATASETS[name].file_name).read_bytes()
    assert is_original(data, DATASETS[name])
    assert np.array_equal(verified_table(data, DATASETS[name]), tables[name])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"name": "bostn"},
            r"unknown dataset: expected one of airfoil, .*yacht, received 'bostn'; did you mean 'boston'",
        ),
        ({"name": "zzz"}, r"received 'zzz'$"),
        (
            {"name": "energy", "variant": "coling"},
            r"one of heating, cooling, received 'coling'; did you mean 'cooling'",
        ),
        ({"name": "wine", "source": "web"}, r"unknown data source: expected one of embedded, download, received 'web'"),
    ],
)
def test_unknown_names_are_one_line_that_says_what_exists(arguments, message):
    with pytest.raises(UserError, match=message) as error:
        load(info(arguments["name"]), **{key: value for key, value in arguments.items() if key != "name"})
    assert "\n" not in str(error.value)


def test_damaged_or_missing_embedded_copy_is_reported(tmp_path, monkeypatch):
    good = {name: table_path(DATASETS[name]).read_bytes() for name in ("boston", "yacht")}
    monkeypatch.setattr("anchormoe.data.dataset.shipped", lambda name: tmp_path)
    with pytest.raises(UserError, match=r"yacht.csv.xz, found No such file.*data.source=download"):
        load(info("yacht"))
    (tmp_path / "yacht.csv.xz").write_bytes(good["boston"])
    with pytest.raises(UserError, match=r"expected 308 rows x 7 columns .* found 506 rows x 14 columns"):
        load(info("yacht"))
    (tmp_path / "yacht.csv.xz").write_bytes(good["yacht"][:500])
    with pytest.raises(UserError, match="truncated"):
        load(info("yacht"))


@pytest.mark.parametrize("form", ["text", "csv", "semicolon", "arff", "xlsx", "xz", "zip", "zip of xlsx", "zip of xz"])
def test_the_same_table_in_another_container_is_accepted(form, tables):
    boston, table = DATASETS["boston"], tables["boston"]
    header = ",".join(f'"{column}"' for column in boston.columns).encode() + b"\n"
    plain = text_of(table, " ")
    excel = excel_of(table, boston.columns)
    containers = {
        "text": plain,
        "csv": b"\xef\xbb\xbf" + header + text_of(table, ", "),
        "semicolon": header.replace(b",", b";") + text_of(table, ";").replace(b"\n", b"\r\n"),
        "arff": arff_of(table, boston.columns, nominal=("CHAS", "RAD")),
        "xlsx": excel,
        "xz": lzma.compress(plain),
        "zip": zip_of({"Readme.txt": b"about the data", "deep/folder/HOUSING.DATA": plain}),
        "zip of xlsx": zip_of({"any.xlsx": excel}),
        "zip of xz": zip_of({"a/housing.csv.xz": lzma.compress(plain)}),
    }
    assert np.array_equal(verified_table(containers[form], boston), table)


def test_one_changed_value_or_another_row_order_is_refused(tables):
    table = tables["yacht"]
    changed = table.copy()
    changed[17, 3] = np.nextafter(changed[17, 3], np.inf)
    for other in (changed, table[::-1], table[:-1], table[:, :-1]):
        with pytest.raises(ContainerError, match=r"expected 308 rows x 7 columns with content hash .*, found \d+ rows"):
            verified_table(text_of(other, ","), DATASETS["yacht"])


@pytest.mark.parametrize(
    "member",
    ["../evil", "a/../../evil", "/etc/evil", "C:evil", "..\\evil", "\\evil", "link"],
    ids=lambda name: repr(name),
)
def test_an_archive_that_would_write_outside_its_folder_is_refused(member, tables):
    evil = zipfile.ZipInfo(member)
    if member == "link":
        evil.external_attr = 0o120777 << 16
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("yacht_hydrodynamics.data", text_of(tables["yacht"], " "))
        archive.writestr(evil, b"target")
    with pytest.raises(ContainerError, match=r"refused: zip member .* would land outside the folder"):
        verified_table(buffer.getvalue(), DATASETS["yacht"])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"<!DOCTYPE html><html>not here</html>", "HTML page"),
        (b"\x00\x01\x02 binary", "binary file"),
        (b"PK\x03\x04 cut off", "zip archive"),
        (b"\xd0\xcf\x11\xe0 cut off", "not readable"),
        (b"\xfd7zXZ\x00 cut off", "damaged xz"),
        (b"@relation x\n@attribute a string\n@data\nb\n", "not readable"),
        (b"1 2 3\n4 5\n6 7 8 9\n", "not readable"),
    ],
)
def test_foreign_bytes_give_a_short_reason(data, reason):
    with pytest.raises(ContainerError, match=reason):
        verified_table(data, DATASETS["yacht"])


def test_rows_with_missing_or_infinite_values_are_dropped_in_order():
    assert parse(b"a,b\n1,2\n3,?\ninf,4\n5,6\n,7\n8,9\n").tolist() == [[1, 2], [5, 6], [8, 9]]


def test_content_hash_depends_on_shape_and_values_only():
    table = np.arange(6.0).reshape(2, 3)
    assert content_sha256(table) == content_sha256(np.asfortranarray(table)) == content_sha256(table.astype(">f8"))
    assert content_sha256(table) != content_sha256(table.reshape(3, 2))
    assert content_sha256(np.array([[0.0]])) == content_sha256(np.array([[-0.0]]))


def test_hazards_are_computed_from_the_data():
    found = {name: find_hazards(dataset, load(dataset)) for name, dataset in DATASETS.items()}
    repeats = {name: hazards.repeated_rows for name, hazards in found.items() if hazards.repeated_rows}
    assert repeats == {"concrete": 25, "power": 41, "protein": 1711, "wine": 240}
    steps = {name: hazards.target_step for name, hazards in found.items() if hazards.repeated_targets > 0.75}
    assert steps == {"boston": 0.1, "naval": 0.001, "power": 0.01, "protein": 0.001, "wine": 1.0}
    assert [name for name, hazards in found.items() if len(hazards.targets) > 1] == ["energy", "naval"]
    leaky = find_hazards(info("naval"), load(info("naval"), variant="turbine_with_compressor"))
    assert leaky.target_features == ("compressor_decay",)
    assert "other target as input: compressor_decay" in leaky.describe()
    assert found["yacht"].describe() == []


def test_data_command_lists_everything_in_100_plain_columns(capsys, monkeypatch, tmp_path, tables):
    monkeypatch.setenv("ANCHORMOE_DATA", str(tmp_path))
    monkeypatch.delenv("COLUMNS", raising=False)
    (tmp_path / "yacht.data").write_bytes(text_of(tables["yacht"], " "))
    (tmp_path / "wine.csv").write_bytes(b"1;2\n")
    assert main([]) == 0
    output = capsys.readouterr().out
    assert "\x1b" not in output
    for line in output.splitlines()[:-1]:  # the last one names the cache folder, however long its path is
        assert len(line) <= 100
    for name, dataset in DATASETS.items():
        assert re.search(rf"^ ?{name} ", output, re.MULTILINE)
        assert all(variant in output for variant in dataset.variants)
    assert output.count("embedded: yes") == len(catalogue())
    for fact in (
        "yacht.data: yes",
        "wine.csv: NO",
        "1711 repeated rows",
        "target step 0.001",
        "78% share a target",
        "2 targets in file",
        "CC BY 4.0",
        str(tmp_path),
    ):
        assert fact in output


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["fech"],
            "unknown data command: expected one of list, add, check, fetch, received 'fech'; did you mean 'fetch'",
        ),
        (["list", "boston"], "data list takes no arguments, received 'boston'"),
        (["fetch", "yatch"], "did you mean 'yacht'"),
        (["fetch", "data.miror=x"], "did you mean 'data.mirror'"),
        (["fetch", "yacht", "data.mirror=/does/not/exist"], "data.mirror must be an existing folder"),
    ],
)
def test_data_command_refuses_what_it_does_not_know(args, message):
    with pytest.raises(UserError, match=re.escape(message)):
        main(args)


def test_registry_addresses_are_https_and_hashes_complete():
    for dataset in DATASETS.values():
        assert dataset.urls
        assert all(url.startswith("https://") for url in dataset.urls)
        assert re.fullmatch("[0-9a-f]{64}", dataset.content_sha256)
        assert re.fullmatch("[0-9a-f]{64}", dataset.original_sha256)
    assert info("power").targets == ("PE",)
    assert pd.Index([dataset.content_sha256 for dataset in DATASETS.values()]).is_unique
