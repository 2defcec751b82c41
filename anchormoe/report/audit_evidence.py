"""Evidence for the audit, one function per finding: a sentence, and whether it agrees with what was found."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from anchormoe.data import catalogue
from anchormoe.data.dataset import load
from anchormoe.data.splits import OuterSplit, inner_split
from anchormoe.report import published
from anchormoe.report.cells import Run, StoredRuns, summarise
from anchormoe.report.comparison import Comparison
from anchormoe.report.statistics import paired_test

COMPARABLE = ("boston", "concrete", "power", "protein", "wine", "yacht")  # one target and one model in all ablations

Evidence = tuple[str, bool]  # a sentence, and whether it agrees with the statement


class Missing(Exception):
    """A row that the evidence needs is not stored."""


@dataclass(frozen=True)
class Facts:
    runs: StoredRuns
    compared: Comparison

    def run(self, dataset: str, ablation: str, protocol: str) -> Run:
        found = self.runs.choose(dataset=dataset, ablation=ablation, protocol=protocol)
        if found is None:
            raise Missing(f"no row of {dataset}, {ablation}, protocol={protocol}")
        return found

    def mean(self, metric: str, dataset: str, ablation: str, protocol: str) -> float:
        summary = summarise(self.run(dataset, ablation, protocol).values(metric))
        if summary is None:
            raise Missing(f"no {metric} of {dataset}, {ablation}, protocol={protocol}")
        return summary.mean


EVIDENCE: dict[int, Callable[[Facts], Evidence]] = {}


def _of(*numbers: int) -> Callable[[Callable[[Facts], Evidence]], Callable[[Facts], Evidence]]:
    def register(function: Callable[[Facts], Evidence]) -> Callable[[Facts], Evidence]:
        EVIDENCE.update(dict.fromkeys(numbers, function))
        return function

    return register


@_of(5, 6)
def _stages(facts: Facts) -> Evidence:
    """Selected by RMSE and fitted again on TV, the notebooks' stages and RMSE come out split by split."""
    texts, agrees = [], True
    for dataset in ("boston", "concrete", "wine"):
        run, notebook = facts.run(dataset, "full", "published"), published.notebook("full", dataset)
        index = np.array(run.splits) - 1
        same = int((run.values("anchor_stage") == np.array(notebook.stages)[index]).sum())
        close = int((np.abs(run.values("rmse_y") - np.array(notebook.rmse)[index]) < 0.01).sum())
        texts.append(f"{dataset} {same} and {close} of {len(index)}")
        agrees &= same == len(index) and close >= 0.9 * len(index)
    return (
        f"Run so, the stage is the notebook's and the RMSE within 0.01 on this number of splits: {', '.join(texts)}.",
        agrees,
    )


@_of(7)
def _fold_sizes(facts: Facts) -> Evidence:
    rows = inner_split(455, 1, calibration_fraction=0.125, validation_fraction=0.2)
    text = f"Boston's 455 training rows: {len(rows.tr)} train, {len(rows.va)} validate, {len(rows.cal)} calibrate"
    return f"{text}; validation is {len(rows.va) / 455:.1%} of the fold.", len(rows.va) != math.ceil(0.2 * 455)


@_of(8)
def _one_subsample(facts: Facts) -> Evidence:
    off = abs(facts.mean("rmse_y", "protein", "full", "published") - published.notebook("full", "protein").mean("rmse"))
    ratio = off / published.notebook("full", "protein").se("rmse")
    return f"With one subsample our mean RMSE is {ratio:.2f} published standard errors from the notebook's.", ratio < 1


@_of(14)
def _no_calibration(facts: Facts) -> Evidence:
    differences = [
        abs(published.notebook("no_cal", name).mean("nll_z") - published.notebook("full", name).mean("nll_z"))
        for name in COMPARABLE
    ]
    clean = max(
        float(
            np.abs(
                facts.run(name, "no_cal", "clean").values("nll_y") - facts.run(name, "full", "clean").values("nll_y")
            ).max()
        )
        for name in published.DATASETS
    )
    text = f"The notebooks' NLL moves by {min(differences):.3f} to {max(differences):.3f}"
    return f"{text}; in our rows of protocol=clean by {clean:g}.", min(differences) > 0 and clean == 0


@_of(15)
def _kernel_ridge(facts: Facts) -> Evidence:
    run, notebook = facts.run("kin8nm", "full", "published"), published.notebook("full", "kin8nm")
    far = np.abs(run.values("nll_z") - np.array(notebook.nll_z)[np.array(run.splits) - 1]).max()
    own = facts.mean("rmse_y", "kin8nm", "full", "clean")
    text = f"Our kernel-ridge mixture is within {far:.5f} of the published NLL on every one of {len(run.splits)} splits"
    return f"{text}; Anchor-MoE itself has RMSE {own:.3f}.", far < 1e-3


