"""The error of a file that cannot be loaded."""

from __future__ import annotations

DAMAGED = "get a new copy of the file, or fit and save the model again"


class SavedFileError(ValueError):
    """A saved regressor cannot be loaded: one line says what was expected, what was found and what to do."""


def refused(expected: str, found: object, advice: str = DAMAGED) -> SavedFileError:
    """Return the error for content of a file that is not what it should be."""
    return SavedFileError(f"expected {expected}, found {_shortened(found)}; {advice}")


def require(condition: bool, expected: str, found: object) -> None:
    """Raise the error unless the condition holds."""
    if not condition:
        raise refused(expected, found)


def _shortened(found: object) -> str:
    """Return text of one line; what a hostile file holds may be long."""
    text = " ".join(str(found)[:2000].split())
    return text if len(text) <= 200 else f"{text[:200]} ..."
