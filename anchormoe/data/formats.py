"""Readers of data files: text, csv, xls, xlsx, arff and parquet, each also in zip, gzip or xz, become tables.

What counts is the parsed content. The same table in another container is accepted, a different table never is.
Only the original files, known by their hash, and files that ship with the package are parsed in this process in
every format; the readers of spreadsheets, arff and parquet meet any other file in a child process with limits.
"""

import csv
import hashlib
import io
import re
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd

from anchormoe.data.catalogue import DatasetInfo
from anchormoe.data.confined import confined_sheets
from anchormoe.data.containers import (
    ContainerError,
    decompress_gzip,
    decompress_xz,
    is_gzip,
    is_workbook,
    is_xz,
    is_zip,
    unpacked,
)
from anchormoe.data.table import Table, as_table, content_sha256

MAX_COLUMNS = 10_000
DATA_SUFFIXES = (".csv", ".tsv", ".txt", ".data", ".dat", ".xls", ".xlsx", ".arff", ".parquet", ".gz", ".xz")
_SEPARATORS = ";\t,|"
_LINES_TO_TRY = 20  # on which a separator must agree with itself


def require_content(digest: str, shape: tuple[int, ...], dataset: DatasetInfo) -> None:
    """Raise ContainerError unless a table's content hash is the one that the dataset's description states."""
    if dataset.content_sha256 in (None, digest):
        return
    stated = f"{dataset.rows} rows x {len(dataset.columns)} columns with " if dataset.rows and dataset.columns else ""
    raise ContainerError(
        f"expected {stated}content hash {str(dataset.content_sha256)[:12]}, "
        f"found {shape[0]} rows x {shape[1]} columns with content hash {digest[:12]}"
    )


def verified_table(data: bytes, dataset: DatasetInfo) -> np.ndarray:
    """Return the dataset's canonical table out of any container that holds it, else raise ContainerError."""
    failure = None
    for file in _files(data, dataset.archive_member):
        try:
            table = parse(file, trusted=is_original(file, dataset))
            require_content(content_sha256(table), table.shape, dataset)
            return table
        except ContainerError as error:
            failure = failure or error  # an archive may have a readme beside the data
    raise failure or ContainerError("an archive without a data file")


def is_original(data: bytes, dataset: DatasetInfo) -> bool:
    """Tell whether the bytes are the original file itself, not only the same values."""
    return len(data) == dataset.original_bytes and hashlib.sha256(data).hexdigest() == dataset.original_sha256


def _files(data: bytes, first: str = "") -> Iterator[bytes]:
    """Yield the data files of a zip archive, the one named `first` before the others; anything else is one file."""
    if is_zip(data) and not is_workbook(data):
        yield from unpacked(data, DATA_SUFFIXES, first)
    else:
        yield data


def parse(data: bytes, *, trusted: bool = False) -> np.ndarray:
    """Return the table of an original file as numbers, without the rows in which a value is missing or infinite.

    Title rows and notes around the table drop out as such rows; the content hash decides whether the rest is right.
    """
    tables = [_numbers(cells).to_numpy() for cells in _sheets(data, trusted).values()]
    return np.concatenate([table[np.isfinite(table).all(axis=1)] for table in tables])


def read_table(data: bytes, *, trusted: bool = False, categorical: Collection[str] = ()) -> Table:
    """Return the table of a file: its columns by name, their kinds and values.

    The names are those of the heading; without a heading they are x1, x2, ... The columns named in `categorical` hold
    categories even if they look like numbers. A ContainerError says why there is no table in the file.
    """
    files = list(_files(data))
    if len(files) != 1:
        raise ContainerError(f"must hold one data file, found {len(files)} in the archive")
    sheets = _sheets(files[0], trusted)
    if len(sheets) != 1:
        raise ContainerError(f"must hold one sheet, found {len(sheets)}: {', '.join(sheets)}")
    (cells,) = sheets.values()
    require_names(cells.columns)
    with _short_reasons():
        return as_table(cells, categorical)


def require_names(columns: Collection[str]) -> None:
    """Raise ContainerError unless every column has a name of its own."""
    occurrences = Counter(columns)
    for number, name in enumerate(columns, 1):
        if not name:
            raise ContainerError(f"every column must have a name, found none for column {number}")
        if occurrences[name] > 1:
            raise ContainerError(f"column names must differ, found {name!r} twice; is the heading missing?")


