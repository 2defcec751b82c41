"""Settings by the number of rows, so that the time of a fit grows no faster than they do.

Up to 50,000 rows nothing changes. Above, by the ratio r = rows / 50,000:

- mini-batches have sqrt(r) times as many rows, and there are 1 / sqrt(r) times as many epochs, at least 10;
- XGBoost's histograms, with large steps, take the place of all trees in the stack: the time of exact trees grows with
  rows * columns * stages;
- the ridge and kernel regressions of the stack learn from 50,000 rows (QuadraticRidge and KernelMachine do so
  themselves): they have too few parameters to gain from more.
"""

from __future__ import annotations

import dataclasses
import math

from anchormoe.config.presets import RecipePreset
from anchormoe.model.settings import AnchorKind, AnchorSettings, TrainingSettings

LARGE_ROWS = 50_000
LEAST_EPOCHS = 10
HISTOGRAM_TREES = {
    "kind": AnchorKind.xgboost.value,
    "stages": 400,
    "params": {"eta": 0.15, "max_depth": 6, "subsample": 0.8, "colsample_bytree": 0.8, "early_stopping_rounds": 10},
}


def at_size(preset: RecipePreset, num_rows: int) -> RecipePreset:
    """Return a cross-fitted preset for a table of `num_rows` rows."""
    if num_rows <= LARGE_ROWS:
        return preset
    train = _training(preset.train, math.sqrt(num_rows / LARGE_ROWS))
    return dataclasses.replace(preset, anchor=_anchor(preset.anchor), train=train)


def _training(train: TrainingSettings, root: float) -> TrainingSettings:
    epochs = max(LEAST_EPOCHS, round(train.epochs / root))
    return dataclasses.replace(
        train,
        epochs=epochs,
        batch_size=None if train.batch_size is None else round(train.batch_size * root),
        patience=None if train.patience is None else max(3, round(train.patience / root)),
    )


def _anchor(anchor: AnchorSettings) -> AnchorSettings:
    if anchor.kind is not AnchorKind.stack:
        return anchor
    trees = (AnchorKind.trees.value, AnchorKind.xgboost.value)
    others = {name: member for name, member in anchor.members.items() if member["kind"] not in trees}
    return dataclasses.replace(anchor, members={"xgboost": HISTOGRAM_TREES, **others})
