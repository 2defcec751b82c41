"""How calibrated the densities of a method are: coverage of intervals, and a test of the PIT histogram."""

from __future__ import annotations

from anchormoe.distributions.scores import METRICS
from anchormoe.report import published
from anchormoe.report.comparison import Comparison
from anchormoe.report.grid import NOT_AVAILABLE
from anchormoe.report.render import markdown_lines
from anchormoe.report.statistics import uniformity_p_value

LEVEL = 0.01
WANTED = (0.88, 0.92)  # coverage of 90% intervals


def calibration_of(compared: Comparison, method: str) -> str:
    """Write the coverage of 90% intervals on every dataset, and whether the PIT histogram passes the test.

    Pearson's test uses each tested row once, in twenty bins. Datasets with all splits count.
    """
    lines, whole, covered, passed = [], 0, 0, 0
    for dataset in published.DATASETS:
        cell, counts = compared.cell(METRICS["coverage_90"], method, dataset), compared.pit_counts(method, dataset)
        if cell.mean is None or counts is None:
            lines.append([dataset, *[NOT_AVAILABLE] * 5])
            continue
        p_value, relative = uniformity_p_value(counts), len(counts) * counts / counts.sum()
        if cell.num_splits == compared.num_splits:
            whole += 1
            covered += WANTED[0] <= cell.mean <= WANTED[1]
            passed += p_value >= LEVEL
        verdict = f"{p_value:.2g}" if p_value >= LEVEL else f"**{p_value:.2g}**"
        bars = [f"{relative.min():.2f}", f"{relative.max():.2f}"]
        lines.append([dataset, cell.text, str(counts.sum()), verdict, *bars])
    within = f"{covered} of {whole} in {WANTED[0]:.0%} to {WANTED[1]:.0%}"
    lines.append(["datasets", within, "", f"{passed} of {whole} pass", "", ""])
    return markdown_lines(["dataset", "90% coverage", "rows", "p of the PIT", "lowest bar", "highest bar"], lines)
