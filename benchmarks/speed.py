"""How long a split takes, beside the plain computation and beside other libraries; all of it on one core, in one run.

    make bench-speed        writes benchmarks/speed.md

Plain is the torch backend on the same weights (autograd, torch.optim.AdamW) with scikit-learn's GBDT as the anchor.
Both are run whole, on split 1. Only ratios travel from one machine to another.
"""

from __future__ import annotations

import copy
import dataclasses
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import xgboost
from numba import njit
from rich.console import Console
from sklearn.tree import DecisionTreeRegressor

from anchormoe.commands.run import parse
from anchormoe.config.schema import Config
from anchormoe.data.dataset import Dataset
from anchormoe.data.splits import Split
from anchormoe.model.anchors.boosted import anchor_means
from anchormoe.model.network import initial_model
from anchormoe.model.paper import fold_batch, scaling_of
from anchormoe.model.settings import Backend
from anchormoe.model.training import Batch, Phase, refit, select_epoch
from anchormoe.run.runner import keep_freed_memory, load_dataset, make_split, one_thread

HERE = Path(__file__).parent
DATASETS = ("yacht", "boston", "energy", "concrete", "wine", "power", "kin8nm", "protein", "naval")
BOOSTING = {"learning_rate": 0.05, "max_depth": 3}


@dataclasses.dataclass
class Timing:
    dataset: str
    rows: int
    epochs: int  # steps of both phases
    anchor: float
    network: float
    plain_anchor: float
    plain_network: float
    products: float  # share of an epoch that its matrix products take by themselves
    efficiency: float  # speed of those products over that of one large product
    ngboost: float
    xgboost: float

    @property
    def split(self) -> float:
        return self.anchor + self.network

    @property
    def plain(self) -> float:
        return self.plain_anchor + self.plain_network


def main(names: list[str]) -> None:
    console = Console()
    timings = []
    with one_thread():
        keep_freed_memory()
        measure("yacht", whole=False)  # compiles
        for name in names:
            timings.append(measure(name))
            console.print(f"{name}: {timings[-1].split:.1f} s, plain {timings[-1].plain:.1f} s")
    table = markdown(timings)
    console.print(table)
    if tuple(names) == DATASETS:
        (HERE / "speed.md").write_text(table)


def measure(name: str, *, whole: bool = True) -> Timing:
    # Kin8nm's published row is of another model: its full Anchor-MoE is that of protocol=clean.
    protocol = "clean" if name == "kin8nm" else "published"
    (job,) = parse([f"dataset={name}", f"protocol={protocol}", "anchor=trees", "splits=1"])
    config = job.config()
    if not whole:
        config = dataclasses.replace(
            config,
            train=dataclasses.replace(config.train, epochs=3),
            anchor=dataclasses.replace(config.anchor, stages=3),
        )
    dataset = load_dataset(config)
    split = make_split(config, len(dataset.y), 1)
    gbdt = parse([f"dataset={name}", "anchor=gbdt"])[0].config().anchor
    gbdt = dataclasses.replace(gbdt, stages=config.anchor.stages)

    anchor_seconds, anchor = timed(lambda: anchor_means(config.anchor, dataset.X, dataset.y, split, seed=1))
    plain_anchor_seconds, _ = timed(lambda: anchor_means(gbdt, dataset.X, dataset.y, split, seed=1))
    scalings = {fold: scaling_of(dataset, split, anchor, fold, config.rules) for fold in ("tr", "tv")}
    batches = {
        fold: fold_batch(scalings["tv" if fold == "tv" else "tr"], dataset, split, anchor, fold)
        for fold in ("tr", "va", "tv")
    }
    model = initial_model(
        config.model,
        input_dim=batches["tr"].x.shape[1],
        seed=1,
        number=1,
        initial_weights=config.rules.initial_weights,
    )
    plain, plain_config = copy.deepcopy(model), dataclasses.replace(config.train, backend=Backend.torch)

    def ours() -> int:
        selected = select_epoch(model, batches["tr"], batches["va"], config.train)
        refit(model, batches["tv"], selected.epoch, config.train)
        return selected.epoch

    def theirs(epoch: int) -> None:
        select_epoch(plain, batches["tr"], batches["va"], plain_config)
        refit(plain, batches["tv"], epoch, plain_config)  # as many epochs as ours: both do the same work

    network_seconds, epoch = timed(ours)
    plain_network_seconds, _ = timed(lambda: theirs(epoch))
    products, efficiency = matrix_products(config, model, batches)
    ngboost_seconds, xgboost_seconds = other_libraries(dataset, split, config)
    return Timing(
        name,
        len(split.tr),
        config.train.epochs + epoch,
        anchor_seconds,
        network_seconds,
        plain_anchor_seconds,
        plain_network_seconds,
        products,
        efficiency,
        ngboost_seconds,
        xgboost_seconds,
    )


