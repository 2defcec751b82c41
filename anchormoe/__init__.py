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

    from anchormoe.bench import parse, run_jobs

    arguments = [*overrides, *(f"{key}={value}" for key, value in settings.items())]
    return run_jobs(parse(arguments), Console())


def load_results(results_dir: str | None = None) -> pd.DataFrame:
    """Stored rows of all experiments, one per split; those that ship with the package unless a folder is named."""
    from pathlib import Path

    from anchormoe.paths import shipped
    from anchormoe.store import load_results as load

    return load(shipped("results") if results_dir is None else Path(results_dir))
