"""The tables of the README and of docs/, and some sentences, generated from stored rows.

A page marks the place of a table by two comments, and `refresh` writes the table between them:

    <!-- table: average_ranks -->
    <!-- end -->

A new table is one function with the decorator `register`; its name is what the marker says. Sentences are marked by
`<!-- text: NAME -->` and listed in TEXTS.
"""

from __future__ import annotations

import functools
import json
import re
import textwrap
from collections.abc import Callable
from dataclasses import replace

import pandas as pd

from anchormoe.config.schema import (
    CONTROLS_EXPERIMENT,
    EXTENDED_EXPERIMENT,
    SEVERAL_TARGETS_EXPERIMENT,
    STOCK_EXPERIMENTS,
    TABLE_EXPERIMENTS,
    THEORY_EXPERIMENT,
)
from anchormoe.distributions.joint_scores import JOINT_METRICS
from anchormoe.distributions.scores import METRICS, Metric
from anchormoe.errors import UserError
from anchormoe.paths import shipped
from anchormoe.report import check, comparison, extended, ingredients, pit, published, rivals, several_targets, theory
from anchormoe.report.cells import StoredRuns, summarise
from anchormoe.report.comparison import Comparison
from anchormoe.report.grid import MISSING, NOT_AVAILABLE, SE, Cell, with_best_bold
from anchormoe.report.render import markdown_cell, markdown_grid, markdown_lines
from anchormoe.report.statistics import paired_test

# The experiments whose rows the pages are about, of every kind.
PAGE_EXPERIMENTS = (
    *STOCK_EXPERIMENTS,
    CONTROLS_EXPERIMENT,
    EXTENDED_EXPERIMENT,
    THEORY_EXPERIMENT,
    SEVERAL_TARGETS_EXPERIMENT,
)
TABLES: dict[str, Callable[[pd.DataFrame], str]] = {}  # name -> function of the stored rows that writes markdown
TEXTS = {
    text.__name__: text
    for text in (extended.extended_lead, extended.extended_cells, rivals.rivals_lead, rivals.best_lead)
}
_TEXT_WIDTH = 140