def _sheets(data: bytes, trusted: bool) -> dict[str, pd.DataFrame]:
    """Return the cells of every sheet that is not empty, under the names of its columns; a text file is one sheet."""
    if is_xz(data):
        data = decompress_xz(data)
    elif is_gzip(data):
        data = decompress_gzip(data)
    if not data.strip(_BLANK):
        raise ContainerError("an empty file")
    if re.match(rb"(\xef\xbb\xbf)?\s*(\[\s*[\[{]|\{\s*\")", data[:200]):
        raise ContainerError("a JSON file instead of a table of rows and columns")
    if re.match(rb"(\xef\xbb\xbf)?\s*<(!doctype html|html|head|\?xml)", data[:200], re.IGNORECASE):
        raise ContainerError("an HTML page instead of a data file")
    if _is_excel(data) or _is_arff(data) or _is_parquet(data):
        return foreign_sheets(data) if trusted else confined_sheets(data)
    if b"\x00" in data and not data.startswith(_UTF_16):
        raise ContainerError("a binary file of unknown type")
    with _short_reasons():
        return {"": _parse_delimited(_decode(data))}


def foreign_sheets(data: bytes) -> dict[str, pd.DataFrame]:
    """Return the sheets of a spreadsheet, an arff or a parquet file."""
    with _short_reasons():
        if _is_excel(data):
            return _parse_excel(data)
        return {"": _parse_parquet(data) if _is_parquet(data) else _parse_arff(_decode(data))}


@contextmanager
def _short_reasons() -> Iterator[None]:
    """Turn what a parser raises on foreign bytes into a ContainerError."""
    try:
        yield
    except (ContainerError, KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:
        # Each parser has its own exceptions, and calamine's panic is not even an Exception.
        reason = " ".join(f"{type(error).__name__} {error}".split())
        raise ContainerError(f"not readable as a table ({reason})") from error


def _is_excel(data: bytes) -> bool:
    return is_zip(data) or data[:4] == b"\xd0\xcf\x11\xe0"


def _is_arff(data: bytes) -> bool:
    return re.search(rb"^(?:\xef\xbb\xbf)?[ \t]*@relation\b", data, re.IGNORECASE | re.MULTILINE) is not None


def _is_parquet(data: bytes) -> bool:
    return data[:4] == b"PAR1"


_UTF_32 = b"\xff\xfe\0\0"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_BLANK = b" \t\r\n\v\f\xef\xbb\xbf\xff\xfe"  # white space, and the marks of encodings


def _decode(data: bytes) -> str:
    """Decode a text file as UTF-8 or, if it is not, as what Windows writes, or as Latin-1."""
    if data.startswith(_UTF_32):
        raise ContainerError("a text in UTF-32; save it as UTF-8")
    for encoding in ("utf-16",) if data.startswith(_UTF_16) else ("utf-8-sig", "cp1252"):
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    return data.decode("latin-1")


def _separator(text: str) -> str:
    """Return the mark that every one of the first lines has equally often, else one that the first line has."""
    lines = [re.sub(r'"[^"]*"', "", line) for line in re.split(r"[\r\n]+", text[:100_000])[:_LINES_TO_TRY] if line]
    lines = lines[:-1] if len(text) > 100_000 and len(lines) > 1 else lines  # the last one may be cut off
    for mark in _SEPARATORS:
        if len({line.count(mark) for line in lines} | {0}) == 2 and all(mark in line for line in lines):
            return mark
    return next((mark for mark in _SEPARATORS if lines and mark in lines[0]), r"\s+")


def _count(separator: str, line: str) -> int:
    return line.count(separator) if len(separator) == 1 else len(re.findall(separator, line))


def _require_full_lines(text: str, separator: str) -> None:
    """Refuse a line with fewer values than the first: pandas would take the others for missing."""
    if len(separator) > 1:
        return
    lines = csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=True)
    try:
        width = len(next(lines, []))
        for values in lines:
            if values and len(values) < width and any(value.strip() for value in values):
                raise ContainerError(f"line {lines.line_num} has {len(values)} values, the first line {width}")
    except csv.Error as error:
        raise ContainerError(f"not readable as a table ({error})") from None


