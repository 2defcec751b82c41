"""Datasets out of the user's own tables: a file, a table of OpenML, or a DataFrame."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from anchormoe.data import openml
from anchormoe.data.catalogue import USER_FOLDER, DatasetInfo, catalogue, raise_unknown
from anchormoe.data.columns import as_frame
from anchormoe.data.containers import ContainerError
from anchormoe.data.dataset import load
from anchormoe.data.formats import DATA_SUFFIXES, require_names
from anchormoe.data.table import as_table
from anchormoe.errors import UserError

_LONGEST_NAME = 100  # names of files are made from it, which may have 255 bytes


def described(
    path: str,
    target: str,
    *,
    name: str | None = None,
    groups: str | None = None,
    time: str | None = None,
    categorical: Sequence[str] = (),
    features: Sequence[str] = (),
) -> DatasetInfo:
    """Describe a file, a folder with one, or `openml:<id>` as a dataset, and load it once: a mistake is a UserError."""
    if not path or "\0" in path:
        received = repr(path)[:100] if path else "nothing"
        raise UserError(f"data must name a file, a folder with one, or openml:<id>, received {received}")
    if not target:
        raise UserError(f"target must name the column of {path} to predict, received nothing")
    chosen = name or name_of(path)
    require_name(chosen)
    info = DatasetInfo(
        name=chosen,
        path=path,
        target=target,
        features=list(features),
        categorical=list(categorical),
        groups=groups or None,
        time=time or None,
    )
    load(info)
    return info


def name_of(path: str) -> str:
    """Make a dataset's name out of a path: `data/House prices.csv.gz` becomes house_prices."""
    if openml.is_address(path):
        return path.lower().replace(":", "_")
    name = Path(os.path.expanduser(path)).absolute().name.lower()
    while name.endswith((*DATA_SUFFIXES, ".zip")):
        name = name[: name.rindex(".")]
    return re.sub(r"\W+", "_", name).strip("_")[:_LONGEST_NAME] or "table"


def require_name(name: str) -> None:
    """Refuse a name that cannot be a file's or that a shipped dataset has."""
    if not re.fullmatch(r"\w[\w-]*", name):
        raise UserError(f"name must be letters, digits, - and _, received {name!r}")
    existing = catalogue().get(name)
    if existing is not None and existing.path is None:
        raise UserError(f"name must not be that of a shipped dataset, received {name!r}; add name=<another>")


def write_description(info: DatasetInfo) -> Path:
    """Write `conf/dataset/<name>.yaml` in the current folder, whole or not at all; a different one stays as it is."""
    keys = ("name", "path", "target", "features", "categorical", "groups", "time")
    content = {key: value for key in keys if (value := getattr(info, key))}
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    path = USER_FOLDER / f"{info.name}.yaml"
    try:
        if path.exists() and path.read_text(encoding="utf-8") != text:
            raise UserError(f"{path} exists and says something else; remove it, or add name=<another>")
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".part", delete=False, encoding="utf-8") as file:
            file.write(text)
        Path(file.name).chmod(0o644)
        Path(file.name).replace(path)
    except OSError as error:
        raise UserError(f"{path} must be a place that can be written to, received: {error.strerror}") from None
    return path


def stored_frame(
    X: Any,
    y: Any = None,
    *,
    target: str | None = None,
    folder: str | Path = "results/own_tables",
    **roles: Any,
) -> DatasetInfo:
    """Store a DataFrame with its target, or X and y, as a Parquet file named by its content, and describe it.

    `roles` are the further arguments of `described`: name, groups, time, categorical, features.
    """
    frame = as_frame(X).copy()
    frame.columns = frame.columns.astype(str)
    if (y is None) == (target is None):
        raise UserError("rank needs X and y, or a DataFrame and target=<column>, received both or neither")
    if y is not None:
        target = "target" if getattr(y, "name", None) is None else str(y.name)
        if target in frame:
            raise UserError(f"X must not have a column named like the target, received {target!r}; rename one of them")
        values = np.asarray(y)
        if values.shape != (len(frame),):
            raise UserError(f"y must have one number for each of the {len(frame)} rows of X, received {values.shape}")
        frame[target] = values
    assert target is not None
    names = [str(name) for name in frame.columns]
    if target not in names:
        raise_unknown("target", target, names)
    try:
        require_names(names)
        digest = as_table(frame, roles.get("categorical", ())).sha256[:12]
    except ContainerError as error:
        raise UserError(f"the DataFrame cannot be a dataset: {error}") from None
    path = Path(folder) / f"table_{digest}.parquet"
    try:
        _store(frame, path)
    except OSError as error:
        raise UserError(f"{path} must be a place that can be written to, received: {error.strerror}") from None
    return described(str(path), target, **roles)


def _store(frame: pd.DataFrame, path: Path) -> None:
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
        temporary = Path(file.name)
    try:
        frame.to_parquet(temporary, index=False)
        temporary.chmod(0o644)
        temporary.replace(path)
    except (TypeError, ValueError) as error:  # pyarrow's own errors are of these kinds
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"the DataFrame must have columns that Parquet can hold, received: {reason}") from None
    finally:
        temporary.unlink(missing_ok=True)