@_of(16)
def _energy_target(facts: Facts) -> Evidence:
    return _targets("energy", {"heating": "heating load", "cooling": "cooling load"}, right="cooling")


@_of(17)
def _naval_target(facts: Facts) -> Evidence:
    names = {"compressor": "compressor decay", "turbine_with_compressor": "turbine decay"}
    return _targets("naval", names, right="turbine_with_compressor")


def _targets(dataset: str, names: dict[str, str], *, right: str) -> Evidence:
    """Compare RMSE² / (1 - R²) of the printed splits, the variance of the test targets, with the data's."""
    texts, agrees = [], True
    for variant, name in names.items():
        y = load(catalogue.info(dataset), variant=variant).y
        for ablation in ("no_router", "no_cal"):
            notebook = published.notebook(ablation, dataset)
            assert notebook.r2 is not None
            matched = 0
            for split in range(20):
                test = y[OuterSplit(split + 1, 1).rows(len(y))[1]]
                # Both are printed with four decimals, so the variance is known to an interval.
                low = (notebook.rmse[split] - 5e-5) ** 2 / (1 - notebook.r2[split] + 5e-5)
                high = (notebook.rmse[split] + 5e-5) ** 2 / max(1 - notebook.r2[split] - 5e-5, 1e-12)
                matched += bool(low <= test.var() <= high)
            texts.append(f"{name} {matched}/20 ({ablation})")
            agrees &= (matched == 20) == (variant == right)
    return f"RMSE²/(1 − R²) is the variance of the test targets of {'; '.join(texts)}.", agrees


@_of(18)
def _kin8nm_rows(facts: Facts) -> Evidence:
    notebook, rows = published.notebook("no_anchor", "kin8nm"), len(load(catalogue.info("kin8nm")).y)
    without, with_anchor = (facts.mean("rmse_y", "kin8nm", name, "clean") for name in ("no_anchor", "full"))
    text = f"Printed {notebook.num_rows} rows, the public file has {rows}"
    text += f". RMSE by protocol=clean: {without:.3f} without anchor, {with_anchor:.3f} with it."
    return text, notebook.num_rows != rows and without < with_anchor


def _printed(*cells: tuple[str, str, str, str]) -> Callable[[Facts], Evidence]:
    """Compare printed means or standard errors with those of the notebooks' 20 values."""

    def evidence(facts: Facts) -> Evidence:
        texts, agrees = [], True
        for table, dataset, ablation, part in cells:
            metric = "rmse" if table.endswith("rmse") else "nll_z"
            cell, notebook = published.paper_cell(table, dataset, ablation), published.notebook(ablation, dataset)
            assert cell is not None
            printed = cell[0] if part == "mean" else cell[1]
            own = notebook.mean(metric) if part == "mean" else notebook.se(metric)
            texts.append(f"{dataset} {ablation}: {part} printed {printed:.2f}, of the 20 values {own:.4f}")
            agrees &= abs(printed - own) > 0.005
        return "; ".join(texts) + ".", agrees

    return evidence


EVIDENCE |= {
    19: _printed(("ablation_nll", "naval", "no_anchor", "mean")),
    20: _printed(("nll", "energy", "full", "SE")),
    21: _printed(("nll", "naval", "full", "mean")),
    22: _printed(("ablation_nll", "naval", "no_router", "mean"), ("ablation_nll", "naval", "no_cal", "SE")),
    23: _printed(("ablation_nll", "power", "no_router", "mean")),
    24: _printed(("ablation_nll", "kin8nm", "no_router", "mean")),
    25: _printed(("nll", "protein", "full", "SE")),
    26: _printed(
        ("ablation_rmse", "boston", "no_router", "SE"),
        ("rmse", "energy", "full", "SE"),
        ("ablation_rmse", "wine", "no_router", "SE"),
        ("ablation_rmse", "wine", "no_cal", "SE"),
    ),
}


@_of(27)
def _ngboost_on_wine(facts: Facts) -> Evidence:
    notebook, printed = published.ngboost_notebook("wine"), published.paper_cell("nll", "wine", "ngboost")
    assert notebook is not None
    assert printed is not None
    stopped, over = (facts.compared.means("nll_y").get(name) for name in ("ngboost", "ngboost_authors"))
    if stopped is None or over is None:
        raise Missing("no rows of NGBoost")
    text = f"The authors' 20 values have mean {notebook.mean('nll_z'):.2f}, printed is {printed[0]:.2f}"
    text += (
        f". Our NLL in original units: {stopped['wine']:.2f} with early stopping, {over['wine']:.2f} as they ran it."
    )
    return text, round(notebook.mean("nll_z"), 2) == printed[0]