_MARKED = re.compile(r"(<!-- (table|text): (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
_MARKER = re.compile(r"<!-- (?:(?:table|text): .*?|end) -->")


def refresh(text: str, rows: pd.DataFrame) -> str:
    """Return a page with every marked table written anew; `rows` are those of PAGE_EXPERIMENTS."""
    if len(_MARKER.findall(text)) != 2 * len(_MARKED.findall(text)):
        raise UserError("every `<!-- table: NAME -->` must be followed by its own `<!-- end -->`")
    return _MARKED.sub(lambda match: f"{match[1]}{_generated(match[2], match[3], rows)}\n{match[4]}", text)


def register(function: Callable[[pd.DataFrame], str]) -> Callable[[pd.DataFrame], str]:
    """Make a function a table that pages can name."""
    TABLES[function.__name__] = function
    return function


def _generated(kind: str, name: str, rows: pd.DataFrame) -> str:
    known = TABLES if kind == "table" else TEXTS
    if name not in known:
        raise UserError(f"a {kind} of a page must be one of {', '.join(known)}, received {name}")
    written = known[name](rows)
    return written if kind == "table" else textwrap.fill(written, _TEXT_WIDTH, break_on_hyphens=False)


@register
def average_ranks(rows: pd.DataFrame) -> str:
    """Write the average rank of every method by each ranked metric, and the coverage of its 90% intervals."""
    return _average_ranks(rows)


@register
def leading_ranks(rows: pd.DataFrame) -> str:
    """Write the average ranks of the eight methods that lead, ranked among all."""
    return _average_ranks(rows, most=8)


def _average_ranks(rows: pd.DataFrame, most: int | None = None) -> str:
    compared = _compared(rows)
    metrics = compared.ranked()
    ranks = pd.DataFrame({metric.label: compared.means(metric.name).rank(axis=1).mean() for metric in metrics})
    ranks = ranks.loc[ranks.mean(axis=1).sort_values(kind="stable").index].dropna()
    coverage = compared.means("coverage_90").mean()
    lines = [
        [comparison.heading(str(method)), *(f"{rank:.1f}" for rank in values), f"{coverage[method]:.3f}"]
        for method, values in zip(ranks.index, ranks.to_numpy().tolist(), strict=True)
    ]
    return markdown_lines(["method", *ranks.columns, METRICS["coverage_90"].label], lines[:most])


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
    metrics = compared.ranked()
    heads = [f"{metric.label} {heading}" for metric in metrics for heading in methods.values()]
    lines = []
    for dataset in published.DATASETS:
        pairs = [with_best_bold([compared.cell(metric, name, dataset) for name in methods]) for metric in metrics]
        lines.append([dataset, *(markdown_cell(cell) for pair in pairs for cell in pair)])
    return markdown_lines(["dataset", *heads], lines)


@register
def crossfit_in_print(rows: pd.DataFrame) -> str:
    """Write NLL and CRPS of cross-fitted Anchor-MoE beside the lowest in print, with its coverage and its time.

    The marks are those of `benchmarks/in_print.json`.
    """
    compared, in_print = _compared(rows), _in_print()
    lines = []
    for dataset in published.DATASETS:
        nll, crps, coverage, seconds = (
            compared.cell(METRICS[name], "anchormoe_crossfit", dataset)
            for name in ("nll_y", "crps_y", "coverage_90", "fit_seconds")
        )
        printed = [in_print[name].get(dataset, NOT_AVAILABLE) for name in ("lowest_nll", "tabpfn_nll", "lowest_crps")]
        scores = [nll.text, *printed[:2], crps.text, printed[2]]
        lines.append([dataset, *scores, _mean(coverage, decimals=3), _mean(seconds, decimals=0)])
    heads = ["dataset", "NLL", "lowest in print", "TabPFN ¹", "CRPS", "lowest in print ¹", "90% coverage", "seconds"]
    return markdown_lines(heads, lines, left=(0, 2, 5))


@register
def best_calibration(rows: pd.DataFrame) -> str:
    """Write coverage and the test of the PIT histogram of the recipe's preset `best`."""
    return pit.calibration_of(_compared(rows), "anchormoe_best")


@register
def crossfit_seeds(rows: pd.DataFrame) -> str:
    """Write the scores of cross-fitted Anchor-MoE for seeds 1 and 2, on the datasets that have both."""
    seeds = {seed: _compared(rows, seed=seed) for seed in (1, 2)}
    metrics = seeds[1].ranked()
    lines = []
    for dataset in published.DATASETS:
        pairs = [[seeds[seed].cell(metric, "anchormoe_crossfit", dataset) for seed in seeds] for metric in metrics]
        if all(cell.mean is not None for pair in pairs for cell in pair):
            lines.append([dataset, *(cell.text for pair in pairs for cell in pair)])
    heads = [f"{metric.label}, seed {seed}" for metric in metrics for seed in seeds]
    return markdown_lines(["dataset", *heads], lines)


@register
def ingredients_nll(rows: pd.DataFrame) -> str:
    """Write the NLL of every step from the published recipe to the cross-fitted one."""
    (table,) = [table for table in ingredients.build(rows) if table.key == "ingredients_nll_y"]
    return markdown_grid(table)


@register
def controls_nll(rows: pd.DataFrame) -> str:
    """Write the NLL at the data's resolution of every control minus that of the cross-fitted recipe."""
    return _controls(rows, "nll_cell_y", in_percent=False)


@register
def controls_crps(rows: pd.DataFrame) -> str:
    """Write by how many percent the CRPS of every control is above that of the cross-fitted recipe."""
    return _controls(rows, "crps_y", in_percent=True)


def _controls(rows: pd.DataFrame, metric: str, *, in_percent: bool) -> str:
    """Write differences from the recipe on the same splits; bold: p < 0.05 by the paired test."""
    compared = Comparison(rows[rows["experiment"] == CONTROLS_EXPERIMENT])
    recipe, *controls = compared.methods
    datasets = [name for name in compared.datasets if compared.values(metric, recipe, name)]
    lines = []
    for control in controls:
        line, worse, better = [comparison.heading(control)], 0, 0
        for dataset in datasets:
            found = compared.paired(metric, control, recipe, dataset)
            if found is None:
                line.append(MISSING)
                continue
            test, _ = found
            base = summarise(compared.values(metric, recipe, dataset).values())
            assert base is not None
            text = f"{100 * test.mean / base.mean:+.1f}%" if in_percent else f"{test.mean:+.3f}"
            significant = test.p_value < 0.05
            line.append(f"**{text}**" if significant else text)
            worse, better = worse + (significant and test.mean > 0), better + (significant and test.mean < 0)
        lines.append([*line, f"{worse} / {better}"])
    return markdown_lines(["in place of the experts", *datasets, "worse / better"], lines)


@register
def several_targets_together(rows: pd.DataFrame) -> str:
    """Write the scores of several targets together, each with its difference from the cross-fitted recipe."""
    return _of_several(several_targets.together(_of_several_targets(rows)), list(JOINT_METRICS.values()))


@register
def several_targets_alone(rows: pd.DataFrame) -> str:
    """Write the CRPS of each of several targets by itself, with its difference from the cross-fitted recipe."""
    return _of_several(several_targets.alone(_of_several_targets(rows)), [METRICS["crps_y"]])


def _of_several_targets(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["experiment"] == SEVERAL_TARGETS_EXPERIMENT].reset_index(drop=True)


def _of_several(compared: Comparison, metrics: list[Metric]) -> str:
    lines = []
    for dataset in compared.datasets:
        for method in compared.methods:
            cells = [compared.cell(metric, method, dataset) for metric in metrics]
            apart = [comparison.paired_cell(one, compared, compared.methods[0], method, dataset) for one in metrics]
            if all(cell.mean is not None for cell in cells):
                texts = [[cell.text, _difference(other)] for cell, other in zip(cells, apart, strict=True)]
                lines.append([dataset, comparison.heading(method), *(text for pair in texts for text in pair)])
    heads = [head for metric in metrics for head in (metric.label_with_unit, "difference")]
    return markdown_lines(["dataset", "method", *heads], lines, left=(0, 1))


def _difference(cell: Cell) -> str:
    """Write a difference; a method has none from itself, and one split has none that can be judged."""
    return NOT_AVAILABLE if cell.mean is None or cell.deviation == 0 else markdown_cell(cell)


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


register(extended.extended_ranks)
register(extended.extended_crps)
register(rivals.presets)
register(rivals.rivals_nll)
register(rivals.rivals_crps)
register(rivals.rivals_seconds)


@register
def theory_verdicts(rows: pd.DataFrame) -> str:
    """Write every claim of the paper's theory beside what the simulations measured, and the verdict."""
    return theory.verdict_table(_of_theory(rows))


@register
def theory_gap_constant(rows: pd.DataFrame) -> str:
    """Write the constant of the generalisation bound's shape."""
    return theory.constant_table(_of_theory(rows))


@register
def theory_experts(rows: pd.DataFrame) -> str:
    """Write K by the rule on the nine tables, and the NLL of every choice minus that of K = 8."""
    return theory.experts_table(_of_theory(rows))


def _of_theory(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[(rows["experiment"] == THEORY_EXPERIMENT) & (rows["status"] == "ok")].reset_index(drop=True)


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
