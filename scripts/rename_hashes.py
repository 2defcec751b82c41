"""Give stored rows of the stock experiments the configuration hash that their configuration has now.

    python scripts/rename_hashes.py [--write]

Rows are matched by everything else that names them: dataset, method, ablation, protocol, anchor, seed and preset.
Only the hash is changed. This is needed after a change of what a hash covers, such as a setting that moved.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from anchormoe.commands.run import parse
from anchormoe.config.schema import STOCK_EXPERIMENTS
from anchormoe.running.identity import row_identity

RESULTS = Path(__file__).resolve().parent.parent / "results"
NAMES = ("dataset", "method", "ablation", "protocol", "anchor", "seed", "model")


def current_hashes(experiment: str, seeds: set[int]) -> dict[tuple[object, ...], str]:
    """Return the hash of every configuration of an experiment, by its names."""
    found = {}
    for seed in seeds:
        for job in parse([f"experiment={experiment}", f"seed={seed}"]):
            config = job.config()
            identity = {**row_identity(config, 1), "model": config.model.name}
            found[tuple(identity[name] for name in NAMES)] = identity["config_hash"]
    return found


def main(write: bool) -> None:
    """Print how many rows of each file have another hash now; rename them if asked to."""
    for experiment in STOCK_EXPERIMENTS:
        files = {path: path.read_text().splitlines() for path in sorted((RESULTS / experiment).glob("*.jsonl"))}
        rows = [json.loads(line) for lines in files.values() for line in lines]
        hashes = current_hashes(experiment, {row["seed"] for row in rows})
        for path, lines in files.items():
            renamed = []
            for line in lines:
                row = json.loads(line)
                # Rows without the name of a preset are of `published`.
                key = tuple(row.get(name, "published") for name in NAMES)
                old, new = row["config_hash"], hashes.get(key, row["config_hash"])
                renamed.append(line.replace(f'"config_hash": "{old}"', f'"config_hash": "{new}"'))
            changed = sum(before != after for before, after in zip(lines, renamed, strict=True))
            if changed:
                print(f"{path.relative_to(RESULTS)}: {changed} of {len(lines)} rows")
                if write:
                    path.write_text("".join(f"{line}\n" for line in renamed))


if __name__ == "__main__":
    main(write="--write" in sys.argv)
