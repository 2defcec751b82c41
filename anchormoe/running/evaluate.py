"""The evaluation of a task, which returns its row. It reads no configuration and writes no file."""

from __future__ import annotations

import dataclasses
import math
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from anchormoe import methods
from anchormoe.data.dataset import Dataset, load
from anchormoe.data.splits import subsample
from anchormoe.distributions.scores import pit_counts, scores
from anchormoe.errors import UserError
from anchormoe.rows import Row
from anchormoe.running.provenance import environment, peak_memory_mb
from anchormoe.running.tasks import Task
from anchormoe.running.threads import num_threads

# Columns that every row has, whichever diagnostics its method has.
_DIAGNOSTICS = ("anchor_stage", "epoch", "longest_wait", "calibration_a", "calibration_b")


def evaluate(task: Task) -> Row:
    """Fit and score the regressor of a task and return its row; a failure of the method becomes a failed row."""
    row = dict(task.labels)
    try:
        dataset = load_dataset(task)
        row |= {
            "variant": dataset.variant,
            "num_rows": len(dataset.y),
            "num_features": dataset.X.shape[1],
            "data_sha256": dataset.sha256,
        }
        measured = _measure(task, dataset)
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # one bad split must not stop a sweep; the row says what happened
        if _is_interrupt(error):
            raise KeyboardInterrupt from None
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}:{frame.lineno}"
        return failed_row(row, f"{type(error).__name__}: {error} ({where})")
    return {
        **row,
        "status": "ok",
        **measured,
        "peak_memory_mb": round(peak_memory_mb(), 1),
        "threads": num_threads(),
        **environment(),
    }


def _is_interrupt(error: BaseException) -> bool:
    """Tell whether an error comes from an interruption; numba raises errors of its own when one meets its compiler."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, KeyboardInterrupt):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def failed_row(labels: Row, error: str) -> Row:
    """Make the row of a split that could not be computed."""
    return {**labels, "status": "failed", "error": error, **environment()}


def load_dataset(task: Task) -> Dataset:
    """Return the variant of the dataset that a task uses, subsampled if the task says so."""
    dataset = load(task.dataset, variant=task.variant, source=task.source, mirror=task.mirror)
    if task.subsample is None:
        return dataset
    rows = subsample(len(dataset.y), task.subsample, task.subsample_seed)
    return dataclasses.replace(dataset, X=dataset.X[rows], y=dataset.y[rows])


def _measure(task: Task, dataset: Dataset) -> Row:
    from anchormoe.model.kernels.clock import clock

    train, test = task.split.rows(len(dataset.y))
    start = clock()
    regressor = methods.make(task.method, task.arguments).fit(dataset.X[train], dataset.y[train])
    fitted = clock()
    distribution = regressor.predict_dist(dataset.X[test])
    predicted = clock()
    metrics = scores(distribution, dataset.y[test])
    if not all(math.isfinite(value) for value in metrics.values()):
        raise ArithmeticError(f"metrics must be finite, received {metrics}")
    diagnostics = {**dict.fromkeys(_DIAGNOSTICS), **regressor.diagnostics_}
    # Each row of a shared fit reports the seconds of the one computation.
    fit_seconds = diagnostics.pop("fit_seconds", fitted - start)
    return {
        **metrics,
        "pit_counts": pit_counts(distribution, dataset.y[test]),
        **{name: _plain(value) for name, value in diagnostics.items()},
        "scale_y": distribution.scale,
        "fit_seconds": round(fit_seconds, 3),
        "predict_seconds": round(predicted - fitted, 4),
    }


def _plain(value: Any) -> Any:
    """Return a diagnostic as JSON can hold it, None for a number that is not finite: it must not cost a row."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int | None) else str(value)
