"""Compare settings without a look at a test row: the training rows of split 1 are split 90/10 again, several times.

    python scripts/choose_settings.py yacht,boston 3 "model=crossfit" "model=crossfit model.dropout=0.1" "method=mdn"

Each further argument is one setting: overrides as on the command line of anchormoe-bench.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import pandas as pd
from anchormoe.run.runner import keep_freed_memory, load_dataset, make_split, one_thread

from anchormoe.commands.run import parse
from anchormoe.config.schema import Config
from anchormoe.data.dataset import Dataset
from anchormoe.data.splits import Split, inner_split
from anchormoe.distributions.scores import scores
from anchormoe.methods import fit_predict


def development_splits(config: Config, dataset: Dataset, repeats: int) -> Iterator[Split]:
    train = make_split(config, len(dataset.y), 1).train
    for number in range(1, repeats + 1):
        order = np.random.default_rng([number, len(train)]).permutation(train)
        held_out = round(0.1 * len(train))
        rules = config.rules
        yield inner_split(
            number,
            order[held_out:],
            order[:held_out],
            number,
            calibration_fraction=rules.calibration_fraction,
            validation_fraction=rules.validation_fraction,
        )


def main(names: str, repeats: str, *settings: str) -> None:
    for name in names.split(","):
        for setting in settings:
            (job,) = parse([f"dataset={name}", "protocol=clean", *setting.split()])
            config = job.config()
            dataset = load_dataset(config)
            rows = []
            for split in development_splits(config, dataset, int(repeats)):
                outcome = fit_predict(config, dataset, split, inner_seed=split.number)
                rows.append({**scores(outcome, dataset.y[split.test]), "seconds": outcome.fit_seconds})
            mean = pd.DataFrame(rows).mean()
            text = "  ".join(
                f"{key} {mean[key]:.4g}" for key in ("nll_y", "crps_y", "rmse_y", "coverage_90", "seconds")
            )
            print(f"{name:9} {text}  | {setting}", flush=True)


if __name__ == "__main__":
    with one_thread():
        keep_freed_memory()
        main(*sys.argv[1:])
