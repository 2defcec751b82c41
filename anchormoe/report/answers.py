"""The answers a report opens with: three sentences, computed from stored rows."""

from __future__ import annotations

from dataclasses import dataclass

from anchormoe.config.schema import ABLATIONS
from anchormoe.distributions.scores import METRICS
from anchormoe.report import published
from anchormoe.report.cells import StoredRuns
from anchormoe.report.check import EXCEPTION, PASS, check
from anchormoe.report.comparison import Comparison, heading
from anchormoe.report.ranking import METRIC, rank_methods
from anchormoe.report.selection import Selection
from anchormoe.report.statistics import paired_test


@dataclass(frozen=True)
class Answer:
    """A short heading and one sentence."""

    title: str
    text: str


def answers(selection: Selection) -> list[Answer]:
    """Return up to three answers: about the paper if the rows are, else about the methods that were run."""
    if not selection.paper:
        return _own(selection)
    about_the_paper = [_what_reproduces(selection), _what_does_not(selection)]
    ranks = _average_ranks(selection.compared, METRIC)  # none before a method has all splits of the comparison
    return [*about_the_paper, _what_to_try(selection, next(iter(ranks)))] if ranks else about_the_paper


def _what_reproduces(selection: Selection) -> Answer:
    report = check(selection.table_rows)
    passed, excepted, total = report.count(PASS), report.count(EXCEPTION), len(report.cells)
    text = f"{passed} of {total} published means agree with ours, as far as 20 splits can tell"
    if excepted:
        where = sorted(
            {f"{cell.dataset.capitalize()}, {cell.ablation}" for cell in report.cells if cell.verdict == EXCEPTION}
        )
        text += f"; {excepted} cannot be repeated, because their run ({'; '.join(where)}) used rows that are not public"
    rest = total - passed - excepted
    return Answer("The numbers reproduce", f"{text}; {rest} are off or missing." if rest else f"{text}.")


def _what_does_not(selection: Selection) -> Answer:
    differences = [pair for name, pair in published.unit_differences().items() if name != "kin8nm"]
    printed, converted = (sum(pair[k] < 0 for pair in differences) for k in (0, 1))
    ranks = _average_ranks(selection.compared, "nll_y")
    place = list(ranks).index("anchormoe") + 1 if "anchormoe" in ranks else None
    runs = StoredRuns(selection.table_rows)
    worse = {name: sum(_is_worse(runs, dataset, name) for dataset in published.DATASETS) for name in ABLATIONS[1:]}
    text = (
        "The paper ranks its NLL of a z-scored target beside other methods' NLL in original units: in one unit it "
        "leads NGBoost on "
        f"{converted} of {len(differences)} datasets, not {printed}"
    )
    if place is not None:
        text += f", and on the same splits its recipe is number {place} of {len(ranks)} methods by NLL"
    text += f". Removing the anchor makes the RMSE worse on {worse['no_anchor']} of 9 datasets, removing the router on "
    text += f"{worse['no_router'] or 'none'}."
    return Answer("The conclusions do not all hold", text)


def _what_to_try(selection: Selection, leader: str) -> Answer:
    compared = selection.compared
    ranks = {metric.label: _average_ranks(compared, metric.name).get(leader) for metric in compared.ranked()}
    shown = ", ".join(f"{label} {rank:.1f}" for label, rank in ranks.items() if rank is not None)
    count = len(compared.means("crps_y").columns)
    nll = compared.means("nll_y")
    gains = (nll["anchormoe"] - nll[leader]) if {"anchormoe", leader} <= set(nll) else None
    text = f"{heading(leader)} has the best average rank of {count} methods on the same splits ({shown})"
    if leader in ("anchormoe_best", "anchormoe_crossfit", "anchormoe_fast"):
        text += ". It is this project's form of the paper's model, with all parts fitted out of fold"
    if gains is not None and leader != "anchormoe":
        text += (
            f"; its NLL is below the published recipe's on {int((gains > 0).sum())} of {len(gains)} datasets, in the "
            f"median by {float(gains.median()):.2f} nats"
        )
    coverage = compared.means("coverage_90")
    if leader in coverage:
        text += f", and its 90% intervals hold {coverage[leader].mean():.0%} of the targets"
    return Answer("Try this first", f"{text}.")


