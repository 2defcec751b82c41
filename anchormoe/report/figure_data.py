"""Stored arrays that figures draw: what fits gave (`scripts/figure_data.py`), so that drawing needs none."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from anchormoe.paths import shipped

FOLDER = "results/figure_data"


def path_of(name: str) -> Path:
    """Return the file with the arrays of a dataset or of a toy figure."""
    return shipped(FOLDER) / f"{name}.npz"


@functools.lru_cache(maxsize=4)
def load(name: str) -> dict[str, np.ndarray] | None:
    """Return the stored arrays by name; None if there is no file."""
    path = path_of(name)
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as file:
        return {key: file[key] for key in file.files}


def save(name: str, arrays: dict[str, np.ndarray]) -> Path:
    """Store arrays in single precision, which is more than a figure shows, and return the file."""
    path = path_of(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    single = {
        key: values.astype(np.float32) if values.dtype == np.float64 else values for key, values in arrays.items()
    }
    np.savez_compressed(path, allow_pickle=False, **single)
    return path
