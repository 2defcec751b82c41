"""Scores of central intervals at several levels, for all test rows and for those of a part of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from anchormoe.distributions.base import Distribution

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
CONDITIONAL_LEVEL = 0.9
NUM_PARTS = 10  # deciles of the width
NUM_DIRECTIONS, LEAST_SHARE = 200, 0.2  # of slabs


def interval_scores(distribution: Distribution, X: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Return coverage, mean width and mean interval score of each level by its percentage, and conditional coverage.

    A level that the distribution refuses is left out. The interval score (Gneiting and Raftery, 2007) is the width plus
    2 / (1 - c) times the distance of a target outside. `deciles` are [covered, rows] of each tenth of the rows in the
    order of the width of their 90% interval, `worst_slab` is the coverage of `worst_slab_coverage`.
    """
    scores: dict[str, Any] = {}
    for level in LEVELS:
        try:
            low, high = distribution.interval(level).T
        except ValueError:  # a conformal distribution refuses what its rows do not support
            continue
        below, above = np.maximum(low - y, 0), np.maximum(y - high, 0)
        inside = (y >= low) & (y <= high)
        scores[f"{100 * level:.0f}"] = {
            "coverage": float(inside.mean()),
            "width": float((high - low).mean()),
            "score": float((high - low + 2 / (1 - level) * (below + above)).mean()),
        }
        if level == CONDITIONAL_LEVEL:
            parts = np.array_split(np.argsort(high - low, kind="stable"), NUM_PARTS)
            scores["deciles"] = [[int(inside[part].sum()), len(part)] for part in parts]
            scores["worst_slab"] = worst_slab_coverage(X, inside)
    return scores


def worst_slab_coverage(X: np.ndarray, inside: np.ndarray, seed: int = 0) -> float:
    """Return the coverage within the slab a <= v x <= b that is covered worst (Cauchois, Gupta and Duchi, 2021).

    Directions v are drawn at random, and a slab holds at least a fifth of the rows. The slab is found on one half of
    the rows and judged on the other: the worst of many slabs looks bad by chance alone.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(X))
    half = len(X) // 2
    search, judge = order[:half], order[half:]
    spread = X.std(0)
    columns = ((X - X.mean(0)) / np.where(spread > 0, spread, 1.0))[:, spread > 0]
    worst, coverage = np.inf, float(inside[judge].mean())
    for direction in rng.standard_normal((NUM_DIRECTIONS, columns.shape[1])):
        place = columns @ direction
        bounds = np.quantile(place[search], np.linspace(0, 1, 21))
        bounds[0], bounds[-1] = -np.inf, np.inf
        cell = np.searchsorted(bounds[1:-1], place, side="right")
        covered, rows = (np.bincount(cell[search], weights, 20).cumsum() for weights in (inside[search], None))
        covered, rows = np.append(0, covered), np.append(0, rows)
        counts, hits = rows[None, :] - rows[:, None], covered[None, :] - covered[:, None]  # from a cell up to another
        shares = np.where(counts >= LEAST_SHARE * half, hits / np.maximum(counts, 1), np.inf)
        first, last = np.unravel_index(int(shares.argmin()), shares.shape)
        held = judge[(cell[judge] >= first) & (cell[judge] < last)]
        if shares[first, last] < worst and len(held) > 0:
            worst, coverage = float(shares[first, last]), float(inside[held].mean())
    return coverage
