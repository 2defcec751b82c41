"""The methods a run can name. Each is a function (config, dataset, split, inner_seed) -> Outcome."""

from __future__ import annotations

from typing import Protocol

from anchormoe import recipe
from anchormoe.config import Config
from anchormoe.data import Dataset
from anchormoe.methods import rff_krr
from anchormoe.metrics import Outcome
from anchormoe.splits import Split


class Method(Protocol):
    def __call__(self, config: Config, dataset: Dataset, split: Split, *, inner_seed: int) -> Outcome:
        """Fit on the split's training rows, predict its test rows."""


METHODS: dict[str, Method] = {
    "anchormoe": recipe.fit_predict,
    "rff_krr": rff_krr.fit_predict,
}
