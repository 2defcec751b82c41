"""Name -> verified table -> Dataset, from the copy in the package (`embedded`) or the public home (`download`)."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from anchormoe.data import catalogue as datasets
from anchormoe.data.catalogue import DatasetInfo
from anchormoe.data.containers import ContainerError, verified_table
from anchormoe.data.download import fetch
from anchormoe.errors import UserError
from anchormoe.paths import shipped

SOURCES = ("embedded", "download")


@dataclass(frozen=True, eq=False)
class Dataset:
    """One regression task in original units; rows in the order of the original file."""

    name: str
    variant: str
    X: np.ndarray  # (rows, features) float64, C-contiguous
    y: np.ndarray  # (rows,) float64
    feature_names: tuple[str, ...]
    target_name: str
    sha256: str  # content hash of the whole table, shared by all variants


def load(
    name: str,
    *,
    variant: str | None = None,
    source: str = "embedded",
    mirror: str | None = None,
    cache_dir: Path | None = None,
) -> Dataset:
    """Load a dataset, its content hash verified. `mirror` and `cache_dir` matter only to `source="download"`."""
    dataset = datasets.info(name)
    dataset.variant(variant)  # a wrong name should fail before anything is downloaded
    if source == "embedded":
        table = embedded_table(dataset)
    elif source == "download":
        table = fetch(dataset, mirror=mirror, cache_dir=cache_dir).table
    else:
        datasets.raise_unknown("data source", source, SOURCES)
    return select(dataset, table, variant)


def embedded_path(dataset: DatasetInfo) -> Path:
    return shipped("data") / f"{dataset.name}.csv.xz"


def embedded_table(dataset: DatasetInfo) -> np.ndarray:
    """The canonical table out of the copy that ships with the package."""
    path = embedded_path(dataset)
    try:
        return verified_table(path.read_bytes(), dataset)
    except OSError as error:
        reason = f"found {error.strerror or error}"
    except ContainerError as error:
        reason = str(error)
    raise UserError(
        f"embedded copy of dataset {dataset.name!r} is unusable: required {path}, {reason}; "
        "reinstall the package or use data.source=download"
    )


def select(dataset: DatasetInfo, table: np.ndarray, variant: str | None = None) -> Dataset:
    """Cut one variant's features and target out of the canonical table."""
    variant_name, chosen = dataset.variant(variant)
    rows = table[slice(*chosen.rows)] if chosen.rows else table
    feature_columns = [dataset.columns.index(column) for column in chosen.features]
    return Dataset(
        name=dataset.name,
        variant=variant_name,
        X=np.ascontiguousarray(rows[:, feature_columns]),
        y=rows[:, dataset.columns.index(chosen.target)].copy(),
        feature_names=chosen.features,
        target_name=chosen.target,
        sha256=dataset.content_sha256,
    )