@_of(28)
def _ngboost_on_energy(facts: Facts) -> Evidence:
    nll, rmse = (published.paper_cell(table, "energy", "ngboost") for table in ("nll", "rmse"))
    assert nll is not None
    assert rmse is not None
    return f"Printed as NLL: {nll[0]} ± {nll[1]}; printed as RMSE: {rmse[0]} ± {rmse[1]}.", nll == rmse


@_of(29)
def _spread(facts: Facts) -> Evidence:
    ratios_sd, ratios_se = [], []
    quoted = ("boston", "concrete", "kin8nm", "naval", "power", "yacht")  # the others are not NGBoost's own NLL
    for dataset in quoted:
        summary = summarise(facts.compared.values("nll_y", "ngboost", dataset).values())
        printed = published.paper_cell("nll", dataset, "ngboost")
        if summary is None or summary.sd is None or summary.se is None or printed is None:
            raise Missing("no rows of NGBoost")
        ratios_sd.append(printed[1] / summary.sd)
        ratios_se.append(printed[1] / summary.se)
    sd, se = (float(np.median(values)) for values in (ratios_sd, ratios_se))
    text = f"The printed ± of NGBoost's NLL is {sd:.1f} of our standard deviations and {se:.1f} of our standard errors"
    return f"{text} (median of {len(quoted)} datasets).", sd < 2 < se


@_of(30)
def _units(facts: Facts) -> Evidence:
    differences = {name: pair for name, pair in published.unit_differences().items() if name != "kin8nm"}
    printed, converted = (sum(pair[k] < 0 for pair in differences.values()) for k in (0, 1))
    scales = {
        name: float(np.mean(np.log(facts.run(name, "full", "published").values("scale_y")))) for name in differences
    }
    low, high = min(scales.values()), max(scales.values())
    text = f"As printed Anchor-MoE is ahead of NGBoost on {printed} of {len(differences)} datasets"
    text += f", in original units on {converted}"
    return f"{text}. The conversion adds log σ, {low:.2f} to {high:.2f} nats.", converted < printed


@_of(31)
def _naval_is_ahead(facts: Facts) -> Evidence:
    ours = facts.mean("nll_y", "naval", "full", "published")
    converted, quoted = (
        published.nll_in_original_units("full", "naval"),
        published.paper_cell("nll", "naval", "ngboost"),
    )
    assert converted is not None
    assert quoted is not None
    text = f"Published, converted: {converted[0]:.2f}; our rows: {ours:.2f}; NGBoost as quoted: {quoted[0]:.2f}."
    return text, converted[0] < quoted[0] and ours < quoted[0]


@_of(32)
def _wine_bold(facts: Facts) -> Evidence:
    without, full = (published.notebook(name, "wine").mean("nll_z") for name in ("no_router", "full"))
    return f"Means of the 20 values: no router {without:.4f}, full {full:.4f}.", without < full


@_of(33)
def _protein_bold(facts: Facts) -> Evidence:
    ours, theirs = published.notebook("full", "protein").mean("rmse"), published.ngboost_notebook("protein")
    assert theirs is not None
    return f"Means of the 20 values: {ours:.4f} and {theirs.mean('rmse'):.4f}.", ours < theirs.mean("rmse")


@_of(34)
def _router(facts: Facts) -> Evidence:
    lower = [
        name for name in COMPARABLE if _print(name, "ablation_nll", "no_router") <= _print(name, "ablation_nll", "full")
    ]
    worse = [name for name in published.DATASETS if _is_worse(facts, "nll_y", name, "no_router")]
    text = f"Printed NLL without router is lower or equal on {', '.join(lower)}"
    return f"{text}. By protocol=clean a paired test finds it worse on {len(worse)} of 9 datasets.", len(lower) >= 5


@_of(35)
def _calibration(facts: Facts) -> Evidence:
    lower = [name for name in COMPARABLE if _notebook_rmse(name, "no_cal") < _notebook_rmse(name, "full")]
    worse = [name for name in published.DATASETS if _is_worse(facts, "rmse_y", name, "no_cal")]
    text = f"The notebooks' mean RMSE without calibration is lower on {len(lower)} of {len(COMPARABLE)} datasets"
    return f"{text}. By protocol=clean a paired test finds it worse on: {', '.join(worse) or 'none'}.", len(lower) == 6


def _print(dataset: str, table: str, ablation: str) -> float:
    cell = published.paper_cell(table, dataset, ablation)
    assert cell is not None
    return cell[0]


def _notebook_rmse(dataset: str, ablation: str) -> float:
    return published.notebook(ablation, dataset).mean("rmse")


def _is_worse(facts: Facts, metric: str, dataset: str, ablation: str) -> bool:
    """Say whether a paired test on the same splits finds the ablation worse than the full model (5%)."""
    without, full = (facts.run(dataset, name, "clean").values(metric) for name in (ablation, "full"))
    test = paired_test(without, full)
    return test.mean > 0 and test.p_value < 0.05
