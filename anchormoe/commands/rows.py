"""The stored rows that a command reads: those that ship with the package and those of the user's own runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from anchormoe.config.schema import RANKING_EXPERIMENT, STOCK_EXPERIMENTS, TABLE_EXPERIMENTS
from anchormoe.errors import UserError
from anchormoe.paths import shipped
from anchormoe.running.store import load_results


def stored_rows(results_dir: str | None = None, *, beside_shipped: bool = False) -> pd.DataFrame:
    """Return all rows of a folder; without one, those of ./results and those that ship with the package.

    With `beside_shipped`, the shipped rows are added to those of a named folder. Rows of the first folder come first.
    """
    folders = _folders(results_dir)
    if beside_shipped:
        folders = _unique([*folders, shipped("results")])
    frames = [load_results(folder, (*STOCK_EXPERIMENTS, RANKING_EXPERIMENT)) for folder in folders]
    frames = [frame.dropna(axis=1, how="all") for frame in frames if len(frame)] or frames[:1]
    return pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]


def rows_to_show(results_dir: str | None = None) -> pd.DataFrame:
    """Return what figures and the report show: all experiments of a named folder, else what tables are made from."""
    if not results_dir:
        return stored_rows()
    (folder,) = _folders(results_dir)
    return load_results(folder)


def table_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Keep the rows behind the paper's tables."""
    return _of(rows, TABLE_EXPERIMENTS)


def comparison_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Keep the rows behind the paper's tables and those of regressors that the user ranked."""
    return _of(rows, (*TABLE_EXPERIMENTS, RANKING_EXPERIMENT))


def ingredient_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Keep the rows of every step from the published recipe to the cross-fitted one."""
    return _of(rows, STOCK_EXPERIMENTS)


def _folders(results_dir: str | None) -> list[Path]:
    """Return the folder that was named and no other; without one, ./results and the rows that ship with the package."""
    if results_dir:
        if not Path(results_dir).is_dir():
            raise UserError(f"results_dir must be a folder of stored rows, received {results_dir}; run a sweep first")
        return [Path(results_dir)]
    return _unique([folder for folder in (Path("results"), shipped("results")) if folder.is_dir()])


def _unique(folders: Sequence[Path]) -> list[Path]:
    return list({folder.resolve(): folder for folder in folders}.values())


def _of(rows: pd.DataFrame, experiments: Sequence[str]) -> pd.DataFrame:
    return rows[rows["experiment"].isin(experiments)].reset_index(drop=True)
