"""Tables of OpenML by their number, fetched once by scikit-learn and kept in the cache with their hash."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from anchormoe.data.download import cache_errors, cache_folder
from anchormoe.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

PREFIX = "openml:"


def is_address(path: str) -> bool:
    """Tell whether a path means a table of OpenML."""
    return path.lower().startswith(PREFIX)


def cached(address: str, cache_dir: Path | None = None) -> Path:
    """Return the Parquet file of a table such as openml:531; it is fetched only if the cache has no whole copy."""
    number = address[len(PREFIX) :]
    if not re.fullmatch(r"[1-9]\d*", number):
        raise UserError(f"a table of OpenML must be named as openml:<id>, such as openml:531, received {address!r}")
    folder = cache_folder(cache_dir)
    for path in sorted(folder.glob(f"openml-{number}-*.parquet")):
        if path.stem.endswith(f"-{_digest(path.read_bytes())}"):
            return path
    with cache_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        return _store(_fetch(number), folder, number)


def _fetch(number: str) -> pd.DataFrame:
    from sklearn.datasets import fetch_openml  # slow to import, and seldom needed

    try:
        with tempfile.TemporaryDirectory() as scratch:  # its own cache keeps no hashes
            return fetch_openml(data_id=int(number), as_frame=True, data_home=scratch, parser="auto").frame
    except Exception as error:  # network, HTTP, parsing: each library has its own exceptions
        reason = " ".join(f"{type(error).__name__} {error}".split())[:200]
        raise UserError(
            f"cannot get openml:{number}: {reason}; check the number and the network, or download the file and name it"
        ) from None


def _store(frame: pd.DataFrame, folder: Path, number: str) -> Path:
    descriptor, name = tempfile.mkstemp(prefix=f".openml-{number}-", suffix=".part", dir=folder)
    os.close(descriptor)
    temporary = Path(name)
    try:
        frame.to_parquet(temporary, index=False)
        path = folder / f"openml-{number}-{_digest(temporary.read_bytes())}.parquet"
        temporary.chmod(0o644)
        return temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
