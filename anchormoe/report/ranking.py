"""Which method is best on one dataset: ranks, paired tests against the best, and one sentence that says how sure it is.

Methods are ranked by CRPS, the score that every shape of prediction has honestly: an NLL may come from smoothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from anchormoe.report import statistics as stats
from anchormoe.report.cells import StoredRuns, Summary, summarise
from anchormoe.rows import Row

METRIC = "crps_y"
LEVEL = 0.05
MUCH_FASTER = 2.0
NEARLY_AS_GOOD = 0.1  # CRPS above the best one; with few splits even large differences are within noise
_COVERAGE, _COVERAGE_SLACK = 0.9, 0.06
SMOOTHED = ("quantile_forest",)  # methods whose older rows do not say that their density is smoothed


@dataclass(frozen=True)
class Line:
    """The scores of one method on the splits that are compared, and its rank among the others."""

    method: str
    rank: int | None  # None: it does not have all splits
    num_splits: int
    crps: Summary | None
    nll: Summary | None
    rmse: Summary | None
    coverage: float | None
    fit_seconds: float | None
    predict_seconds: float | None
    excess: float | None  # its CRPS above the best one, as a share of the best
    p_value: float | None  # of that difference, adjusted for the number of methods (Holm)
    density: str | None  # what the density behind the NLL is smoothed from
    failure: str | None = None

    @property
    def seconds(self) -> float:
        """Return the seconds to fit a split and to predict its test rows."""
        return (self.fit_seconds or 0.0) + (self.predict_seconds or 0.0)


@dataclass(frozen=True)
class Ranking:
    """Methods on the same splits of one dataset, the best first; those without all splits come last, unranked."""

    dataset: str
    splits: tuple[int, ...]
    lines: tuple[Line, ...]

    @property
    def ranked(self) -> list[Line]:
        return [line for line in self.lines if line.rank is not None]

    @property
    def best(self) -> Line | None:
        return next(iter(self.ranked), None)

    @property
    def table(self) -> pd.DataFrame:
        """Return the table as numbers, a row per method."""
        return pd.DataFrame([_as_row(line) for line in self.lines], index=range(len(self.lines)))

    @property
    def recommendation(self) -> str:
        """Return one sentence: the method to take, and how sure that is."""
        best = self.best
        if best is None:
            return "No method has finished a split, so none can be recommended."
        if len(self.ranked) == 1:
            return f"{best.method} is the only method with {_splits(self.splits)}: there is nothing to compare it with."
        parts = [self._lead(best, self.ranked[1])]
        faster = self._faster(best)
        if faster is not None:
            ratio = best.seconds / faster.seconds
            parts.append(f"{faster.method} is within noise and {ratio:.0f} times faster")
        if best.coverage is not None and abs(best.coverage - _COVERAGE) > _COVERAGE_SLACK:
            parts.append(f"its 90% intervals hold {best.coverage:.0%} of the targets")
        return "; ".join(parts) + "."

    def _lead(self, best: Line, following: Line) -> str:
        assert best.crps is not None
        assert following.crps is not None
        share = 1 - best.crps.mean / following.crps.mean if following.crps.mean > 0 else 0.0
        lead = f"{best.method}, CRPS {100 * share:.1f} % below the next, {following.method}"
        if following.p_value is None:
            return f"{lead}; a single split cannot say whether that is chance"
        alike = [line for line in self.ranked[1:] if line.p_value is not None and line.p_value >= LEVEL]
        if following.p_value < LEVEL:
            return f"{lead}, {p_text(following.p_value)}"
        others = f" and {len(alike) - 1} more" if len(alike) > 1 else ""
        return f"{lead}, but {_splits(self.splits)} do not tell it from that one{others} ({p_text(following.p_value)})"

    def _faster(self, best: Line) -> Line | None:
        """Return the fastest method that is nearly as good and not told from the best one, if it is much faster."""
        alike = [
            line
            for line in self.ranked[1:]
            if (line.p_value or 0) >= LEVEL and (line.excess or 0) <= NEARLY_AS_GOOD and line.seconds > 0
        ]
        fastest = min(alike, key=lambda line: line.seconds, default=None)
        return fastest if fastest is not None and best.seconds >= MUCH_FASTER * fastest.seconds else None


def rank_methods(
    rows: pd.DataFrame, dataset: str, *, splits: Iterable[int] | None = None, protocol: str = "clean", seed: int = 1
) -> Ranking:
    """Rank all methods that have rows of a dataset, on the same splits.

    splits: those to compare on; by default those of the method that has most.
    """
    own = rows[(rows["dataset"] == dataset) & (rows["protocol"] == protocol) & (rows["seed"] == seed)]
    finished = own[own["status"] == "ok"]
    values = _values_of(finished, dataset, protocol, seed)
    most: list[int] = max((list(found) for found in values.values()), key=len, default=[])
    wanted = tuple(sorted(most if splits is None else splits))
    values = {name: {split: one[split] for split in wanted if split in one} for name, one in values.items()}
    complete = [name for name, one in values.items() if len(one) == len(wanted) and wanted]
    means = {name: _mean(values[name], METRIC) for name in complete}
    order = sorted((name for name in complete if means[name] is not None), key=lambda name: means[name] or 0.0)
    p_values = _p_values(values, order)
    lines = [_line(name, values[name], place, means[order[0]], p_values) for place, name in enumerate(order, start=1)]
    failures = _failures(own[own["status"] != "ok"])
    rest = [name for name in dict.fromkeys([*values, *failures]) if name not in order]
    lines += [_line(name, values.get(name, {}), None, None, {}, failures.get(name)) for name in rest]
    return Ranking(dataset, wanted, tuple(lines))


def _values_of(rows: pd.DataFrame, dataset: str, protocol: str, seed: int) -> dict[str, dict[int, Row]]:
    """Return the rows of each method by split, all of one configuration."""
    stored = StoredRuns(rows.reset_index(drop=True))
    variant = str(rows["variant"].iloc[0]) if len(rows) and "variant" in rows else None
    found = {}
    for method in stored.methods:
        run = stored.choose(
            dataset=dataset, ablation="full", protocol=protocol, seed=seed, method=method, variant=variant
        )
        if run is not None:
            found[method] = run.by_split()
    return found


def _mean(rows: dict[int, Row], name: str) -> float | None:
    summary = _summary(rows, name)
    return None if summary is None else summary.mean


def _summary(rows: dict[int, Row], name: str) -> Summary | None:
    return summarise(row[name] for row in rows.values() if isinstance(row.get(name), int | float))


def _p_values(values: dict[str, dict[int, Row]], order: Sequence[str]) -> dict[str, float]:
    """Return the p-values of the differences from the best method, adjusted by Holm's procedure."""
    if len(order) < 2 or len(values[order[0]]) < 2:
        return {}
    best = values[order[0]].values()
    stated = [row["test_share"] for row in best if isinstance(row.get("test_share"), float)]
    shares = [share for share in stated if not math.isnan(share)]  # random splits do not state theirs
    share = sum(shares) / len(shares) if shares else stats.TEST_SHARE
    lowest = [row[METRIC] for row in best]
    raw = {
        name: stats.paired_test([row[METRIC] for row in values[name].values()], lowest, test_share=share).p_value
        for name in order[1:]
    }
    return holm(raw)


