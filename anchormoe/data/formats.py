"""Readers of data files: text, csv, xls, xlsx and arff, each also in zip or xz, become a float64 table.

What counts is the parsed content. The same table in another container is accepted, a different table never is.
Only the original files, known by their hash, and files that ship with the package are parsed in this process in
every format; the readers of spreadsheets and arff meet any other file in a child process with limits.
"""

import hashlib
import io
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd

from anchormoe.data.catalogue import DatasetInfo
from anchormoe.data.confined import confined_sheets
from anchormoe.data.containers import ContainerError, decompress_xz, is_workbook, is_xz, is_zip, unpacked

MAX_COLUMNS = 10_000
_DATA_SUFFIXES = (".csv", ".tsv", ".txt", ".data", ".xls", ".xlsx", ".arff", ".xz")


def content_sha256(table: np.ndarray) -> str:
    """Return the SHA-256 of the shape and the C-order little-endian float64 values."""
    values = np.ascontiguousarray(table, dtype="<f8") + 0.0  # adding 0.0 turns -0.0, which equals 0.0, into 0.0
    return hashlib.sha256(f"{values.shape[0]}x{values.shape[1]}\n".encode() + values.tobytes()).hexdigest()


def require_content(table: np.ndarray, dataset: DatasetInfo) -> None:
    """Raise ContainerError unless the table has the content hash that the dataset's description states."""
    if dataset.content_sha256 is None:
        return
    digest = content_sha256(table)
    if digest == dataset.content_sha256:
        return
    shape = f"{dataset.rows} rows x {len(dataset.columns)} columns with " if dataset.rows and dataset.columns else ""
    raise ContainerError(
        f"expected {shape}content hash {dataset.content_sha256[:12]}, "
        f"found {table.shape[0]} rows x {table.shape[1]} columns with content hash {digest[:12]}"
    )


def verified_table(data: bytes, dataset: DatasetInfo) -> np.ndarray:
    """Return the dataset's canonical table out of any container that holds it, else raise ContainerError."""
    failure = None
    for file in _files(data, dataset.archive_member):
        try:
            table = parse(file, trusted=is_original(file, dataset))
            require_content(table, dataset)
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
        yield from unpacked(data, _DATA_SUFFIXES, first)
    else:
        yield data


def parse(data: bytes, *, trusted: bool = False) -> np.ndarray:
    """Return the table of an original file as numbers, without the rows in which a value is missing or infinite.

    Title rows and notes around the table drop out as such rows; the content hash decides whether the rest is right.
    """
    tables = [_numbers(cells).to_numpy() for cells in _sheets(data, trusted).values()]
    return np.concatenate([table[np.isfinite(table).all(axis=1)] for table in tables])


def read_table(data: bytes, *, trusted: bool = False) -> tuple[list[str], np.ndarray]:
    """Return the column names and values of a file in which every value must be a finite number.

    The names are those of the heading; without a heading they are x1, x2, ... A ContainerError names the column that is
    wrong and what was found in it.
    """
    files = list(_files(data))
    if len(files) != 1:
        raise ContainerError(f"must hold one data file, found {len(files)} in the archive")
    sheets = _sheets(files[0], trusted)
    if len(sheets) != 1:
        raise ContainerError(f"must hold one sheet, found {len(sheets)}: {', '.join(sheets)}")
    (cells,) = sheets.values()
    columns = list(cells.columns)
    occurrences = Counter(columns)
    for number, name in enumerate(columns, 1):
        if not name:
            raise ContainerError(f"every column must have a name, found none for column {number}")
        if occurrences[name] > 1:
            raise ContainerError(f"column names must differ, found {name!r} twice")
    numbers = _numbers(cells)
    for name in columns:
        wrong = cells[name][numbers[name].isna() & cells[name].notna()]
        if len(wrong):
            found = f"{wrong.iloc[0]!r} in row {wrong.index[0] + 1}"
            raise ContainerError(f"column {name!r} must be numeric, found {found}")
    table = np.ascontiguousarray(numbers)
    incomplete = ~np.isfinite(table)
    if incomplete.any():
        where = ", ".join(repr(columns[k]) for k in np.flatnonzero(incomplete.any(axis=0)))
        raise ContainerError(
            f"values must be finite numbers, found missing or infinite ones in {incomplete.any(axis=1).sum()} of "
            f"{len(table)} rows (column {where})"
        )
    return columns, table


