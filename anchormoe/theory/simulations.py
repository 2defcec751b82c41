"""Simulations as tasks: one cell of a study with all its replicates, and its row."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anchormoe.rows import SIMULATION, Row
from anchormoe.running.evaluate import completed_row
from anchormoe.theory import experts, fixed, gap, link, trained

# study -> function of settings, replicates and seed that returns the measured columns, lists of one value per replicate
MEASURES: dict[str, Callable[[dict[str, Any], int, int], Row]] = {
    "rates": fixed.risk,
    "lemmas": fixed.lemma,
    "manifold": fixed.risk,
    "sparse": fixed.risk,
    "selection": fixed.selection,
    "change_of_variables": fixed.risk,
    "trained": trained.risk,
    "gap": gap.gap,
    "link": link.link,
    "experts": experts.scores,
}


@dataclass(frozen=True)
class Simulation:
    """One cell of a study. It holds all that is needed and can be sent to another process or machine."""

    study: str
    settings: dict[str, Any]
    replicates: int
    seed: int
    seconds: float  # a guess

    @property
    def labels(self) -> Row:
        """Return the labels of the row: its identity, and the settings as columns."""
        settings = self.settings
        content = json.dumps([self.study, settings, self.replicates, self.seed], sort_keys=True)
        return {
            "kind": SIMULATION,
            "dataset": f"{self.study}: {settings['data']}",
            "method": settings["object"],
            "ablation": settings["rule"],
            "protocol": SIMULATION,
            "anchor": settings.get("anchor", "none"),
            "seed": self.seed,
            "split": 1,  # all replicates are one row
            "config_hash": hashlib.sha256(content.encode()).hexdigest()[:16],
            "study": self.study,
            **{name: value for name, value in settings.items() if name not in ("data", "anchor")},
        }

    def guess_seconds(self) -> float:
        """Return the guess of the plan."""
        return self.seconds


def evaluate(simulation: Simulation) -> Row:
    """Compute the row of a simulation."""
    return completed_row(simulation.labels, functools.partial(_measure, simulation))


def _measure(simulation: Simulation, row: Row) -> Row:
    from anchormoe.model.kernels.clock import clock

    start = clock()
    measured = MEASURES[simulation.study](simulation.settings, simulation.replicates, simulation.seed)
    return {**measured, "replicates": simulation.replicates, "fit_seconds": round(clock() - start, 3)}
