"""Saving of a fitted regressor to one file without pickle, and loading it: nothing in a file is executed.

archive      the container: a zip archive with a manifest, sizes and hashes
objects      the regressor's objects as JSON, arrays as safetensors
registry     the classes that a file may hold
foreign, xgboost_model, lightgbm_model, trees
             models of other libraries, in their own formats
consistency  whether the parts fit together
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anchormoe import __version__
from anchormoe.estimator.regressor import AnchorMoERegressor
from anchormoe.estimator.saving import archive
from anchormoe.estimator.saving.consistency import require_consistent
from anchormoe.estimator.saving.errors import DAMAGED, SavedFileError, refused, require
from anchormoe.estimator.saving.objects import Reader, Writer

__all__ = ["SavedFileError", "load", "save"]

FORMAT = 1
ATTRIBUTES = ("columns_", "fitted_", "diagnostics_", "n_features_in_")
LIBRARIES = ("numpy", "scipy", "pandas", "scikit-learn", "torch", "xgboost", "lightgbm", "skops", "safetensors")


def save(model: AnchorMoERegressor, path: Path) -> None:
    """Save a fitted regressor, with the parameters it was made with; a file that is there is replaced at the end."""
    writer = Writer()
    names = [*ATTRIBUTES, *(name for name in ("feature_names_in_",) if hasattr(model, name))]
    manifest = {
        "format": FORMAT,
        "written_by": _versions(),
        "parameters": {name: writer.encode(value, name) for name, value in model.get_params(deep=False).items()},
        "attributes": {name: writer.encode(getattr(model, name), name) for name in names},
    }
    archive.write_atomically(path, archive.packed(manifest, writer.members()))


def load(path: Path, trusted: Sequence[str] = ()) -> AnchorMoERegressor:
    """Load a regressor; `trusted` names types of foreign anchors that are not known to be safe."""
    if isinstance(trusted, str):
        raise ValueError(f"trusted must be a list of names of types, received the text {trusted!r}")
    data = path.read_bytes()
    try:
        return _loaded(data, trusted)
    except SavedFileError as error:
        raise SavedFileError(f"{path} cannot be loaded: {error}") from None
    except Exception as error:  # whatever a library says of bytes that are not what it wrote
        found = f"{type(error).__name__}: {error}"
        raise SavedFileError(f"{path} cannot be loaded: {refused('a whole and sound file', found)}") from error


def _loaded(data: bytes, trusted: Sequence[str]) -> AnchorMoERegressor:
    manifest, opened = archive.unpacked(data)
    _require_format(manifest)
    reader = Reader(archive.members_of(opened, manifest.get("members")), trusted)
    parameters, attributes = (_section(reader, manifest, name) for name in ("parameters", "attributes"))
    known = set(AnchorMoERegressor().get_params(deep=False))
    require(set(parameters) <= known, f"parameters among {sorted(known)}", sorted(parameters))
    found = set(attributes) - {"feature_names_in_"}
    require(found == set(ATTRIBUTES), f"the attributes {list(ATTRIBUTES)}", sorted(attributes))
    require_consistent(attributes)
    model = AnchorMoERegressor(**parameters)
    for name, value in attributes.items():
        setattr(model, name, value)
    return model


def _require_format(manifest: dict[str, Any]) -> None:
    found: Any = manifest.get("format")
    require(type(found) is int and found >= 1, "a format that is a whole number from 1", found)
    if found > FORMAT:
        written_by = manifest.get("written_by")
        newer = written_by.get("anchormoe") if isinstance(written_by, dict) else None
        advice = f"it was written by anchormoe {newer}: upgrade anchormoe, which is {__version__} here"
        raise refused(f"a file of format {FORMAT}", f"format {found}", advice)


def _section(reader: Reader, manifest: dict[str, Any], name: str) -> dict[str, Any]:
    section = manifest.get(name)
    if not isinstance(section, dict):
        raise refused(f"a section {name!r} in the manifest", type(section).__name__, DAMAGED)
    return {key: reader.decode(value, key) for key, value in section.items()}


def _versions() -> dict[str, str]:
    found = {"anchormoe": __version__}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