def _sheets(data: bytes, trusted: bool) -> dict[str, pd.DataFrame]:
    """Return the cells of every sheet that is not empty, under the names of its columns; a text file is one sheet."""
    if is_xz(data):
        data = decompress_xz(data)
    if not data.strip():
        raise ContainerError("an empty file")
    if re.match(rb"(\xef\xbb\xbf)?\s*<(!doctype html|html|head|\?xml)", data[:200], re.IGNORECASE):
        raise ContainerError("an HTML page instead of a data file")
    if _is_excel(data) or _is_arff(data):
        return foreign_sheets(data) if trusted else confined_sheets(data)
    if b"\x00" in data:
        raise ContainerError("a binary file of unknown type")
    with _short_reasons():
        return {"": _parse_delimited(_decode(data))}


def foreign_sheets(data: bytes) -> dict[str, pd.DataFrame]:
    """Return the sheets of a spreadsheet or an arff file."""
    with _short_reasons():
        return _parse_excel(data) if _is_excel(data) else {"": _parse_arff(_decode(data))}


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


def _decode(data: bytes) -> str:
    """Decode a text file as UTF-8, or as Latin-1 if it is not."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _parse_delimited(text: str) -> pd.DataFrame:
    text = re.sub(r"\A(?:[ \t]*\r?\n)+", "", text)
    first_line = re.split(r"[\r\n]", text, maxsplit=1)[0]
    separator = next((mark for mark in ";\t," if mark in first_line), r"\s+")
    for line in re.finditer(rf"[^\r\n]{{{MAX_COLUMNS},}}", text):  # a shorter line cannot have more columns
        if len(re.findall(separator, line[0])) >= MAX_COLUMNS:
            raise ContainerError(f"refused: a line has more than {MAX_COLUMNS} columns")

    def read(**options: Any) -> pd.DataFrame:
        return pd.read_csv(io.StringIO(text), sep=separator, header=None, skipinitialspace=True, **options)

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

    records, _ = arff.loadarff(io.StringIO(text))
    frame = pd.DataFrame(records)
    for column in frame.select_dtypes(object).columns:
        frame[column] = frame[column].str.decode("utf-8")  # a nominal attribute such as CHAS {0, 1}
    return frame


def _is_heading(cells: pd.Series) -> bool:
    """Tell whether a file's first row has something in it that is not a number."""
    return bool(pd.to_numeric(cells.dropna(), errors="coerce").isna().any())


def _named(heading: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Name the columns after the heading's row, or x1, x2, ...; leave out a column without a name and values."""
    if len(heading) and heading.shape[1] != cells.shape[1]:
        raise ContainerError(f"the heading has {heading.shape[1]} names, the rows have {cells.shape[1]} values")
    names = heading.iloc[0] if len(heading) else pd.Series([f"x{k + 1}" for k in range(cells.shape[1])])
    used = (names.notna() & bool(len(heading))) | cells.notna().any()
    cells = cells.loc[:, used].reset_index(drop=True)
    one_line = names[used].fillna("").astype(str).str.replace(r"\s*[\r\n]+\s*", " ", regex=True)
    cells.columns = pd.Index(one_line.str.strip())
    return cells


def _numbers(cells: pd.DataFrame) -> pd.DataFrame:
    """Convert the cells to float64; what is not a number becomes missing."""
    return cells.apply(pd.to_numeric, errors="coerce").astype(np.float64)
