"""A reproducible UCI benchmark harness for probabilistic regression around the Anchor-MoE paper."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

__version__ = "0.1.0"
__all__ = ["load_results", "run"]


def run(*overrides: str, **settings: object) -> pd.DataFrame:
    """Run splits as the command line does and return their rows: run("-m", dataset="boston,yacht", splits="1-3")."""
    from rich.console import Console

    from anchormoe.commands.run import parse, run_jobs

    arguments = [*overrides, *(f"{key}={value}" for key, value in settings.items())]
    return run_jobs(parse(arguments), Console())


def load_results(results_dir: str | None = None) -> pd.DataFrame:
    """Stored rows, one per split: all experiments of a folder, or the shipped ones behind the tables."""
    from pathlib import Path

    from anchormoe.config.schema import TABLE_EXPERIMENTS
    from anchormoe.paths import shipped
    from anchormoe.run.store import load_results as load

    return load(shipped("results"), TABLE_EXPERIMENTS) if results_dir is None else load(Path(results_dir))
