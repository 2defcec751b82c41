"""The tables of the README and of docs/, generated from stored rows.

A page marks the place of a table by two comments, and `refresh` writes the table between them:

    <!-- table: average_ranks -->
    <!-- end -->

A new table is one function with the decorator `register`; its name is what the marker says.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from dataclasses import replace

import pandas as pd

from anchormoe.config.schema import TABLE_EXPERIMENTS
from anchormoe.distributions.scores import METRICS, Metric, ranked
from anchormoe.errors import UserError
from anchormoe.paths import shipped
from anchormoe.report import check, comparison, ingredients, published
from anchormoe.report.cells import StoredRuns, summarise
from anchormoe.report.comparison import Comparison
from anchormoe.report.grid import MISSING, NOT_AVAILABLE, SE, Cell, with_best_bold
from anchormoe.report.render import markdown_cell, markdown_grid, markdown_lines
from anchormoe.report.statistics import paired_test

TABLES: dict[str, Callable[[pd.DataFrame], str]] = {}  # name -> function of the stored rows that writes markdown

_MARKED = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
_MARKER = re.compile(r"<!-- (?:table: .*?|end) -->")


def refresh(text: str, rows: pd.DataFrame) -> str:
    """Return a page with every marked table written anew; `rows` are those of all stock experiments."""
    if len(_MARKER.findall(text)) != 2 * len(_MARKED.findall(text)):
        raise UserError("every `<!-- table: NAME -->` must be followed by its own `<!-- end -->`")
    return _MARKED.sub(lambda match: f"{match[1]}{_table(match[2], rows)}\n{match[3]}", text)


def register(function: Callable[[pd.DataFrame], str]) -> Callable[[pd.DataFrame], str]:
    """Make a function a table that pages can name."""
    TABLES[function.__name__] = function
    return function


def _table(name: str, rows: pd.DataFrame) -> str:
    if name not in TABLES:
        raise UserError(f"a table of a page must be one of {', '.join(TABLES)}, received {name}")
    return TABLES[name](rows)


@register
def average_ranks(rows: pd.DataFrame) -> str:
    """Write the average rank of every method by each ranked metric, and the coverage of its 90% intervals."""
    compared = _compared(rows)
    ranks = pd.DataFrame({metric.label: compared.means(metric.name).rank(axis=1).mean() for metric in ranked()})
    ranks = ranks.loc[ranks.mean(axis=1).sort_values(kind="stable").index].dropna()
    coverage = compared.means("coverage_90").mean()
    lines = [
        [comparison.heading(str(method)), *(f"{rank:.1f}" for rank in values), f"{coverage[method]:.3f}"]
        for method, values in zip(ranks.index, ranks.to_numpy().tolist(), strict=True)
    ]
    return markdown_lines(["method", *ranks.columns, METRICS["coverage_90"].label], lines)


@register
def crossfit_and_ngboost(rows: pd.DataFrame) -> str:
    """Write cross-fitted Anchor-MoE beside NGBoost, per dataset and ranked metric."""
    return _two_methods(rows, {"anchormoe_crossfit": "cross-fitted", "ngboost": "NGBoost"})


@register
def crossfit_and_published_recipe(rows: pd.DataFrame) -> str:
    """Write cross-fitted Anchor-MoE beside the published recipe, per dataset and ranked metric."""
    return _two_methods(rows, {"anchormoe": "published recipe", "anchormoe_crossfit": "cross-fitted"})


def _two_methods(rows: pd.DataFrame, methods: dict[str, str]) -> str:
    compared = _compared(rows)
    heads = [f"{metric.label} {heading}" for metric in ranked() for heading in methods.values()]
    lines = []
    for dataset in published.DATASETS:
        pairs = [with_best_bold([compared.cell(metric, name, dataset) for name in methods]) for metric in ranked()]
        lines.append([dataset, *(markdown_cell(cell) for pair in pairs for cell in pair)])
    return markdown_lines(["dataset", *heads], lines)


@register
def crossfit_in_print(rows: pd.DataFrame) -> str:
    """Write the NLL of cross-fitted Anchor-MoE beside the lowest in print, with its coverage and its time.

    The marks are those of `benchmarks/in_print.json`.
    """
    compared, in_print = _compared(rows), _in_print()
    lines = []
    for dataset in published.DATASETS:
        nll, coverage, seconds = (
            compared.cell(METRICS[name], "anchormoe_crossfit", dataset)
            for name in ("nll_y", "coverage_90", "fit_seconds")
        )
        printed = [in_print[name].get(dataset, NOT_AVAILABLE) for name in ("lowest_nll", "tabpfn_nll")]
        lines.append([dataset, nll.text, *printed, _mean(coverage, decimals=3), _mean(seconds, decimals=0)])
    heads = ["dataset", "NLL", "lowest in print", "TabPFN ¹", "90% coverage", "seconds a split"]
    return markdown_lines(heads, lines, left=(0, 2))


@register
def crossfit_seeds(rows: pd.DataFrame) -> str:
    """Write the scores of cross-fitted Anchor-MoE for seeds 1 and 2, on the datasets that have both."""
    seeds = {seed: _compared(rows, seed=seed) for seed in (1, 2)}
    lines = []
    for dataset in published.DATASETS:
        pairs = [[seeds[seed].cell(metric, "anchormoe_crossfit", dataset) for seed in seeds] for metric in ranked()]
        if all(cell.mean is not None for pair in pairs for cell in pair):
            lines.append([dataset, *(cell.text for pair in pairs for cell in pair)])
    heads = [f"{metric.label}, seed {seed}" for metric in ranked() for seed in seeds]
    return markdown_lines(["dataset", *heads], lines)


@register
def ingredients_nll(rows: pd.DataFrame) -> str:
    """Write the NLL of every step from the published recipe to the cross-fitted one."""
    (table,) = [table for table in ingredients.build(rows) if table.key == "ingredients_nll_y"]
    return markdown_grid(table)


@register
def corrected_ablations(rows: pd.DataFrame) -> str:
    """Write the ablations of protocol=clean.

    The mark ▲ is worse than the full model, bold is better, by a paired test on the same splits (p < 0.05).
    """
    runs = StoredRuns(_of_tables(rows))
    wanted = {"nll_y": ("full", "no_anchor", "no_router"), "rmse_y": ("full", "no_anchor", "no_router", "no_cal")}
    headings = {"no_anchor": "no anchor", "no_router": "no router", "no_cal": "no calibration"}
    heads, lines = [], []
    for name, ablations in wanted.items():
        heads += [headings.get(ablation, f"{METRICS[name].label} full") for ablation in ablations]
    for dataset in published.DATASETS:
        line = [dataset]
        for name, ablations in wanted.items():
            line += [_ablation(runs, METRICS[name], dataset, ablation) for ablation in ablations]
        lines.append(line)
    return markdown_lines(["dataset", *heads], lines)


def _ablation(runs: StoredRuns, metric: Metric, dataset: str, ablation: str) -> str:
    """Write one ablation's value, marked if it differs from the full model's on the same splits."""
    own, full = (_values(runs, metric.name, dataset, name, "clean") for name in (ablation, "full"))
    cell = _cell(metric, own)
    common = sorted(own.keys() & full.keys())
    if ablation == "full" or len(common) < 2:
        return cell.text
    test = paired_test([own[split] for split in common], [full[split] for split in common])
    if test.p_value >= 0.05:
        return cell.text
    return f"{cell.text} ▲" if test.mean > 0 else markdown_cell(replace(cell, bold=True))


@register
def published_nll(rows: pd.DataFrame) -> str:
    """Write the published NLL beside ours, z-scored and in original units, and NGBoost's as it is quoted.

    The mark ¹ is a value from a reprint, ² a published run of another model than Anchor-MoE.
    """
    runs, in_print = StoredRuns(_of_tables(rows)), _in_print()
    lines = []
    for dataset in published.DATASETS:
        notebook = published.notebook("full", dataset)
        converted = published.nll_in_original_units(notebook.run_name, dataset)
        theirs = [
            Cell("nll_z", SE, notebook.mean("nll_z"), notebook.se("nll_z"), 3, fixed=True),
            Cell(absent=NOT_AVAILABLE) if converted is None else Cell("nll_y", SE, *converted, 3, fixed=True),
        ]
        ours = [
            replace(_cell(METRICS[name], _values(runs, name, dataset, "full", "published")), fixed=True)
            for name in ("nll_z", "nll_y")
        ]
        texts = [cell.text for pair in zip(theirs, ours, strict=True) for cell in pair]
        other_model = " ²" if notebook.run_name != "full" else ""
        lines.append([f"{dataset}{other_model}", *texts, in_print["ngboost_nll"][dataset]])
    heads = ["NLL(z) published", "NLL(z) ours", "NLL(y) published, converted", "NLL(y) ours", "NLL(y) NGBoost, quoted"]
    return markdown_lines(["dataset", *heads], lines)


@register
def check_worth_a_look(rows: pd.DataFrame) -> str:
    """Write the cells of the check that are off, missing, excepted, or large but within their own scatter."""
    shown = [cell for cell in check.check(_of_tables(rows)).cells if cell.needs_a_look]
    lines = [
        [cell.dataset, cell.ablation, cell.metric, *check.judgement_texts(cell.judgement), cell.verdict]
        for cell in shown
    ]
    heads = ["dataset", "ablation", "metric", "difference in published SEs", "p", "verdict"]
    return markdown_lines(heads, lines, left=(0, 1, 2, 5))


@register
def quoted_nll(rows: pd.DataFrame) -> str:
    """Write our NLL of every method beside the quoted one; bold: more than 2 combined standard errors apart."""
    compared = _compared(rows)
    lines = []
    for method in compared.methods:
        line, within, num_quoted = [f"`{method}`"], 0, 0
        for dataset in published.DATASETS:
            quoted = comparison.quoted(method, dataset)
            live = compared.cell(METRICS["nll_y"], method, dataset)
            if quoted is None or live.mean is None:
                line.append(NOT_AVAILABLE)
                continue
            apart = comparison.combined_standard_errors(method, live, quoted)
            close = apart is None or abs(apart) <= 2
            within, num_quoted = within + close, num_quoted + 1
            text = f"{live.mean:.2f} / {quoted[0]:.2f}"
            line.append(text if close else f"**{text}**")
        if num_quoted:
            lines.append([*line, f"{within} of {num_quoted}"])
    return markdown_lines(["method", *published.DATASETS, "within 2 SE"], lines)


def _compared(rows: pd.DataFrame, *, seed: int = 1) -> Comparison:
    return Comparison(_of_tables(rows), seed=seed)


def _of_tables(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["experiment"].isin(TABLE_EXPERIMENTS)]


def _values(runs: StoredRuns, metric: str, dataset: str, ablation: str, protocol: str) -> dict[int, float]:
    run = runs.choose(dataset=dataset, ablation=ablation, protocol=protocol)
    return {} if run is None else dict(zip(run.splits, run.values(metric).tolist(), strict=True))


def _cell(metric: Metric, values: dict[int, float]) -> Cell:
    summary = summarise(values.values())
    if summary is None:
        return Cell(absent=MISSING)
    return Cell(metric.name, SE, summary.mean, summary.se, metric.decimals, num_splits=summary.num_splits)


def _mean(cell: Cell, *, decimals: int) -> str:
    return replace(cell, deviation=None, decimals=decimals, fixed=True).text


@functools.cache
def _in_print() -> dict[str, dict[str, str]]:
    """Read numbers that others report."""
    return json.loads(shipped("benchmarks/in_print.json").read_text(encoding="utf-8"))
