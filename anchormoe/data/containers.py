"""Archives and compressed files, limited by the bytes that come out of them and not by what they declare."""

import io
import lzma
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator

# The largest size of an unpacked archive and of a download; the largest original is under 4 MB.
MAX_BYTES = 64 * 2**20
_TOO_LARGE = f"refused: the archive unpacks to more than {MAX_BYTES // 2**20} MiB"


class ContainerError(ValueError):
    """Raised when bytes do not hold the wanted table; the message is a short reason without the address."""


def is_xz(data: bytes) -> bool:
    return data[:6] == b"\xfd7zXZ\x00"


def is_zip(data: bytes) -> bool:
    return data[:4] == b"PK\x03\x04"


def decompress_xz(data: bytes) -> bytes:
    """Return the content of an xz file."""
    try:
        decompressor = lzma.LZMADecompressor(memlimit=4 * MAX_BYTES)
        plain = decompressor.decompress(data, max_length=MAX_BYTES)
    except lzma.LZMAError as error:
        raise ContainerError("a damaged xz file") from error
    if not decompressor.eof:
        raise ContainerError("a truncated or oversized xz file")
    return plain


def is_gzip(data: bytes) -> bool:
    return data[:2] == b"\x1f\x8b"


def decompress_gzip(data: bytes) -> bytes:
    """Return the content of a gzip file."""
    try:
        decompressor = zlib.decompressobj(wbits=31)
        plain = decompressor.decompress(data, MAX_BYTES)
    except zlib.error as error:
        raise ContainerError("a damaged gzip file") from error
    if not decompressor.eof:
        raise ContainerError("a truncated or oversized gzip file")
    return plain


def is_workbook(data: bytes) -> bool:
    """Tell whether a zip archive is an xlsx file."""
    with open_zip(data) as archive:
        return "xl/workbook.xml" in archive.namelist()


def unpacked(data: bytes, names: tuple[str, ...] = ("",), first: str = "") -> Iterator[bytes]:
    """Yield the members of a zip archive whose names end with one of `names`, the one called `first` before the others.

    All of them together may hold at most MAX_BYTES.
    """
    left = MAX_BYTES
    with open_zip(data) as archive:
        wanted = [name for name in archive.namelist() if name.lower().endswith(names)]
        for name in sorted(wanted, key=lambda name: name.rsplit("/")[-1].lower() != first.lower()):
            try:
                with archive.open(name) as file:
                    content = file.read(left + 1)
            except Exception as error:  # bad checksum, bad offset, encrypted, ...: zipfile has many
                raise ContainerError(f"damaged or encrypted zip member {name!r}") from error
            left -= len(content)
            if left < 0:
                raise ContainerError(_TOO_LARGE)
            yield content


def open_zip(data: bytes) -> zipfile.ZipFile:
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
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            # zipfile unpacks the other methods without a limit, whatever size the member declares
            raise ContainerError(f"refused: zip member {path!r} must be stored or deflated")
    if sum(member.file_size for member in archive.infolist()) > MAX_BYTES:
        raise ContainerError(_TOO_LARGE)
    return archive
