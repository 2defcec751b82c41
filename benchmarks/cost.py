"""Measure the cost of a split of the fast preset beside that of NGBoost, on one core, in one run.

    make bench-cost                                 writes benchmarks/cost.md
    .venv/bin/python benchmarks/cost.py yacht wine  measures some datasets again and leaves the others' lines

NGBoost is run as in its paper (stages chosen on held-out rows, then a refit), once with the ngboost library's own trees
and once with those of method=ngboost. The number of stages it needs differs by a factor of two between splits of small
datasets, so these are measured on several splits. Only ratios can be compared between machines.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

from anchormoe.commands.run import parse
from anchormoe.running.evaluate import evaluate
from anchormoe.running.tasks import make_task
from anchormoe.running.threads import keep_freed_memory, one_thread

HERE = Path(__file__).parent
SPLITS = {
    "yacht": 5,
    "boston": 5,
    "energy": 5,
    "concrete": 5,
    "wine": 5,
    "power": 1,
    "kin8nm": 1,
    "protein": 1,
    "naval": 1,
}
LEGEND = """
Time to fit a split of `protocol=clean`, mean over the first few; a line is measured on one core in one run.

- *fast*: `method=anchormoe_fast`.
- *NGBoost*: `method=ngboost`, stages chosen on 20% of the rows, then a refit on all.
- *own trees*: with scikit-learn's trees, as the ngboost library comes. Otherwise the same trees on columns sorted once.
"""
RUNS = {
    "fast": ["method=anchormoe_fast"],
    "NGBoost, own trees": ["method=ngboost", "anchor=none", "method.params.own_trees=true"],
    "NGBoost": ["method=ngboost", "anchor=none"],
}


def main(names: list[str]) -> None:
    console = Console()
    with one_thread():
        keep_freed_memory()
        for run in RUNS:
            fit_seconds("yacht", run, 1)  # compiles
        for name in names:
            splits = range(1, SPLITS[name] + 1)
            seconds = {run: sum(fit_seconds(name, run, split) for split in splits) / len(splits) for run in RUNS}
            console.print(name, seconds)
            write(name, seconds)


def fit_seconds(name: str, run: str, split: int) -> float:
    (job,) = parse([f"dataset={name}", "protocol=clean", *RUNS[run]])
    return evaluate(make_task(job.config(), split))["fit_seconds"]


def write(name: str, seconds: dict[str, float]) -> None:
    """Write the line of one dataset immediately, so that a run that is stopped keeps what it has measured."""
    table = HERE / "cost.md"
    lines = {line.split()[1]: line for line in table.read_text().splitlines() if line.startswith("| ")}
    ours, own, quick = (seconds[run] for run in RUNS)
    measured = f"{ours:.1f} | {own:.1f} | {quick:.1f} | **{own / ours:.2f}** | {quick / ours:.2f}"
    lines[name] = f"| {name} | {SPLITS[name]} | {measured} |"
    head = f"| dataset | splits | {', s | '.join(RUNS)}, s | own trees / fast | NGBoost / fast |"
    rule = "|---" + "|---:" * (head.count("|") - 2) + "|"
    table.write_text("\n".join([head, rule, *(lines[name] for name in SPLITS if name in lines)]) + "\n" + LEGEND)


if __name__ == "__main__":
    main(sys.argv[1:] or list(SPLITS))
