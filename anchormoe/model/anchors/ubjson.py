"""A reader of UBJSON, the binary format of XGBoost's models, for the part of it that XGBoost writes."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

NUMBERS = {"i": ">i1", "U": ">u1", "I": ">i2", "l": ">i4", "L": ">i8", "d": ">f4", "D": ">f8"}
_DTYPES = {ord(marker): np.dtype(code) for marker, code in NUMBERS.items()}
_CONSTANTS = {ord("T"): True, ord("F"): False, ord("Z"): None}
_OBJECT, _OBJECT_END, _ARRAY, _TYPE, _COUNT, _TEXT, _LONG = map(ord, "{}[$#SL")
_LENGTH = struct.Struct(">q")
_DEEPEST = 16


class UbjsonError(ValueError):
    """The content is not what XGBoost writes."""


def read(content: bytes) -> Any:
    """Return what the content holds; arrays of one type of number are NumPy arrays."""
    try:
        value, end = _value(content, 0, 0)
    except (IndexError, struct.error):
        raise UbjsonError("expected a value to its end, found an early end") from None
    _require(end == len(content), f"{end} bytes", len(content))
    return value


def _require(condition: bool, expected: str, found: object) -> None:
    if not condition:
        raise UbjsonError(f"expected {expected}, found {found}")


def _value(content: bytes, position: int, depth: int) -> tuple[Any, int]:
    """Return the value whose marker is at `position`, and the position after it."""
    marker = content[position]
    if marker == _ARRAY:
        if content[position + 1] == _TYPE:
            return _numbers(content, position + 2)
        return _array(content, position + 1, depth)
    if marker == _OBJECT:
        return _object(content, position + 1, depth)
    if marker == _TEXT:
        return _text(content, position + 1)
    if marker in _DTYPES:
        kind = _DTYPES[marker]
        _require(position + kind.itemsize < len(content), "a number", "an early end")
        return np.frombuffer(content, kind, 1, position + 1)[0].item(), position + 1 + kind.itemsize
    _require(marker in _CONSTANTS, "a value", repr(chr(marker)))
    return _CONSTANTS[marker], position + 1


def _length(content: bytes, position: int) -> int:
    if content[position] != _LONG:
        raise UbjsonError(f"expected a length of eight bytes, found {chr(content[position])!r}")
    return _LENGTH.unpack_from(content, position + 1)[0]


def _text(content: bytes, position: int) -> tuple[str, int]:
    start = position + 9
    end = start + _length(content, position)
    if not start <= end <= len(content):
        raise UbjsonError(f"expected a text within the content, found {end - start} bytes")
    return content[start:end].decode(), end


def _object(content: bytes, position: int, depth: int) -> tuple[dict[str, Any], int]:
    _require(depth < _DEEPEST, f"at most {_DEEPEST} levels", "more")
    found: dict[str, Any] = {}
    while content[position] != _OBJECT_END:
        name, position = _text(content, position)
        _require(name not in found, "different keys in an object", name)
        found[name], position = _value(content, position, depth + 1)
    return found, position + 1


def _array(content: bytes, position: int, depth: int) -> tuple[list[Any], int]:
    _require(depth < _DEEPEST, f"at most {_DEEPEST} levels", "more")
    _require(content[position] == _COUNT, "an array with a length", repr(chr(content[position])))
    length, position = _length(content, position + 1), position + 10
    _require(0 <= length <= len(content), "an array within the content", length)
    items = []
    for _ in range(length):
        item, position = _value(content, position, depth + 1)
        items.append(item)
    return items, position


def _numbers(content: bytes, position: int) -> tuple[np.ndarray, int]:
    kind = _DTYPES.get(content[position])
    if kind is None or content[position + 1] != _COUNT:
        raise UbjsonError(f"expected an array of numbers with a length, found {chr(content[position])!r}")
    start = position + 11
    length = _length(content, position + 2)
    end = start + length * kind.itemsize
    if not start <= end <= len(content):
        raise UbjsonError(f"expected an array within the content, found {length} numbers")
    return np.frombuffer(content, kind, length, start), end
