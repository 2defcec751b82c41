"""How long a split takes, beside the plain computation and beside other libraries; all of it on one core, in one run.

    make bench-speed        writes benchmarks/speed.md

Plain is the same regressor with the torch backend (autograd, torch.optim.AdamW) and scikit-learn's GBDT as the anchor.
Both are run whole, on split 1. Only ratios travel from one machine to another.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import xgboost
from rich.console import Console
from sklearn.tree import DecisionTreeRegressor

from anchormoe.commands.run import parse
from anchormoe.data.splits import inner_split
from anchormoe.model.anchors.selection import select_anchor
from anchormoe.model.paper import PaperAnchorMoE
from anchormoe.model.settings import Backend
from anchormoe.model.training_rows import TrainingRows
from anchormoe.running.evaluate import load_dataset
from anchormoe.running.tasks import make_task
from anchormoe.running.threads import keep_freed_memory, one_thread

HERE = Path(__file__).parent
DATASETS = ("yacht", "boston", "energy", "concrete", "wine", "power", "kin8nm", "protein", "naval")
STAGES = 2000
BOOSTING = {"learning_rate": 0.05, "max_depth": 3}


@dataclasses.dataclass
class Timing:
    """Seconds of one split: ours, the plain computation's, and two libraries' fits on the same rows."""

    dataset: str
    rows: int
    epochs: int  # of both phases
    split: float
    anchor: float
    plain: float
    plain_anchor: float
    ngboost: float
    xgboost: float


def main(names: list[str]) -> None:
    """Measure the datasets and print the table; all nine are also written to speed.md."""
    console = Console()
    timings = []
    with one_thread():
        keep_freed_memory()
        measure("yacht", stages=3, epochs=3)  # compiles
        for name in names:
            timings.append(measure(name))
            console.print(f"{name}: {timings[-1].split:.1f} s, plain {timings[-1].plain:.1f} s")
    table = markdown(timings)
    console.print(table)
    if tuple(names) == DATASETS:
        (HERE / "speed.md").write_text(table)


def measure(name: str, *, stages: int = STAGES, epochs: int = 400) -> Timing:
    """Time split 1 of a dataset."""
    # Kin8nm's published row is of another model: its full Anchor-MoE is that of protocol=clean.
    protocol = "clean" if name == "kin8nm" else "published"
    settings = (f"dataset={name}", f"protocol={protocol}", f"anchor.stages={stages}", f"train.epochs={epochs}")
    ours, plain = (
        make_task(parse([*settings, f"anchor={anchor}", f"train.backend={backend.value}"])[0].config(), 1)
        for anchor, backend in (("trees", Backend.compiled), ("gbdt", Backend.torch))
    )
    dataset = load_dataset(ours)
    train, _ = ours.split.rows(len(dataset.y))
    X, y = dataset.X[train], dataset.y[train]
    inner = inner_split(len(y), 1, calibration_fraction=0.125, validation_fraction=0.2)
    anchor_seconds, plain_anchor_seconds = (
        timed(lambda task=task: select_anchor(task.arguments["anchor"], TrainingRows(X, y), inner, seed=1))[0]
        for task in (ours, plain)
    )
    split_seconds, fitted = timed(lambda: PaperAnchorMoE(**ours.arguments).fit(X, y))
    plain_seconds, _ = timed(lambda: PaperAnchorMoE(**plain.arguments).fit(X, y))
    ngboost_seconds, xgboost_seconds = other_libraries(X[inner.tv], y[inner.tv], stages)
    return Timing(
        name,
        len(inner.tr),
        epochs + fitted.diagnostics_["epoch"],
        split_seconds,
        anchor_seconds,
        plain_seconds,
        plain_anchor_seconds,
        ngboost_seconds,
        xgboost_seconds,
    )


def timed(work: Callable[[], object]) -> tuple[float, object]:
    """Return the seconds that a piece of work takes, and its result."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def other_libraries(X: np.ndarray, y: np.ndarray, stages: int) -> tuple[float, float]:
    """Time fits on TR and VA together with as many stages as the anchor chooses from."""
    from ngboost import NGBRegressor

    tree = DecisionTreeRegressor(max_depth=BOOSTING["max_depth"], criterion="friedman_mse")
    ngb = NGBRegressor(Base=tree, n_estimators=stages, learning_rate=BOOSTING["learning_rate"], verbose=False)
    matrix = xgboost.DMatrix(X, y)
    parameters = {"nthread": 1, "tree_method": "hist", **BOOSTING}
    return timed(lambda: ngb.fit(X, y))[0], timed(lambda: xgboost.train(parameters, matrix, stages))[0]


def markdown(timings: list[Timing]) -> str:
    """Write the table with its legend."""
    head = (
        "| dataset | rows (TR) | epochs | split, s | anchor, s | epoch, ms | plain split, s | plain / ours | "
        "plain epoch / ours | NGBoost | GBDT | XGBoost |"
    )
    lines = [head, "|---" * (head.count("|") - 1) + "|"]
    for t in timings:
        epoch, plain_epoch = (t.split - t.anchor) / t.epochs, (t.plain - t.plain_anchor) / t.epochs
        lines.append(
            f"| {t.dataset} | {t.rows} | {t.epochs} | {t.split:.2f} | {t.anchor:.2f} | {1000 * epoch:.1f} "
            f"| {t.plain:.1f} | **{t.plain / t.split:.1f}** | {plain_epoch / epoch:.1f} "
            f"| {t.ngboost / t.split:.2f} | {t.plain_anchor / t.split:.2f} | {t.xgboost / t.split:.2f} |"
        )
    legend = """
One split (number 1, full model) on one core, everything in one run.

- *split*: the whole fit, anchor and both phases of the network. *epoch*: one of either phase, with its validation.
- *plain*: the same fit with the torch backend and scikit-learn's GBDT; **plain / ours**: how many times longer it is.
- *NGBoost*, *GBDT* (scikit-learn, both anchor fits), *XGBoost* (histogram trees): their time over that of our whole
  split, with 2000 stages of depth 3 each.
"""
    return "\n".join(lines) + "\n" + legend


if __name__ == "__main__":
    main(sys.argv[1:] or list(DATASETS))
