"""Measure the regressor against the number of rows, on a synthetic table of 20 columns.

    make bench-scaling                              writes benchmarks/scaling.json, scaling.md and scaling.png
    python benchmarks/scaling.py 1000000            measures one size again
    python benchmarks/scaling.py protein            all 45,730 rows of Protein: nine tenths to fit, one to score
    python benchmarks/scaling.py protein-crossfit   the same with recipe="crossfit"

AnchorMoERegressor with its defaults and `n_jobs=2`. Each size runs in a process of its own, so that its peak memory is
its own. Seconds of the processor are those of both threads; they tell a busy machine from a slow fit.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from anchormoe import AnchorMoERegressor
from anchormoe.data.catalogue import info
from anchormoe.data.dataset import load
from anchormoe.running.provenance import peak_memory_mb

HERE = Path(__file__).parent
STORED = HERE / "scaling.json"
SIZES = ("1000", "3000", "10000", "30000", "100000", "300000", "1000000")
PROTEIN = ("protein", "protein-crossfit")
NUM_COLUMNS = 20
NUM_NEW = 100_000


def synthetic(num_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a table with smooth effects, an interaction, an edge, and noise that grows along one column."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((num_rows, NUM_COLUMNS))
    mean = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * np.abs(X[:, 3]) + 0.2 * X[:, 4:8].sum(1)
    return X, mean + 0.3 * np.exp(0.4 * X[:, 8]) * rng.standard_normal(num_rows)


def table(size: str) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Return the rows to fit and new rows to predict."""
    if not size.startswith("protein"):
        return synthetic(int(size), seed=0), synthetic(NUM_NEW, seed=1)
    data = load(info("protein"))
    order = np.random.default_rng(1).permutation(len(data.y))
    train, test = np.split(order, [round(0.9 * len(order))])
    return (data.X[train], data.y[train]), (data.X[test], data.y[test])


def measure(size: str) -> dict[str, Any]:
    """Fit and predict one size."""
    train, (X_new, y_new) = table(size)
    AnchorMoERegressor(folds=2, random_state=0).fit(*synthetic(100, seed=2))  # compiles
    recipe = "crossfit" if size == "protein-crossfit" else "fast"
    model = AnchorMoERegressor(recipe, random_state=0, n_jobs=2)
    start, start_cpu = time.perf_counter(), time.process_time()
    model.fit(*train)
    fitted, fitted_cpu = time.perf_counter(), time.process_time()
    memory = peak_memory_mb()
    predicted = model.predict_dist(X_new)
    done = time.perf_counter()
    return {
        "rows": len(train[1]),
        "fit_seconds": fitted - start,
        "fit_cpu_seconds": fitted_cpu - start_cpu,
        "memory_gb": memory / 1024,
        "predict_seconds": done - fitted,
        "new_rows": len(y_new),
        "nll": float(-predicted.log_prob(y_new).mean()),
        "crps": float(predicted.crps(y_new).mean()),
        "anchors": {member.name: round(member.weight, 3) for member in model.fitted_.anchor.members},
    }


def main(sizes: list[str]) -> None:
    """Measure sizes, store each as it comes, and write the page from all that are stored."""
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    for size in sizes:
        command = [sys.executable, __file__, "--measure", size]
        stored[size] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        STORED.write_text(json.dumps(stored, indent=1) + "\n")
        print(size, stored[size], flush=True)
    measured = [stored[size] for size in SIZES if size in stored]
    (HERE / "scaling.md").write_text(markdown(measured, [stored[size] for size in PROTEIN if size in stored]))
    plot(measured)


def markdown(measured: list[dict[str, Any]], protein: list[dict[str, Any]]) -> str:
    """Write the table with its legend."""
    lines = [
        "| rows | fit, s | fit, s per 1,000 rows | processor, s | memory, GB | CRPS | predict 100,000 rows, s |",
        "|---:|---:|---:|---:|---:|---:|---:|",
        *(_line(item) for item in measured),
    ]
    legend = f"""
{NUM_COLUMNS} columns, two threads (`n_jobs=2`), defaults otherwise. Memory is the peak of the process, the CRPS that of
new rows. What changes above 50,000 rows:
[docs/regressor.md](../docs/regressor.md#large-tables).

![Seconds and memory against rows](scaling.png)
"""
    for item, recipe in zip(protein, ("defaults", 'recipe="crossfit"'), strict=False):
        legend += f"""
All rows of Protein with {recipe}, nine tenths to fit ({item["rows"]:,} rows): {item["fit_seconds"]:.0f} s
({item["fit_cpu_seconds"]:.0f} s of the processor), {item["memory_gb"]:.1f} GB; NLL {item["nll"]:.3f}, CRPS
{item["crps"]:.3f} on the other {item["new_rows"]:,}.
"""
    return "\n".join(lines) + "\n" + legend


def _line(item: dict[str, Any]) -> str:
    return (
        f"| {item['rows']:,} | {item['fit_seconds']:.0f} | {1000 * item['fit_seconds'] / item['rows']:.2f} "
        f"| {item['fit_cpu_seconds']:.0f} | {item['memory_gb']:.2f} | {item['crps']:.4f} "
        f"| {item['predict_seconds']:.1f} |"
    )


def plot(measured: list[dict[str, Any]]) -> None:
    """Draw seconds and memory against rows."""
    from matplotlib.figure import Figure

    rows = np.array([item["rows"] for item in measured])
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    panels = {"fit_seconds": "seconds to fit", "memory_gb": "peak memory, GB"}
    for axes, (key, label) in zip(figure.subplots(1, 2), panels.items(), strict=True):
        values = np.array([item[key] for item in measured])
        axes.loglog(rows, values, "o-", color="#0072b2")
        axes.loglog(rows, values[-1] * rows / rows[-1], ":", color="grey", label="in proportion to rows")
        axes.set(xlabel="rows", ylabel=label)
        axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(HERE / "scaling.png", dpi=110)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(sys.argv[2])))
    else:
        main(sys.argv[1:] or [*PROTEIN, *SIZES])
