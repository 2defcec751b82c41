"""The container: one zip archive of uncompressed members, the first of which is the manifest.

Nothing is compressed, so no content is larger than the file, and nothing is unpacked to a disk. The manifest states the
size and the SHA-256 of every other member. They find damage; they are no proof of who wrote the file.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import secrets
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anchormoe.estimator.saving.errors import refused, require

MANIFEST = "manifest.json"
ARRAYS = "arrays.safetensors"
MOST_MANIFEST_BYTES = 2**26  # parsed JSON takes a multiple of its text
_MEMBER = re.compile(r"manifest\.json|arrays\.safetensors|(xgboost/\d+\.ubj)|(lightgbm/\d+\.txt)|(skops/\d+\.skops)")
_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip archive can state: equal models give equal files


def packed(manifest: Mapping[str, Any], members: Mapping[str, bytes]) -> bytes:
    """Return the archive as bytes; the manifest gets the sizes and hashes of the members."""
    stated = {name: _stated(content) for name, content in members.items()}
    text = json.dumps({**manifest, "members": stated}, allow_nan=False, indent=1).encode()
    if len(text) > MOST_MANIFEST_BYTES:
        raise ValueError(
            f"the manifest must have at most {MOST_MANIFEST_BYTES} bytes, received {len(text)}: use joblib"
        )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in ((MANIFEST, text), *members.items()):
            archive.writestr(zipfile.ZipInfo(name, _TIME), content)
    return buffer.getvalue()


def unpacked(data: bytes) -> tuple[dict[str, Any], zipfile.ZipFile]:
    """Return the manifest, which nothing but its checksum vouches for, and the archive."""
    if not data.startswith(b"PK"):
        raise refused("a file that AnchorMoERegressor.save wrote", f"{len(data)} bytes of something else")
    archive = honest_archive(data)
    for name in archive.namelist():
        require(_MEMBER.fullmatch(name) is not None, "members that save writes", repr(name))
    require(MANIFEST in archive.namelist(), f"a member {MANIFEST}", archive.namelist()[:5])
    size = archive.getinfo(MANIFEST).file_size
    require(size <= MOST_MANIFEST_BYTES, f"a manifest of at most {MOST_MANIFEST_BYTES} bytes", size)
    manifest = json.loads(archive.read(MANIFEST), parse_constant=_refuse_constant, object_pairs_hook=_unique)
    require(isinstance(manifest, dict), "a manifest that is a JSON object", type(manifest).__name__)
    return manifest, archive


def members_of(archive: zipfile.ZipFile, stated: Any) -> dict[str, bytes]:
    """Return the content of all members but the manifest, as long as it is what the manifest states."""
    names = set(archive.namelist()) - {MANIFEST}
    require(isinstance(stated, dict) and set(stated) == names, f"the members {sorted(names)}", stated)
    members = {name: archive.read(name) for name in sorted(names)}
    for name, content in members.items():
        require(stated[name] == _stated(content), f"{name} with {stated[name]}", _stated(content))
    return members


def honest_archive(data: bytes) -> zipfile.ZipFile:
    """Open a zip archive whose members are different, not compressed, and together not larger than the archive."""
    archive = zipfile.ZipFile(io.BytesIO(data))
    entries = archive.infolist()
    require(len({entry.filename for entry in entries}) == len(entries), "different names of members", "a repeated one")
    for entry in entries:
        plain = entry.compress_type == zipfile.ZIP_STORED and entry.file_size == entry.compress_size
        require(plain, "members without compression", f"{entry.filename!r} with compression")
    total = sum(entry.file_size for entry in entries)
    require(total <= len(data), f"members of at most {len(data)} bytes together", total)
    return archive


def write_atomically(path: Path, data: bytes) -> None:
    """Write to a temporary file beside the path, sync it, and rename it: the path holds the old content or the new."""
    final = Path(os.path.realpath(path))
    temporary = final.with_name(f".{final.name}.{secrets.token_hex(4)}.part")
    try:
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, final)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OSError(error.errno, f"the model could not be saved to {path}: {error.strerror or error}") from None
    _sync_folder(final.parent)


def _sync_folder(folder: Path) -> None:
    """Make the new name survive a power cut, where folders can be synced."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        pass  # some file systems cannot; the file itself is written
    finally:
        os.close(descriptor)


def _stated(content: bytes) -> dict[str, Any]:
    return {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _refuse_constant(name: str) -> Any:
    raise refused("finite numbers in the manifest", name)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    require(len(found) == len(pairs), "different keys in each object of the manifest", "a repeated one")
    return found
