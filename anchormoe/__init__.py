"""Probabilistic regression of tables around the Anchor-MoE paper: a benchmark harness, a regressor, a library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from anchormoe.commands.rank import RankResult
    from anchormoe.estimator.experts import suggest_num_experts
    from anchormoe.estimator.regressor import AnchorMoERegressor
    from anchormoe.methods.calibrated import Calibrated
    from anchormoe.methods.regressor import MethodRegressor

__version__ = "0.2.0"
__all__ = [
    "AnchorMoERegressor",
    "Calibrated",
    "MethodRegressor",
    "load_dataset",
    "load_predictions",
    "load_results",
    "rank",
    "run",
    "suggest_num_experts",
]


def __getattr__(name: str) -> Any:
    """Import the regressor and its tools when they are first asked for: torch is heavy, and most commands need none."""
    if name == "AnchorMoERegressor":
        from anchormoe.estimator.regressor import AnchorMoERegressor

        return AnchorMoERegressor
    if name == "MethodRegressor":
        from anchormoe.methods.regressor import MethodRegressor

        return MethodRegressor
    if name == "Calibrated":
        from anchormoe.methods.calibrated import Calibrated

        return Calibrated
    if name == "suggest_num_experts":
        from anchormoe.estimator.experts import suggest_num_experts

        return suggest_num_experts
    raise AttributeError(f"module 'anchormoe' has no attribute {name!r}")


def run(*overrides: str, **settings: object) -> pd.DataFrame:
    """Run splits as the command line does and return their rows: run(dataset=["boston", "yacht"], splits=[1, 2])."""
    from rich.console import Console

    from anchormoe.commands.run import parse, run_jobs

    return run_jobs(parse([*overrides, *(f"{key}={_written(value)}" for key, value in settings.items())]), Console())


def rank(
    data: Any,
    y: Any = None,
    *,
    target: str | None = None,
    methods: str | Sequence[str] = "fast",
    groups: str | None = None,
    time: str | None = None,
    categorical: Sequence[str] = (),
    features: Sequence[str] = (),
    **settings: object,
) -> RankResult:
    """Run methods on a table as the command line does, and say which is best and how sure that is.

    data: X with `y`; a DataFrame, or the path of a file, with `target`; the name of a dataset, or a list of names.
    methods: `fast`, `all`, or names of methods and import paths of regressors.
    groups, time, categorical, features: columns of a table of your own, as in docs/your-data.md.

    The result has `table`, `recommendation` and `code`; a notebook shows it as a table.
    """
    from anchormoe.commands.rank import rank_table

    roles = {"groups": groups, "time": time, "categorical": categorical, "features": features}
    written = [f"{key}={_written(value)}" for key, value in settings.items()]
    return rank_table(data, y, target, {key: value for key, value in roles.items() if value}, methods, written)


def load_dataset(name: str, *, target: str | None = None, **roles: Any) -> tuple[pd.DataFrame, Any]:
    """Return the features and the target of a dataset by its name, or of a table's file with `target`.

    The target is a Series; several targets are the columns of a DataFrame.

    roles: groups, time, categorical and features of a table's file, as in docs/your-data.md.
    """
    import pandas as pd

    from anchormoe.data.catalogue import info
    from anchormoe.data.dataset import load
    from anchormoe.data.own import described

    dataset = load(info(name) if target is None else described(name, target, **roles))
    if dataset.is_joint:
        return dataset.frame(), pd.DataFrame(dataset.y, columns=list(dataset.target_names))
    return dataset.frame(), pd.Series(dataset.y, name=dataset.target_name)


def _written(value: object) -> object:
    """Write a value as the command line would: a list with commas, None as null."""
    if isinstance(value, list | tuple | range):
        return ",".join(map(str, value))
    return "null" if value is None else value


def load_results(results_dir: str | None = None) -> pd.DataFrame:
    """Return stored rows, one per split: all experiments of a folder, or the shipped ones behind the tables."""
    from anchormoe.config.schema import TABLE_EXPERIMENTS
    from anchormoe.paths import shipped
    from anchormoe.running.store import load_results as load

    return load(shipped("results"), TABLE_EXPERIMENTS) if results_dir is None else load(results_dir)


def load_predictions(results_dir: str = "results") -> pd.DataFrame:
    """Return kept predictions, one line per test row and split, of all experiments of a folder."""
    from anchormoe.running.predictions import load

    return load(results_dir)
