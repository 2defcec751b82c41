"""Which rows a figure or a report is about: the paper's benchmark, or whatever a folder of the user's holds."""

from __future__ import annotations

from dataclasses import dataclass, field

import pandas as pd

from anchormoe.config.schema import RANKING_EXPERIMENT, STOCK_EXPERIMENTS, TABLE_EXPERIMENTS
from anchormoe.errors import UserError
from anchormoe.report import published
from anchormoe.report.cells import finished
from anchormoe.report.comparison import Comparison


@dataclass(frozen=True)
class Selection:
    """Stored rows and the comparison they allow; `paper` says whether they are about the published numbers."""

    rows: pd.DataFrame
    paper: bool
    protocol: str
    seed: int
    compared: Comparison
    theory: pd.DataFrame = field(default_factory=pd.DataFrame)  # finished rows of simulations

    @property
    def table_rows(self) -> pd.DataFrame:
        """Return the rows behind the paper's tables."""
        return self.rows[self.rows["experiment"].isin(TABLE_EXPERIMENTS)].reset_index(drop=True)

    @property
    def ingredient_rows(self) -> pd.DataFrame:
        """Return the rows of every step from the published recipe to the cross-fitted one."""
        return self.rows[self.rows["experiment"].isin(STOCK_EXPERIMENTS)].reset_index(drop=True)


def select(rows: pd.DataFrame, theory: pd.DataFrame | None = None) -> Selection:
    """Find out what rows are about.

    They are about the paper if they hold runs of protocol=published from the experiments behind its tables. Otherwise
    methods are compared by the protocol, the seed and the number of splits that most rows have. Rows of the theory's
    simulations are kept apart from those of splits.
    """
    good = finished(rows)
    simulated = pd.DataFrame() if theory is None else theory
    if good.empty:
        raise UserError("a report must have finished rows, received none; run a sweep first")
    behind_tables = good["experiment"].isin(TABLE_EXPERIMENTS)
    paper = bool((behind_tables & (good["protocol"] == "published") & good["dataset"].isin(published.DATASETS)).any())
    if paper:
        compared = Comparison(good[behind_tables | (good["experiment"] == RANKING_EXPERIMENT)])
        return Selection(good, True, "clean", 1, compared, simulated)
    protocol, seed = (good[name].mode().iloc[0] for name in ("protocol", "seed"))
    chosen = good[(good["protocol"] == protocol) & (good["seed"] == seed)]
    num_splits = int(chosen.groupby(["dataset", "method"])["split"].nunique().max())
    datasets = [str(name) for name in chosen["dataset"].unique()]
    compared = Comparison(good, seed=int(seed), datasets=datasets, protocol=str(protocol), num_splits=num_splits)
    return Selection(good, False, str(protocol), int(seed), compared, simulated)
