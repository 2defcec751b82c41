"""Bytes of data files in several containers, made without the libraries that write them."""

import io
import zipfile
from collections.abc import Sequence

import numpy as np


def text_of(table: np.ndarray, separator: str) -> bytes:
    return ("\n".join(separator.join(map(repr, row)) for row in table.tolist()) + "\n \n").encode()


def arff_of(table: np.ndarray, columns: Sequence[str], nominal: tuple[str, ...]) -> bytes:
    lines = ["% a comment", "@RELATION data"]
    values = [[repr(value).removesuffix(".0") for value in row] for row in table.tolist()]
    for k, column in enumerate(columns):
        levels = ",".join(sorted({row[k] for row in values}))
        lines.append(f"@attribute {column} " + (f"{{{levels}}}" if column in nominal else "REAL"))
    return "\n".join([*lines, "@DATA", *map(",".join, values)]).encode()


def excel_of(table: np.ndarray, columns: Sequence[str]) -> bytes:
    """Make a minimal xlsx file, so that the tests need no library that writes one."""
    rows = "".join(f"<row>{''.join(f'<c><v>{value!r}</v></c>' for value in row)}</row>" for row in table.tolist())
    heading = "".join(f'<c t="inlineStr"><is><t>{column}</t></is></c>' for column in columns)
    spreadsheet = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    return zip_of(
        {
            "[Content_Types].xml": f'<Types xmlns="{package}/content-types"/>'.encode(),
            "_rels/.rels": (
                f'<Relationships xmlns="{package}/relationships"><Relationship Id="rId1" '
                f'Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>'
            ).encode(),
            "xl/workbook.xml": (
                f'<workbook xmlns="{spreadsheet}" xmlns:r="{office}"><sheets>'
                '<sheet name="data" sheetId="1" r:id="rId1"/></sheets></workbook>'
            ).encode(),
            "xl/_rels/workbook.xml.rels": (
                f'<Relationships xmlns="{package}/relationships"><Relationship Id="rId1" '
                f'Type="{office}/worksheet" Target="worksheets/sheet1.xml"/></Relationships>'
            ).encode(),
            "xl/worksheets/sheet1.xml": (
                f'<worksheet xmlns="{spreadsheet}"><sheetData><row>{heading}</row>{rows}</sheetData></worksheet>'
            ).encode(),
        }
    )


def zip_of(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()