def _parse_delimited(text: str) -> pd.DataFrame:
    text = re.sub(r"\A(?:[ \t]*\r?\n)+", "", text)
    separator = _separator(text)
    for line in re.split(r"[\r\n]+", text):
        # A shorter line cannot have more columns.
        if len(line) >= MAX_COLUMNS and _count(separator, line) >= MAX_COLUMNS:
            raise ContainerError(f"refused: a line has more than {MAX_COLUMNS} columns")

    def read(**options: Any) -> pd.DataFrame:
        return pd.read_csv(io.StringIO(text), sep=separator, header=None, skipinitialspace=True, **options)

    _require_full_lines(text, separator)
    heading = read(nrows=1, dtype=str)
    if not _is_heading(heading.iloc[0]):
        heading = heading[:0]
    try:
        # pandas' faster float parser is sometimes off by one bit
        cells = read(skiprows=len(heading), float_precision="round_trip", low_memory=False)
    except pd.errors.EmptyDataError:  # nothing but a heading
        cells = heading[:0]
    return _named(heading, cells)


def _parse_excel(data: bytes) -> dict[str, pd.DataFrame]:
    if is_zip(data):
        for _ in unpacked(data):  # an xlsx is a zip archive: the same refusals apply
            pass
    sheets = pd.read_excel(io.BytesIO(data), sheet_name=None, header=None, engine="calamine")
    named = {}
    for name, sheet in sheets.items():
        cells = sheet.dropna(axis="index", how="all").astype(object)
        if not cells.empty:
            num_headings = int(_is_heading(cells.iloc[0]))
            named[name] = _named(cells[:num_headings], cells[num_headings:])
    return named


def _parse_arff(text: str) -> pd.DataFrame:
    from scipy.io import arff  # slow to import, and seldom needed

    if re.search(r"^@data\s*(%.*\s*)*\{", text, re.IGNORECASE | re.MULTILINE):
        raise ContainerError("an arff file with sparse rows; save it with all values")
    text = re.sub(r"^@(inputs?|outputs?)\b.*\n", "", text, flags=re.IGNORECASE | re.MULTILINE)  # as KEEL writes
    records, _ = arff.loadarff(io.StringIO(text))
    frame = pd.DataFrame(records)
    for column in frame.select_dtypes(object).columns:
        frame[column] = frame[column].str.decode("utf-8")  # a nominal attribute such as CHAS {0, 1}
    return frame


def _parse_parquet(data: bytes) -> pd.DataFrame:
    from pyarrow import parquet  # slow to import, and seldom needed

    require_names(parquet.ParquetFile(io.BytesIO(data)).schema_arrow.names)
    # Threads reserve address space, which a child process has little of.
    table = parquet.read_table(io.BytesIO(data), use_threads=False, pre_buffer=False)
    frame = table.to_pandas(ignore_metadata=True, use_threads=False)
    frame.columns = frame.columns.astype(str).str.strip()
    return frame[[name for name in frame if not re.fullmatch(r"__index_level_\d+__", name)]]


def _is_heading(cells: pd.Series) -> bool:
    """Tell whether a file's first row has something in it that is not a number."""
    return bool(pd.to_numeric(cells.dropna(), errors="coerce").isna().any())


def _named(heading: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Name the columns after the heading's row, or x1, x2, ...

    A column without a name and values is left out, and so is a first column without a name that holds the names of the
    rows: R and pandas write them there.
    """
    if len(heading) and heading.shape[1] != cells.shape[1]:
        raise ContainerError(f"the heading has {heading.shape[1]} names, the rows have {cells.shape[1]} values")
    names = heading.iloc[0] if len(heading) else pd.Series([f"x{k + 1}" for k in range(cells.shape[1])])
    used = (names.notna() & bool(len(heading))) | cells.notna().any()
    if len(cells) and pd.isna(names.iloc[0]) and _are_names_of_rows(cells.iloc[:, 0]):
        used.iloc[0] = False
    cells = cells.loc[:, used].reset_index(drop=True)
    one_line = names[used].fillna("").astype(str).str.replace(r"\s*[\r\n]+\s*", " ", regex=True)
    cells.columns = pd.Index(one_line.str.strip())
    return cells


def _are_names_of_rows(values: pd.Series) -> bool:
    """Tell whether a column may name its rows: values that are all different, and none that measures something."""
    numbers = pd.to_numeric(values, errors="coerce")
    has_fractions = bool((numbers % 1 != 0)[numbers.notna()].any())
    return bool(values.notna().all()) and values.is_unique and not has_fractions


def _numbers(cells: pd.DataFrame) -> pd.DataFrame:
    """Convert the cells to float64; what is not a number becomes missing."""
    return cells.apply(pd.to_numeric, errors="coerce").astype(np.float64)
