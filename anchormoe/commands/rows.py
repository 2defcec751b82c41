"""The stored rows a command reads: those that ship with the package and those of the user's own runs."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from anchormoe.config.schema import RANKING_EXPERIMENT, STOCK_EXPERIMENTS, TABLE_EXPERIMENTS
from anchormoe.errors import UserError
from anchormoe.paths import shipped
from anchormoe.running.store import load_results


def table_rows(results_dir: str | None = None) -> pd.DataFrame:
    """Return the rows behind the paper's tables."""
    return _of(_stored(tuple(_folders(results_dir))), TABLE_EXPERIMENTS)


def comparison_rows(results_dir: str | None = None) -> pd.DataFrame:
    """Return the same with the regressors that the user ranked, which always stand beside the shipped rows."""
    folders = _folders(results_dir)
    if results_dir is not None and (Path(results_dir) / RANKING_EXPERIMENT).is_dir():
        folders = _unique([*folders, shipped("results")])
    return _of(_stored(tuple(folders)), (*TABLE_EXPERIMENTS, RANKING_EXPERIMENT))


def ingredient_rows(results_dir: str | None = None) -> pd.DataFrame:
    """Return the rows of every step from the published recipe to the cross-fitted one."""
    return _of(_stored(tuple(_folders(results_dir))), STOCK_EXPERIMENTS)


def _folders(results_dir: str | None) -> list[Path]:
    """Return the folder that was named and no other; without one, ./results and the rows that ship with the package."""
    if results_dir:
        if not Path(results_dir).is_dir():
            raise UserError(f"results_dir must be a folder of stored rows, received {results_dir}; run a sweep first")
        return [Path(results_dir)]
    return _unique([folder for folder in (Path("results"), shipped("results")) if folder.is_dir()])


def _unique(folders: Sequence[Path]) -> list[Path]:
    return list({folder.resolve(): folder for folder in folders}.values())


@functools.lru_cache(maxsize=2)
def _stored(folders: tuple[Path, ...]) -> pd.DataFrame:
    """Read the folders once for all tables of a command; rows of the first folder come first."""
    frames = [load_results(folder, (*STOCK_EXPERIMENTS, RANKING_EXPERIMENT)) for folder in folders]
    frames = [frame for frame in frames if len(frame)] or frames[:1]
    return pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]


def _of(rows: pd.DataFrame, experiments: Sequence[str]) -> pd.DataFrame:
    return rows[rows["experiment"].isin(experiments)].reset_index(drop=True)