def holm(p_values: dict[str, float]) -> dict[str, float]:
    """Adjust p-values for their number (Holm, 1979): the k-th smallest of m is multiplied by m - k + 1."""
    adjusted, largest = {}, 0.0
    for place, (name, value) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        largest = max(largest, min(1.0, value * (len(p_values) - place)))
        adjusted[name] = largest
    return {name: adjusted[name] for name in p_values}


def _line(
    method: str,
    rows: dict[int, Row],
    rank: int | None,
    lowest: float | None,
    p_values: dict[str, float],
    failure: str | None = None,
) -> Line:
    crps = _summary(rows, METRIC)
    excess = crps.mean / lowest - 1 if crps is not None and lowest and rank is not None else None
    notes = [row.get("density") for row in rows.values()]
    density = next((note for note in notes if isinstance(note, str)), "smoothed" if method in SMOOTHED else None)
    return Line(
        method,
        rank,
        len(rows),
        crps,
        _summary(rows, "nll_y"),
        _summary(rows, "rmse_y"),
        _mean(rows, "coverage_90"),
        _mean(rows, "fit_seconds"),
        _mean(rows, "predict_seconds"),
        excess,
        p_values.get(method),
        density,
        failure,
    )


def _failures(rows: pd.DataFrame) -> dict[str, str]:
    """Return the first reason of each method that failed."""
    if "error" not in rows:
        return {}
    return {str(method): str(group["error"].iloc[0]) for method, group in rows.groupby("method", sort=False)}


def _as_row(line: Line) -> dict[str, object]:
    def parts(name: str, summary: Summary | None) -> dict[str, float | None]:
        return {name: summary.mean if summary else None, f"{name}_se": summary.se if summary else None}

    return {
        "rank": line.rank,
        "method": line.method,
        "splits": line.num_splits,
        **parts("crps_y", line.crps),
        "above_best": line.excess,
        "p_value": line.p_value,
        **parts("nll_y", line.nll),
        **parts("rmse_y", line.rmse),
        "coverage_90": line.coverage,
        "fit_seconds": line.fit_seconds,
        "predict_seconds": line.predict_seconds,
        "density": line.density,
        "failure": line.failure,
    }


def p_text(p_value: float) -> str:
    """Write a p-value."""
    if p_value < 0.001:
        return "p < 0.001"
    return f"p = {p_value:.3f}" if p_value < 0.01 else f"p = {p_value:.2f}"


def _splits(splits: Sequence[int]) -> str:
    return "1 split" if len(splits) == 1 else f"{len(splits)} splits"


def average_ranks(rankings: Sequence[Ranking]) -> dict[str, float]:
    """Return the average rank of each method that is ranked on every dataset, the best first."""
    ranks = [{line.method: line.rank for line in ranking.ranked} for ranking in rankings]
    common = [name for name in ranks[0] if all(name in one for one in ranks)] if ranks else []
    average = {name: math.fsum(one[name] or 0 for one in ranks) / len(ranks) for name in common}
    return dict(sorted(average.items(), key=lambda item: item[1]))
