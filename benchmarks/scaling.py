"""Measure time and memory against the number of rows, on synthetic data from 1,000 to 1,000,000 rows.

    make bench-scaling      writes benchmarks/scaling.md and scaling.png

Each size runs in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch

from anchormoe.model.anchors import exact_trees
from anchormoe.model.network import initial_model
from anchormoe.model.settings import InitialWeights, ModelSettings, TrainingSettings
from anchormoe.model.training import Batch, Phase
from anchormoe.running.provenance import peak_memory_mb
from anchormoe.running.threads import keep_freed_memory, one_thread

HERE = Path(__file__).parent
SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
NUM_COLUMNS = 10
STAGES = 20
MINI_BATCH = 8192


def synthetic(num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((num_rows, NUM_COLUMNS))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.standard_normal(num_rows)


def measure(part: str, num_rows: int) -> dict[str, float]:
    """Measure the seconds per boosting stage or per epoch, and the growth of the peak memory."""
    X, y = synthetic(num_rows)
    with one_thread():
        keep_freed_memory()
        warm_up(part)
        before = peak_memory_mb()
        if part == "anchor":
            start = time.perf_counter()
            exact_trees.fit(X, y, stages=STAGES, learning_rate=0.05, max_depth=3)
            seconds = (time.perf_counter() - start) / STAGES
        else:
            seconds = epoch_seconds(X, y, None if part == "full batch" else MINI_BATCH)
    return {"seconds": seconds, "memory_mb": peak_memory_mb() - before}


def warm_up(part: str) -> None:
    X, y = synthetic(100)
    if part == "anchor":
        exact_trees.fit(X, y, stages=1, learning_rate=0.05, max_depth=3)
    else:
        epoch_seconds(X, y, None)


def epoch_seconds(X: np.ndarray, y: np.ndarray, batch_size: int | None) -> float:
    batch = Batch(*(torch.as_tensor(values, dtype=torch.float32) for values in (X, np.zeros_like(y), y)))
    model = initial_model(ModelSettings(), input_dim=X.shape[1], seed=1, number=1, initial_weights=InitialWeights.own)
    phase = Phase(model, TrainingSettings(batch_size=batch_size))
    repetitions = max(2, 20_000 // len(y))
    start = time.perf_counter()
    for epoch in range(1, repetitions + 1):
        phase.run_epoch(batch, epoch)
    return (time.perf_counter() - start) / repetitions


def main() -> None:
    results: dict[str, list[dict[str, float]]] = {}
    for part in ("anchor", "full batch", "mini-batches"):
        for num_rows in SIZES:
            command = [sys.executable, __file__, part, str(num_rows)]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            results.setdefault(part, []).append(json.loads(output))
            print(part, num_rows, output, end="", flush=True)
    (HERE / "scaling.md").write_text(markdown(results))
    plot(results)


def markdown(results: dict[str, list[dict[str, float]]]) -> str:
    units = {
        "anchor": "one boosting stage",
        "full batch": "one epoch",
        "mini-batches": f"one epoch of {MINI_BATCH} rows",
    }
    lines = ["| rows |" + "".join(f" {part}: {units[part]}, ms per 1,000 rows | memory, MB |" for part in results)]
    lines.append("|---" * (1 + 2 * len(results)) + "|")
    for i, num_rows in enumerate(SIZES):
        cells = [
            f" {1e6 * values[i]['seconds'] / num_rows:.2f} | {values[i]['memory_mb']:.0f} |"
            for values in results.values()
        ]
        lines.append(f"| {num_rows:,} |" + "".join(cells))
    text = f"""
{NUM_COLUMNS} columns, one core. Memory is what the peak of the process grew by beyond the data themselves. Where the
milliseconds per 1,000 rows stay level, time grows in proportion to the rows.

![Seconds and memory against rows](scaling.png)
"""
    return "\n".join(lines) + "\n" + text


def plot(results: dict[str, list[dict[str, float]]]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, key, label in zip(
        figure.subplots(1, 2), ("seconds", "memory_mb"), ("seconds", "memory, MB"), strict=True
    ):
        for part, values in results.items():
            axes.loglog(SIZES, [value[key] for value in values], "o-", label=part)
        last = [values[-1][key] for values in results.values()]
        axes.loglog(SIZES, max(last) * np.array(SIZES) / SIZES[-1], ":", color="grey", label="proportional to rows")
        axes.set(xlabel="rows", ylabel=f"{label} (log scale)")
        axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(HERE / "scaling.png", dpi=110)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
    else:
        main()
