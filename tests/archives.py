"""Zip archives for tests."""

from __future__ import annotations

import io
import zipfile
from typing import Any


def zipped(members: dict[str, Any], compression: int = zipfile.ZIP_STORED) -> bytes:
    """Return an archive with these members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()
