"""Compare settings without reading a test row: the training rows of split 1 are split 90/10 again, several times.

    python scripts/choose_settings.py yacht,boston 3 "method=anchormoe_crossfit" "method=mdn"

Each further argument is one setting: overrides as on the command line of anchormoe-bench. Settings that have fits in
common, such as calibrations of the same networks, make them once.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator

import numpy as np
import pandas as pd

from anchormoe import methods
from anchormoe.commands.run import parse
from anchormoe.config.schema import Config
from anchormoe.distributions.scores import scores
from anchormoe.model.kernels.clock import clock
from anchormoe.model.sharing import shared_fits
from anchormoe.running.evaluate import load_dataset
from anchormoe.running.tasks import make_task
from anchormoe.running.threads import keep_freed_memory, one_thread


def development_scores(config: Config, repeats: int) -> Iterator[dict[str, float]]:
    """Yield the scores of rows held out of the training rows of split 1."""
    first = make_task(config, 1)
    dataset = load_dataset(first)
    train, _ = first.split.rows(len(dataset.y))
    for number in range(1, repeats + 1):
        order = np.random.default_rng([number, len(train)]).permutation(train)
        held_out, kept = np.split(order, [round(0.1 * len(train))])
        task = make_task(config, number)
        start = clock()
        regressor = methods.make(task.method, task.arguments).fit(dataset.X[kept], dataset.y[kept])
        seconds = getattr(regressor, "fit_seconds_", regressor.diagnostics_.get("fit_seconds", clock() - start))
        yield {
            **scores(regressor.predict_dist(dataset.X[held_out]), dataset.y[held_out], dataset.step),
            "seconds": seconds,
        }


def main(names: str, repeats: str, *settings: str) -> None:
    """Print a line for every dataset and setting."""
    for name in names.split(","):
        for setting in settings:
            (job,) = parse([f"dataset={name}", "protocol=clean", *setting.split()])
            mean = pd.DataFrame(development_scores(job.config(), int(repeats))).mean()
            text = "  ".join(
                f"{key} {mean[key]:.4g}" for key in ("nll_cell_y", "crps_y", "rmse_y", "coverage_90", "seconds")
            )
            print(f"{name:9} {text}  | {setting}", flush=True)


if __name__ == "__main__":
    with one_thread(), tempfile.TemporaryDirectory() as folder, shared_fits(folder):
        keep_freed_memory()
        main(*sys.argv[1:])