def _own(selection: Selection) -> list[Answer]:
    """Return what the rows of a folder say: the leader, how sure that is, and what it costs."""
    compared = selection.compared
    # The CRPS first: an NLL may come from a smoothed density.
    names = sorted((one.name for one in compared.ranked()), key=lambda name: name != METRIC)
    metric = next((name for name in names if compared.means(name).shape[1]), None)
    datasets = f"{len(compared.datasets)} dataset{'' if len(compared.datasets) == 1 else 's'}"
    if metric is None:
        methods = ", ".join(heading(name) for name in compared.methods) or "no method"
        return [
            Answer(
                "What was run",
                f"{methods} on {datasets}; no method has all splits of all datasets yet, so none is ranked.",
            )
        ]
    ranks = _average_ranks(compared, metric)
    leader, *others = ranks
    label = METRICS[metric].label
    where = "the lowest mean" if len(compared.datasets) == 1 else f"the best average rank ({ranks[leader]:.1f})"
    found = [
        Answer(
            "Try this first",
            f"{heading(leader)} has {where} by {label} of {len(ranks)} method{'' if len(ranks) == 1 else 's'} on "
            f"{datasets}, "
            f"{compared.num_splits} splits each.",
        )
    ]
    if len(compared.datasets) == 1 and metric == METRIC:
        found = [Answer("Try this first", _recommendation(selection))]
    elif others:
        sure = [name for name in compared.datasets if _told_apart(compared, metric, leader, others[0], name)]
        found.append(
            Answer(
                "How sure that is",
                f"The runner-up is {heading(others[0])}; a paired test on the same splits finds the leader better "
                f"on {len(sure)} of "
                f"{datasets} (5%).",
            )
        )
    coverage, seconds = compared.means("coverage_90"), compared.means("fit_seconds")
    facts = []
    if leader in coverage:
        facts.append(f"its 90% intervals hold {coverage[leader].mean():.0%} of the targets")
    if leader in seconds:
        facts.append(f"it takes {seconds[leader].mean():.2g} s to fit a split")
    if facts:
        found.append(Answer("What it costs and covers", " and ".join(facts).capitalize() + "."))
    return found


def _recommendation(selection: Selection) -> str:
    """Return what `anchormoe-bench rank` says of the one dataset."""
    (dataset,) = selection.compared.datasets
    return rank_methods(selection.rows, dataset, protocol=selection.protocol, seed=selection.seed).recommendation


def _average_ranks(compared: Comparison, metric: str) -> dict[str, float]:
    """Return the average rank of every complete method, the best first."""
    ranks = compared.means(metric).rank(axis=1).mean().sort_values(kind="stable")
    return {str(name): float(rank) for name, rank in ranks.items()}


def _is_worse(runs: StoredRuns, dataset: str, ablation: str) -> bool:
    """Say whether a paired test finds the RMSE of an ablation worse than the full model's (protocol=clean, 5%)."""
    found = [runs.choose(dataset=dataset, ablation=name, protocol="clean") for name in (ablation, "full")]
    values = [None if run is None else dict(zip(run.splits, run.values("rmse_y"), strict=True)) for run in found]
    if values[0] is None or values[1] is None:
        return False
    common = sorted(values[0].keys() & values[1].keys())
    if len(common) < 2:
        return False
    test = paired_test([values[0][split] for split in common], [values[1][split] for split in common])
    return test.mean > 0 and test.p_value < 0.05


def _told_apart(compared: Comparison, metric: str, first: str, second: str, dataset: str) -> bool:
    found = compared.paired(metric, first, second, dataset)
    return found is not None and found[0].mean < 0 and found[0].p_value < 0.05
