"""Paths of the files that ship with the package, in a checkout and in an installed wheel."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def shipped(name: str) -> Path:
    """Return the path of a shipped file or folder (`conf`, `data`, `benchmarks/published.json`, ...).

    A wheel carries them inside the package, under `_shipped`; a checkout has them at its top level.
    """
    installed = _PACKAGE / "_shipped" / name
    return installed if installed.exists() else _PACKAGE.parent / name
