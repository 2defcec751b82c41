"""Files made to harm: they are refused in one line, within a few seconds and without taking the process with them."""

import io
import zipfile

import numpy as np
import pytest
from data_files import excel_of, text_of, zip_of

from anchormoe.data import formats
from anchormoe.data.catalogue import info
from anchormoe.data.containers import MAX_BYTES, ContainerError
from anchormoe.data.formats import MAX_COLUMNS, read_table, verified_table


def test_an_archive_that_declares_less_than_it_holds_is_cut_off() -> None:
    """A bz2 member can unpack to gigabytes whatever its header says, and zipfile does not stop."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("yacht_hydrodynamics.data", b"0" * 2_000_000)
    for data in (buffer.getvalue(), buffer.getvalue().replace((2_000_000).to_bytes(4, "little"), b"\x64\0\0\0")):
        with pytest.raises(ContainerError, match="must be stored or deflated"):
            verified_table(data, info("yacht"))


def test_many_members_count_together() -> None:
    members = {f"{k}.txt": b"0 " * (MAX_BYTES // 4) for k in range(3)}
    with pytest.raises(ContainerError, match="unpacks to more than 64 MiB"):
        verified_table(zip_of(members), info("yacht"))


def test_a_spreadsheet_with_two_distant_cells_does_not_end_the_process() -> None:
    sheet = excel_of(np.array([[1.0, 2.0]]), ["a", "b"])
    with zipfile.ZipFile(io.BytesIO(sheet)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = "xl/worksheets/sheet1.xml"
    head, _, _ = members[name].partition(b"<sheetData>")
    cells = b'<row r="1"><c r="A1"><v>1</v></c></row><row r="1048576"><c r="XFD1048576"><v>2</v></c></row>'
    members[name] = head + b"<sheetData>" + cells + b"</sheetData></worksheet>"
    with pytest.raises(ContainerError, match="not readable as a table"):
        read_table(zip_of(members))


def test_a_search_for_arff_passes_over_blank_lines_once() -> None:
    assert read_table(b"\n" * 300_000 + b"a b\n1 2\n").names == ["a", "b"]


@pytest.mark.parametrize("separator", [b",", b" "])
def test_a_line_of_too_many_columns_is_refused(separator: bytes) -> None:
    wide = separator.join([b"1"] * 1_000_000)
    for data in (wide, b"a" + separator + b"b\n" + wide):
        with pytest.raises(ContainerError, match=f"more than {MAX_COLUMNS} columns"):
            read_table(data)


def test_a_table_of_many_columns_is_read() -> None:
    table = read_table(b",".join([b"1"] * 2000))
    assert (len(table.names), table.values.shape) == (2000, (1, 2000))


def test_an_original_is_recognised_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a file that is known by its hash reaches the reader of spreadsheets in this process."""
    data = excel_of(formats.parse(text_of(np.ones((3, 2)), " ")), ["a", "b"])
    met = []
    monkeypatch.setattr(formats, "foreign_sheets", lambda data: met.append("here") or {})
    monkeypatch.setattr(formats, "confined_sheets", lambda data: met.append("confined") or {})
    for original in (True, False):
        monkeypatch.setattr(formats, "is_original", lambda data, dataset, known=original: known)
        with pytest.raises(ValueError, match="concatenate"):
            verified_table(data, info("energy"))
    assert met == ["here", "confined"]


def test_a_reader_that_dies_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anchormoe.data.confined.sys.executable", "/bin/false")
    with pytest.raises(ContainerError, match="the reader ended with code 1"):
        read_table(excel_of(np.ones((2, 2)), ["a", "b"]))
