"""The stored rows that a command reads: those that ship with the package and those of the user's own runs."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from anchormoe.config.schema import (
    CALIBRATION_EXPERIMENT,
    CONTROLS_EXPERIMENT,
    EXTENDED_EXPERIMENT,
    RANKING_EXPERIMENT,
    STOCK_EXPERIMENTS,
    TABLE_EXPERIMENTS,
    THEORY_EXPERIMENT,
)
from anchormoe.errors import UserError
from anchormoe.paths import shipped
from anchormoe.rows import JOINT, SIMULATION
from anchormoe.running.store import Place, load_results, place

_VARIATIONS = (CALIBRATION_EXPERIMENT, CONTROLS_EXPERIMENT)


def stored_rows(results_dir: str | None = None, *, beside_shipped: bool = False) -> pd.DataFrame:
    """Return all rows of a folder; without one, those of ./results and those that ship with the package.

    With `beside_shipped`, the shipped rows are added to those of a named folder. Rows of the first folder come first.
    """
    folders = _folders(results_dir)
    if beside_shipped:
        folders = _unique([*folders, place(shipped("results"))])
    names = (*STOCK_EXPERIMENTS, *_VARIATIONS, RANKING_EXPERIMENT, EXTENDED_EXPERIMENT)
    frames = [load_results(folder, names) for folder in folders]
    frames = [frame.dropna(axis=1, how="all") for frame in frames if len(frame)] or frames[:1]
    return pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]


def rows_to_show(results_dir: str | None = None) -> pd.DataFrame:
    """Return what figures and the report show: all experiments of a named folder, else what tables are made from."""
    if not results_dir:
        return without_variations(stored_rows())
    (folder,) = _folders(results_dir)
    return without_variations(load_results(folder))


def without_variations(rows: pd.DataFrame) -> pd.DataFrame:
    """Leave out the rows of calibrations and controls, which are variations of one method and not further methods."""
    return rows[~rows["experiment"].isin(_VARIATIONS)].reset_index(drop=True)


def joint_rows(results_dir: str | None = None) -> pd.DataFrame:
    """Return the rows of several targets: of all experiments of a named folder, else of all that are known."""
    frames = [load_results(folder, kind=JOINT) for folder in _folders(results_dir)]
    return pd.concat([frame for frame in frames if len(frame)] or frames[:1], ignore_index=True)


def theory_rows(results_dir: str | None = None) -> pd.DataFrame:
    """Return the finished rows of the theory's simulations: of a named folder, else of the first one that has some."""
    found = (load_results(folder, (THEORY_EXPERIMENT,), SIMULATION) for folder in _folders(results_dir))
    rows = next((rows for rows in found if len(rows)), pd.DataFrame({"status": []}))
    return rows[rows["status"] == "ok"].reset_index(drop=True)


def table_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Keep the rows behind the paper's tables."""
    return _of(rows, TABLE_EXPERIMENTS)


def comparison_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Keep the rows behind the paper's tables and those of regressors that the user ranked."""
    return _of(rows, (*TABLE_EXPERIMENTS, RANKING_EXPERIMENT))


def extended_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Keep the rows of the extended suite."""
    return _of(rows, (EXTENDED_EXPERIMENT,))


def ingredient_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Keep the rows of every step from the published recipe to the cross-fitted one."""
    return _of(rows, STOCK_EXPERIMENTS)


def calibration_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Keep the rows of the calibrations."""
    return _of(rows, (CALIBRATION_EXPERIMENT,))


def control_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Keep the rows of the cross-fitted recipe and of the controls on its stack of anchors."""
    return _of(rows, (CONTROLS_EXPERIMENT,))


def _folders(results_dir: str | None) -> list[Place]:
    """Return the folder that was named and no other; without one, ./results and the rows that ship with the package."""
    if results_dir:
        named = place(results_dir)
        if not named.is_dir():
            raise UserError(f"results_dir must be a folder of stored rows, received {results_dir}; run a sweep first")
        return [named]
    return _unique([folder for folder in (place("results"), place(shipped("results"))) if folder.is_dir()])


def _unique(folders: Sequence[Place]) -> list[Place]:
    return list({folder.resolve(): folder for folder in folders}.values())


def _of(rows: pd.DataFrame, experiments: Sequence[str]) -> pd.DataFrame:
    return rows[rows["experiment"].isin(experiments)].reset_index(drop=True)
