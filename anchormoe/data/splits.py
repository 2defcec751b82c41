"""Splits of the rows to train, select, calibrate and test: index arrays from the published splits' random streams."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from enum import Enum

import numpy as np

from anchormoe.errors import UserError

TRAIN_FRACTION = 0.9
NUM_SPLITS = 20
MIN_GROUPS = 5


class Scheme(Enum):
    """How outer splits are cut."""

    random = "random"  # 90% of the rows, drawn at random
    groups = "groups"  # about 90% of the rows: whole groups, drawn at random
    time = "time"  # all earlier rows, and the next block of rows for the test


def subsample(num_rows: int, size: int, seed: int) -> np.ndarray:
    """Draw the rows kept of a large dataset, once, before the outer splits; in the order drawn."""
    return np.random.RandomState(seed).choice(num_rows, size, replace=False)


@dataclass(frozen=True)
class OuterSplit:
    """An outer split; numbers count from 1.

    By the random scheme it is the `number`-th random permutation of a stream, cut at 90%. Whole groups are drawn from
    the `number`-th permutation of the groups instead, until they have about 10% of the rows. By time, the later half of
    the rows is cut into 20 blocks; split n tests on the n-th block and trains on all rows before it.
    """

    number: int
    seed: int
    subsampled_from: int | None = None  # the stream has already drawn the subsample out of this many rows
    scheme: Scheme = Scheme.random

    def rows(self, num_rows: int, key: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the training rows and the test rows; `key` has the group or the time of each row."""
        if self.scheme is Scheme.time:
            assert key is not None
            return self._rows_by_time(key)
        stream = np.random.RandomState(self.seed)
        if self.subsampled_from is not None:  # a quirk of one published run
            stream.choice(self.subsampled_from, num_rows, replace=False)
        if self.scheme is Scheme.groups:
            assert key is not None
            return self._rows_by_group(key, stream)
        for _ in range(self.number):
            permutation = stream.permutation(num_rows)
        cut = round(TRAIN_FRACTION * num_rows)
        return permutation[:cut], permutation[cut:]

    def first_tested(self, num_rows: int, key: np.ndarray | None = None) -> np.ndarray:
        """Return for each test row whether no earlier split tests it.

        Test rows of random splits overlap. Such rows, collected from split 1 on, are all different, which a test of
        independent values asks for.
        """
        _, test = self.rows(num_rows, key)
        earlier = [dataclasses.replace(self, number=number).rows(num_rows, key)[1] for number in range(1, self.number)]
        return ~np.isin(test, np.concatenate([test[:0], *earlier]))

    def _rows_by_group(self, key: np.ndarray, stream: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
        _, group, size = np.unique(key, return_inverse=True, return_counts=True)
        if len(size) < MIN_GROUPS:
            raise UserError(f"groups must name a column with at least {MIN_GROUPS} groups, received {len(size)}")
        for _ in range(self.number):
            groups, permutation = stream.permutation(len(size)), stream.permutation(len(key))
        wanted = (1 - TRAIN_FRACTION) * len(key)
        num_test = 1 + int(np.argmin(np.abs(np.cumsum(size[groups]) - wanted)[: len(size) - 1]))
        in_test = np.isin(group, groups[:num_test])[permutation]
        return permutation[~in_test], permutation[in_test]

    def _rows_by_time(self, key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        order = np.argsort(key, kind="stable")
        cuts = [round(len(key) * (NUM_SPLITS + self.number - 1 + later) / (2 * NUM_SPLITS)) for later in (0, 1)]
        ordered = np.append(key[order], np.inf)
        # Rows of one moment are on one side: those that share it with the first row of a block belong to the block.
        start, stop = (int(np.searchsorted(ordered, ordered[cut])) for cut in cuts)
        if not 0 < start < stop:
            raise UserError(
                f"time must name a column whose later half has at least {NUM_SPLITS} different moments, received fewer "
                f"(no rows for the test of split {self.number})"
            )
        return order[:start], order[start:stop]


def share_of_test(train: np.ndarray, test: np.ndarray) -> float:
    """Return the share of a split's rows that it tests on, which the paired test corrects for."""
    return len(test) / (len(train) + len(test))


@dataclass(frozen=True)
class InnerSplit:
    """An inner split: positions among the training rows; TV is TR and VA together, in the order they were drawn."""

    tr: np.ndarray
    va: np.ndarray
    tv: np.ndarray
    cal: np.ndarray


def inner_split(num_rows: int, seed: int, *, calibration_fraction: float, validation_fraction: float) -> InnerSplit:
    """Cut CAL off the training rows (none if the fraction is 0), then VA off the rest."""
    rows = np.arange(num_rows)
    tv, cal = rows, rows[:0]
    if calibration_fraction > 0:
        tv, cal = _cut(rows, calibration_fraction, seed)
    tr, va = _cut(tv, validation_fraction, seed)
    return InnerSplit(tr=tr, va=va, tv=tv, cal=cal)


def _cut(rows: np.ndarray, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return kept and held-out rows as scikit-learn's train_test_split draws them, without its second of imports."""
    order = np.random.RandomState(seed).permutation(len(rows))
    held_out = math.ceil(fraction * len(rows))
    return rows[order[held_out:]], rows[order[:held_out]]