def timed(work: Callable[[], object]) -> tuple[float, object]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def best_of(work: Callable[[], object], *, seconds: float = 1.0) -> float:
    """The fastest of as many repetitions as fit."""
    work()
    times, end = [], time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        times.append(timed(work)[0])
    return min(times)


def matrix_products(config: Config, model, batches: dict[str, Batch]) -> tuple[float, float]:
    """The experts' products of one step and one validation, replayed without anything around them."""
    phase = Phase(model, config.train)
    epoch_seconds = best_of(lambda: (phase.run_epoch(batches["tr"], 1), phase.steps.mean_nll(batches["va"])))
    experts = model.experts
    input_dim, hidden_dim, output_dim = experts.input_dim, experts.hidden_dim, 3 * experts.num_components
    seconds = flops = 0.0
    for fold, backward in (("tr", True), ("va", False)):
        counts = np.bincount(model.gates(batches[fold].x).chosen_NJ.flatten().numpy(), minlength=8)
        for count in counts[counts > 0]:
            x, hidden = (np.ones((count, width), np.float32) for width in (input_dim, hidden_dim))
            weight1, weight2 = (np.ones((hidden_dim, width), np.float32) for width in (input_dim, hidden_dim))
            head = np.ones((output_dim, hidden_dim), np.float32)
            seconds += best_of(lambda a=(x, hidden, weight1, weight2, head, backward): _replay(*a), seconds=0.02)
            per_row = hidden_dim * (input_dim + hidden_dim + output_dim)
            if backward:
                per_row += hidden_dim * (2 * hidden_dim + 2 * output_dim + input_dim)
            flops += 2 * count * per_row
    large = np.ones((4096, hidden_dim), np.float32), np.ones((hidden_dim, hidden_dim), np.float32)
    peak = 2 * large[0].size * hidden_dim / best_of(lambda: _product(*large))
    return seconds / epoch_seconds, flops / seconds / peak


@njit
def _replay(x, hidden, weight1, weight2, head, backward):
    np.dot(x, weight1.T)
    np.dot(hidden, weight2.T)
    grad = np.dot(hidden, head.T)
    if backward:
        np.dot(grad.T, hidden)
        np.dot(grad, head)
        np.dot(hidden.T, hidden)
        np.dot(hidden, weight2)
        np.dot(hidden.T, x)


@njit
def _product(a, b):
    return np.dot(a, b)


def other_libraries(dataset: Dataset, split: Split, config: Config) -> tuple[float, float]:
    """Fits on TR and VA together with as many stages as the anchor chooses from."""
    from ngboost import NGBRegressor

    X, y, stages = dataset.X[split.tv], dataset.y[split.tv], config.anchor.stages
    tree = DecisionTreeRegressor(max_depth=BOOSTING["max_depth"], criterion="friedman_mse")
    ngb = NGBRegressor(Base=tree, n_estimators=stages, learning_rate=BOOSTING["learning_rate"], verbose=False)
    matrix = xgboost.DMatrix(X, y)
    parameters = {"nthread": 1, "tree_method": "hist", **BOOSTING}
    return timed(lambda: ngb.fit(X, y))[0], timed(lambda: xgboost.train(parameters, matrix, stages))[0]


def markdown(timings: list[Timing]) -> str:
    head = (
        "| dataset | rows (TR) | steps | split, s | anchor, s | step, ms | plain split, s | plain / ours | "
        "plain step / ours | products | of sgemm | NGBoost | GBDT | XGBoost |"
    )
    lines = [head, "|---" * (head.count("|") - 1) + "|"]
    for t in timings:
        step, plain_step = t.network / t.epochs, t.plain_network / t.epochs
        lines.append(
            f"| {t.dataset} | {t.rows} | {t.epochs} | {t.split:.2f} | {t.anchor:.2f} | {1000 * step:.1f} "
            f"| {t.plain:.1f} | **{t.plain / t.split:.1f}** | {plain_step / step:.1f} "
            f"| {t.products:.0%} | {t.efficiency:.0%} "
            f"| {t.ngboost / t.split:.2f} | {t.plain_anchor / t.split:.2f} | {t.xgboost / t.split:.2f} |"
        )
    legend = """
One split (number 1, full model) on one core, everything in one run.

- *split*: anchor and both phases of the network. *step*: one epoch, its validation included.
- *plain*: the torch backend, with scikit-learn's GBDT; **plain / ours** is how many times longer it takes.
- *products*: what the experts' matrix products of an epoch take when they are replayed alone, as a share of the epoch.
  *of sgemm*: the speed of those products over that of one 4096 x 128 x 128 product.
- *NGBoost*, *GBDT* (scikit-learn, both anchor fits), *XGBoost* (histogram trees): their time over that of our whole
  split, with 2000 stages of depth 3 each.
"""
    return "\n".join(lines) + "\n" + legend


if __name__ == "__main__":
    main(sys.argv[1:] or list(DATASETS))
