"""The command that computes stored rows again, checked by composing it: it must give the rows' own hash."""

from __future__ import annotations

import dataclasses
import functools
import shlex
from collections.abc import Iterator, Sequence

from anchormoe.config.compose import choices, jobs
from anchormoe.config.presets import RECIPES
from anchormoe.config.schema import Config, write_splits
from anchormoe.data import catalogue
from anchormoe.errors import UserError
from anchormoe.rows import Row
from anchormoe.running.identity import row_identity

# The anchors of the stock experiments come first; then whatever else can be chosen.
_LIKELY_ANCHORS = ("trees", "gbdt", "xgboost", "stack")


def rerun_command(row: Row, splits: Sequence[int]) -> str | None:
    """Return the command that computes these splits of a row's configuration; None if its labels do not tell.

    A row holds labels and a hash, not every setting: a run with settings of its own (train.epochs=5) has none.
    """
    for settings in _candidates(row):
        if _gives(settings, row):
            arguments = [f"dataset={row['dataset']}", *settings, f"splits={write_splits(splits)}"]
            return shlex.join(["anchormoe-bench", *arguments])
    return None


def _candidates(row: Row) -> Iterator[tuple[str, ...]]:
    """Yield the settings beside the dataset that could have made a row, the likeliest first."""
    tail = [f"ablation={row['ablation']}", f"protocol={row['protocol']}"]
    tail = [argument for argument in tail if argument not in ("ablation=full", "protocol=published")]
    tail += [f"seed={row['seed']}"] if row["seed"] != 1 else []
    method, *maps = str(row["method"]).split("+")
    model = str(row.get("model"))
    if maps and method not in RECIPES.values():
        tail.append(f"method.calibration={maps[-1]}")
    elif method in RECIPES.values() and isinstance(row.get("calibration"), str):
        yield (f"method={method}", f"calibration={row['calibration']}", *tail)
    if row["protocol"] == "published":  # it may have put another method in Anchor-MoE's place
        yield tuple(tail)
    if method not in RECIPES.values():
        yield (f"method={method}", *tail)
        return
    named = [] if method == "anchormoe" else [f"method={method}"]
    if model in choices("ingredient"):
        yield (*named, f"ingredient={model}", *tail)
    if named:
        yield (*named, *tail)
    preset = [f"model={model}"] if model in choices("model") and model != "published" else []
    for anchor in dict.fromkeys((str(row["anchor"]), *_LIKELY_ANCHORS)):
        if anchor in choices("anchor") or "." in anchor:
            yield (*named, f"anchor={anchor}", *preset, *tail)


def _gives(settings: tuple[str, ...], row: Row) -> bool:
    """Say whether a command line with these settings makes rows of the same configuration."""
    try:
        config = dataclasses.replace(_composed(settings), dataset=catalogue.info(str(row["dataset"])))
        labels = row_identity(config, int(row["split"]))
    except (UserError, ValueError):  # a dataset or a class that is not here, or a name that is no value
        return False
    return all(labels[name] == row[name] for name in ("method", "anchor", "config_hash"))


@functools.cache
def _composed(settings: tuple[str, ...]) -> Config:
    """Compose the settings for any dataset: Hydra takes a quarter of a second, and datasets differ in nothing else."""
    (job,) = jobs(settings)
    return job.config()
