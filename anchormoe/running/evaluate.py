"""The evaluation of a task, which returns its row. It reads no configuration and writes no file.

Where a task asks for them, the row also holds the predictions behind it, which the driver stores apart from it.
"""

from __future__ import annotations

import functools
import math
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from anchormoe import methods
from anchormoe.data.dataset import Dataset, load
from anchormoe.data.splits import Scheme, share_of_test, subsample
from anchormoe.distributions.intervals import interval_scores
from anchormoe.distributions.joint_scores import joint_scores, target_scores
from anchormoe.distributions.scores import pit, pit_counts, scores
from anchormoe.errors import UserError
from anchormoe.rows import Row
from anchormoe.running import predictions
from anchormoe.running.provenance import environment, peak_memory_mb
from anchormoe.running.tasks import Task
from anchormoe.running.threads import num_threads

if TYPE_CHECKING:
    from anchormoe.distributions.base import Distribution
    from anchormoe.distributions.joint_base import JointDistribution

# Columns that every row has, whichever diagnostics its method has.
_DIAGNOSTICS = ("anchor_stage", "epoch", "longest_wait", "calibration_a", "calibration_b")


def evaluate(task: Task) -> Row:
    """Fit and score the regressor of a task and return its row; a failure of the method becomes a failed row."""
    return completed_row(task.labels, functools.partial(_measure, task))


def completed_row(labels: Row, measure: Callable[[Row], Row]) -> Row:
    """Complete labels to a row by what `measure` returns, and by its provenance; a failure becomes a failed row.

    `measure` is given the row as it is so far, and may add facts to it that a failed row should have too.
    """
    row = dict(labels)
    try:
        measured = measure(row)
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # one bad split must not stop a sweep; the row says what happened
        if _is_interrupt(error):
            raise KeyboardInterrupt from None
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}:{frame.lineno}"
        message = " ".join(f"{type(error).__name__}: {error}".split())
        return {**failed_row(row, f"{message} ({where})"), "traceback": "".join(traceback.format_exception(error))}
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
    return dataset.take(rows)


def _measure(task: Task, row: Row) -> Row:
    from anchormoe.model.kernels.clock import clock

    dataset = load_dataset(task)
    row |= {
        "variant": dataset.variant,
        "num_rows": len(dataset.y),
        "num_features": dataset.X.shape[1],
        "data_sha256": dataset.sha256,
        "target_step": list(dataset.steps) if dataset.is_joint else dataset.step,
    }
    train, test = task.split.rows(len(dataset.y), dataset.split_key)
    start = clock()
    regressor = methods.make(task.method, task.arguments, categorical=dataset.categorical)
    regressor.fit(dataset.X[train], dataset.y[train])
    fitted = clock()
    distribution: Any = regressor.predict_dist(dataset.X[test])
    predicted = clock()
    measure = _several_targets if dataset.is_joint else _one_target
    metrics, further = measure(distribution, dataset, train, test, task)
    if not all(math.isfinite(value) for value in metrics.values()):
        raise ArithmeticError(f"metrics must be finite, received {metrics}")
    diagnostics = {**dict.fromkeys(_DIAGNOSTICS), **regressor.diagnostics_}
    # Each row of a shared fit reports the seconds of the one computation.
    fit_seconds = diagnostics.pop("fit_seconds", getattr(regressor, "fit_seconds_", fitted - start))
    cut = {} if dataset.scheme is Scheme.random else _scheme_facts(dataset, train, test)
    return {
        **cut,
        **metrics,
        **further,
        **{name: _plain(value) for name, value in diagnostics.items()},
        "fit_seconds": round(fit_seconds, 3),
        "predict_seconds": round(predicted - fitted, 4),
    }


def _one_target(
    distribution: Distribution, dataset: Dataset, train: np.ndarray, test: np.ndarray, task: Task
) -> tuple[dict[str, float], Row]:
    """Return the metrics of one target, and what else the row says of its predictions."""
    y, step = dataset.y[test], dataset.step
    places = pit(distribution, y, step, seed=task.split.number)
    once = task.split.first_tested(len(dataset.y), dataset.split_key)
    further: Row = {"pit_counts": pit_counts(places), "pit_counts_once": pit_counts(places[once])}
    if task.keep_predictions:
        further["predictions"] = predictions.columns(distribution, y, step, test, places)
    further["intervals"] = interval_scores(distribution, dataset.X[test], y)
    return scores(distribution, y, step), {**further, "scale_y": distribution.scale}


def _several_targets(
    distribution: JointDistribution, dataset: Dataset, train: np.ndarray, test: np.ndarray, task: Task
) -> tuple[dict[str, float], Row]:
    """Return the metrics of several targets together; those of each are in `targets`, by its name and in its unit."""
    y, scale, names = dataset.y[test], dataset.y[train].std(0), dataset.target_names
    further: Row = {}
    if task.keep_predictions:
        further["predictions"] = predictions.joint_columns(distribution, y, names, test)
    further |= {"targets": target_scores(distribution, y, names), "scale_y": scale.tolist()}
    return joint_scores(distribution, y, scale), further


def _scheme_facts(dataset: Dataset, train: np.ndarray, test: np.ndarray) -> Row:
    """Return how a split was cut, for the test that compares methods; random splits have nine tenths for training."""
    return {"split_scheme": dataset.scheme.value, "test_share": round(share_of_test(train, test), 6)}


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
