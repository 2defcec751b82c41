"""Probabilistic regression of tables around the Anchor-MoE paper: a benchmark harness, a regressor, a library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from anchormoe.estimator.experts import suggest_num_experts
    from anchormoe.estimator.regressor import AnchorMoERegressor

__version__ = "0.2.0"
__all__ = ["AnchorMoERegressor", "load_results", "run", "suggest_num_experts"]


def __getattr__(name: str) -> Any:
    """Import the regressor and its tools when they are first asked for: torch is heavy, and most commands need none."""
    if name == "AnchorMoERegressor":
        from anchormoe.estimator.regressor import AnchorMoERegressor

        return AnchorMoERegressor
    if name == "suggest_num_experts":
        from anchormoe.estimator.experts import suggest_num_experts

        return suggest_num_experts
    raise AttributeError(f"module 'anchormoe' has no attribute {name!r}")


def run(*overrides: str, **settings: object) -> pd.DataFrame:
    """Run splits as the command line does and return their rows: run(dataset=["boston", "yacht"], splits=[1, 2])."""
    from rich.console import Console

    from anchormoe.commands.run import parse, run_jobs

    return run_jobs(parse([*overrides, *(f"{key}={_written(value)}" for key, value in settings.items())]), Console())


def _written(value: object) -> object:
    """Write a value as the command line would: a list with commas, None as null."""
    if isinstance(value, list | tuple | range):
        return ",".join(map(str, value))
    return "null" if value is None else value


def load_results(results_dir: str | None = None) -> pd.DataFrame:
    """Return stored rows, one per split: all experiments of a folder, or the shipped ones behind the tables."""
    from pathlib import Path

    from anchormoe.config.schema import TABLE_EXPERIMENTS
    from anchormoe.paths import shipped
    from anchormoe.running.store import load_results as load

    return load(shipped("results"), TABLE_EXPERIMENTS) if results_dir is None else load(Path(results_dir))
