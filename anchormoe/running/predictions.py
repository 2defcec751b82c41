"""Predictions on disk: what a method said about every test row, so that a new score or figure needs no new fit.

`results/<experiment>/<dataset>.predictions/<method>-<config_hash>.parquet` holds the splits of one configuration, one
line per test row. A file is replaced as a whole, so that it is never half-written; the splits of a configuration are
few and small. The run that owns the file of rows (running/ownership.py) is the only one that writes.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from anchormoe.distributions.base import Distribution
from anchormoe.distributions.joint_base import JointDistribution
from anchormoe.errors import UserError
from anchormoe.rows import IDENTITY, Row
from anchormoe.running.store import Place, place

if TYPE_CHECKING:
    import pandas as pd

Columns = dict[str, np.ndarray]

LEVELS = (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975)
_LABELS = (*IDENTITY, "code_version")


def columns(distribution: Distribution, y: np.ndarray, step: float, rows: np.ndarray, pit: np.ndarray) -> Columns:
    """Return what is kept of test rows, in the target's units; `rows` are their places in the dataset.

    What scores are computed from is kept in double precision, the rest in single.
    """
    quantiles = distribution.quantile(LEVELS).T
    return {
        "row": rows.astype(np.int32),
        "y": y,
        "mean": distribution.mean,
        "std": distribution.std.astype(np.float32),
        "log_prob": distribution.log_prob(y),
        "log_cell": distribution.log_cell(y, step),
        "crps": distribution.crps(y),
        "pit": pit.astype(np.float32),
        **{f"q{level:g}": values.astype(np.float32) for level, values in zip(LEVELS, quantiles, strict=True)},
    }


def joint_columns(distribution: JointDistribution, y: np.ndarray, names: Sequence[str], rows: np.ndarray) -> Columns:
    """Return what is kept of test rows of several targets: each one's values by its name, and the joint log-density."""
    kept: Columns = {"row": rows.astype(np.int32), "log_prob": distribution.log_prob(y)}
    mean, std, crps = distribution.mean, distribution.std.astype(np.float32), distribution.crps(y)
    for number, name in enumerate(names):
        values = {"y": y, "mean": mean, "std": std, "crps": crps}
        kept |= {f"{column}[{name}]": array[:, number] for column, array in values.items()}
    return kept


def path_for(path: Place, row: Row) -> Place:
    """Return the place for the predictions behind a row, which is stored at `path`."""
    name = re.sub(r"[^\w.-]", "_", f"{row['method']}-{row['config_hash']}")
    return path.with_suffix(".predictions") / f"{name}.parquet"


def stored_splits(path: Place) -> set[int]:
    """Return the splits whose predictions a file holds; a file that cannot be read holds none."""
    import pandas as pd

    try:
        return set(pd.read_parquet(io.BytesIO(path.read_bytes()), columns=["split"])["split"].unique().tolist())
    except FileNotFoundError:
        return set()
    except UserError:
        raise
    except Exception as error:  # pyarrow's own errors share no class
        warnings.warn(f"{path} cannot be read and will be replaced: {' '.join(str(error).split())[:200]}", stacklevel=2)
        return set()


def store(path: Place, new: Iterable[tuple[Row, Columns]]) -> None:
    """Add the predictions behind some rows, all of one configuration, in place of any of the same splits."""
    import pandas as pd

    frames = [pd.DataFrame({**{name: row.get(name) for name in _LABELS}, **values}) for row, values in new]
    added = {int(frame["split"].iloc[0]) for frame in frames}
    if stored_splits(path) - added:
        before = pd.read_parquet(io.BytesIO(path.read_bytes()))
        frames.insert(0, before[~before["split"].isin(added)])
    content = io.BytesIO()
    pd.concat(frames, ignore_index=True).to_parquet(content, compression="zstd", index=False)
    path.put(content.getvalue())


def load(results_dir: str | Path | Place) -> pd.DataFrame:
    """Return the predictions of all experiments of a folder, with an `experiment` column."""
    import pandas as pd

    found = sorted(place(results_dir).glob("*/*.predictions/*.parquet"))
    frames = [
        pd.read_parquet(io.BytesIO(path.read_bytes())).assign(experiment=path.parent.parent.name) for path in found
    ]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=["experiment", *_LABELS])
