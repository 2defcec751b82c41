"""Fit what the figures show and store it under results/figure_data: scripts/figure_data.py [DATASET | TOY ...]

Without names all of it is computed, in about a quarter of an hour on one core. `interval`, `field` and `dynamics` are
the paper's toy figures.
"""

import sys

from anchormoe.model import toy
from anchormoe.report import figure_data, published
from anchormoe.running.figure_data import compute

TOYS = {"interval": toy.interval_figure, "field": toy.field_figure, "dynamics": toy.dynamics_figure}


def main(names: list[str]) -> None:
    for name in names:
        arrays = TOYS[name]() if name in TOYS else compute(name)
        print(f"wrote {figure_data.save(name, arrays)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or [*TOYS, *published.DATASETS])
