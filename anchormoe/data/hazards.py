"""Hazards: properties of a dataset that can mislead a benchmark, computed from the data itself."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from anchormoe.data.catalogue import DatasetInfo
from anchormoe.data.dataset import Dataset
from anchormoe.data.resolution import repeated_share

_MANY = 0.5  # a share of repeated target values above this is a hazard


@dataclass(frozen=True)
class Hazards:
    repeated_rows: int  # exact repeats (features and target) of an earlier row: a split can put twins on both sides
    target_step: float  # of the recorded values, 0 if none: a density with spikes there can reach any likelihood
    repeated_targets: float  # share of rows whose target value another row has too
    targets: tuple[str, ...]  # all targets in the file: the others must not leak in as features unnoticed
    target_features: tuple[str, ...]  # other targets that this variant does use as inputs

    def describe(self) -> list[str]:
        """Return one short phrase per hazard; the list is empty if there is none."""
        phrases = []
        if self.repeated_rows:
            phrases.append(f"{self.repeated_rows} repeated rows")
        if self.target_step and self.repeated_targets > _MANY:
            phrases += [f"target step {self.target_step:g}", f"{self.repeated_targets:.0%} share a target"]
        if len(self.targets) > 1:
            phrases.append(f"{len(self.targets)} targets in file")
        if self.target_features:
            phrases.append(f"other target as input: {', '.join(self.target_features)}")
        return phrases


def find_hazards(info: DatasetInfo, dataset: Dataset) -> Hazards:
    """Find the hazards of the loaded variant of a dataset."""
    rows = pd.DataFrame(np.column_stack([dataset.X, dataset.y]))
    return Hazards(
        repeated_rows=int(rows.duplicated().sum()),
        target_step=dataset.step,
        repeated_targets=repeated_share(dataset.y),
        targets=info.targets,
        target_features=tuple(name for name in dataset.feature_names if name in info.targets),
    )
