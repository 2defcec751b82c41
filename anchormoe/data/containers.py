"""Bytes of a data file -> float64 table, whatever the container: text, csv, xls, xlsx, arff, each also in zip or xz.

What counts is the parsed content. The same table in another container is accepted, a different table never is.
"""

import hashlib
import io
import lzma
import re
import stat
import zipfile
from collections.abc import Iterator

import numpy as np
import pandas as pd
from scipy.io import arff

from anchormoe.data.catalogue import DatasetInfo

# The largest original is under 4 MB; anything near this bound is not one of these datasets.
MAX_BYTES = 64 * 2**20
_DATA_SUFFIXES = (".csv", ".txt", ".data", ".xls", ".xlsx", ".arff", ".xz")


class ContainerError(ValueError):
    """The bytes do not hold the wanted table; the message is a short reason without the address."""


def content_sha256(table: np.ndarray) -> str:
    """SHA-256 over the shape and the C-order little-endian float64 values."""
    values = np.ascontiguousarray(table, dtype="<f8") + 0.0  # adding 0.0 turns -0.0, which equals 0.0, into 0.0
    return hashlib.sha256(f"{values.shape[0]}x{values.shape[1]}\n".encode() + values.tobytes()).hexdigest()


def verified_table(data: bytes, dataset: DatasetInfo) -> np.ndarray:
    """The dataset's canonical table out of any container that holds it; ContainerError if this one does not."""
    found = "no table"
    for table in _candidate_tables(data, dataset.archive_member):
        digest = content_sha256(table)
        if digest == dataset.content_sha256:
            return table
        found = f"{table.shape[0]} rows x {table.shape[1]} columns with content hash {digest[:12]}"
    raise ContainerError(
        f"expected {dataset.rows} rows x {len(dataset.columns)} columns with content hash "
        f"{dataset.content_sha256[:12]}, found {found}"
    )


def is_original(data: bytes, dataset: DatasetInfo) -> bool:
    """Whether the bytes are the original file itself, not only the same values."""
    return len(data) == dataset.original_bytes and hashlib.sha256(data).hexdigest() == dataset.original_sha256


def _candidate_tables(data: bytes, member: str) -> Iterator[np.ndarray]:
    if not _is_plain_zip(data):
        yield parse(data)
        return
    with _open_zip(data) as archive:
        names = [name for name in archive.namelist() if name.lower().endswith(_DATA_SUFFIXES)]
        names.sort(key=lambda name: name.rsplit("/")[-1].lower() != member.lower())  # stable: the known name first
        for name in names:
            try:
                yield parse(archive.read(name))
            except ContainerError:
                continue  # a readme beside the data
            except Exception as error:  # bad checksum, bad offset, encrypted, ...: zipfile has many
                raise ContainerError(f"damaged or encrypted zip member {name!r}") from error


def parse(data: bytes) -> np.ndarray:
    """One table out of a single file: numeric columns, rows with a missing or infinite value dropped, order kept."""
    if data[:6] == b"\xfd7zXZ\x00":
        data = _decompress(data)
    if not data.strip():
        raise ContainerError("an empty file")
    if re.match(rb"(\xef\xbb\xbf)?\s*<(!doctype html|html|head|\?xml)", data[:200], re.IGNORECASE):
        raise ContainerError("an HTML page instead of a data file")
    try:
        if data[:4] == b"PK\x03\x04" or data[:4] == b"\xd0\xcf\x11\xe0":
            return _parse_excel(data)
        if b"\x00" in data:
            raise ContainerError("a binary file of unknown type")
        text = data.decode("utf-8-sig", errors="replace")
        return _parse_arff(text) if re.search(r"^\s*@relation\b", text, re.I | re.M) else _parse_delimited(text)
    except (ContainerError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        # Foreign bytes: each parser has its own exceptions, and calamine's panic is not even an Exception.
        raise ContainerError(f"not readable as a table ({type(error).__name__})") from error


def _parse_delimited(text: str) -> np.ndarray:
    first_line = next(line for line in text.splitlines() if line.strip())
    separator = next((mark for mark in ";," if mark in first_line), r"\s+")
    cells = re.split(separator, first_line.strip())
    has_header = any(_number(cell.strip().strip("\"'")) is None for cell in cells)
    frame = pd.read_csv(
        io.StringIO(text),
        sep=separator,
        header=0 if has_header else None,
        skipinitialspace=True,
        float_precision="round_trip",  # pandas' faster default is off by one bit now and then
        low_memory=False,
    )
    return _numeric(frame)


def _parse_excel(data: bytes) -> np.ndarray:
    if data[:2] == b"PK":
        _open_zip(data).close()  # an xlsx is a zip archive: the same refusals apply
    sheets = pd.read_excel(io.BytesIO(data), sheet_name=None, header=None, engine="calamine")
    # Without a header every heading is text, becomes a missing value and drops out as a row.
    tables = [_numeric(sheet.dropna(axis="columns", how="all")) for sheet in sheets.values() if not sheet.empty]
    return np.concatenate([table for table in tables if table.size])


def _parse_arff(text: str) -> np.ndarray:
    records, _ = arff.loadarff(io.StringIO(text))
    frame = pd.DataFrame(records)
    for column in frame.select_dtypes(object).columns:
        frame[column] = frame[column].str.decode("utf-8")  # a nominal attribute such as CHAS {0, 1}
    return _numeric(frame)


def _numeric(frame: pd.DataFrame) -> np.ndarray:
    numbers = frame.apply(pd.to_numeric, errors="coerce").astype(np.float64)
    table = numbers.to_numpy()
    return np.ascontiguousarray(table[np.isfinite(table).all(axis=1)])


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _decompress(data: bytes) -> bytes:
    try:
        decompressor = lzma.LZMADecompressor()
        plain = decompressor.decompress(data, max_length=MAX_BYTES)
    except lzma.LZMAError as error:
        raise ContainerError("a damaged xz file") from error
    if not decompressor.eof:
        raise ContainerError("a truncated or oversized xz file")
    return plain


def _is_plain_zip(data: bytes) -> bool:
    if data[:4] != b"PK\x03\x04":
        return False
    with _open_zip(data) as archive:
        return "xl/workbook.xml" not in archive.namelist()


def _open_zip(data: bytes) -> zipfile.ZipFile:
    """Open an archive, refusing one that is damaged, oversized, or would write outside its folder if extracted."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise ContainerError("a damaged or truncated zip archive") from error
    for member in archive.infolist():
        path = member.orig_filename.replace("\\", "/")
        is_link = stat.S_ISLNK(member.external_attr >> 16)
        if path.startswith("/") or re.match(r"[A-Za-z]:", path) or ".." in path.split("/") or is_link:
            raise ContainerError(f"refused: zip member {path!r} would land outside the folder")
    if sum(member.file_size for member in archive.infolist()) > MAX_BYTES:
        raise ContainerError(f"refused: the archive unpacks to more than {MAX_BYTES // 2**20} MiB")
    return archive
