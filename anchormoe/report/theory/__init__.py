"""The verdicts about the paper's theory, computed from the rows of `anchormoe-bench theory`; it imports no torch."""

from __future__ import annotations

import pandas as pd
from rich import box
from rich.table import Table

from anchormoe.report.render import markdown_lines
from anchormoe.report.theory import densities, rates
from anchormoe.report.theory.claims import Claim, cells
from anchormoe.report.theory.slopes import signed

__all__ = ["HEADS", "cells", "claims", "constant_table", "experts_table", "terminal", "verdict_table"]

_RATIOS = (6, 5, 3, 4, 3, 4)  # widths in the terminal
HEADS = ("claim", "object", "predicted", "measured, 95% interval", "controls", "verdict")

_CLAIMS = (
    rates.main_claims,
    rates.lemma_claims,
    rates.manifold_claims,
    rates.sparse_claims,
    rates.selection_claims,
    rates.change_claims,
    densities.gap_claims,
    densities.link_claims,
    rates.trained_claims,
    densities.expert_claims,
)


def claims(rows: pd.DataFrame) -> list[Claim]:
    """Return every claim that the rows allow to judge."""
    return [claim for function in _CLAIMS for claim in function(rows)]


def verdict_table(rows: pd.DataFrame) -> str:
    """Write the verdicts as markdown."""
    return markdown_lines(HEADS, [cells(claim) for claim in claims(rows)], left=range(len(HEADS)))


def constant_table(rows: pd.DataFrame) -> str:
    """Write the constant of the generalisation bound's shape as markdown."""
    fitted, largest = densities.bound_constant(rows)
    lines = [
        ["fitted to all points, on the log scale", f"{fitted:.4f}"],
        ["largest that a point needs", f"{largest:.4f}"],
    ]
    return markdown_lines(["C of gap = C·sqrt((log(Mh)+P+K)/N)", "value"], lines)


def experts_table(rows: pd.DataFrame) -> str:
    """Write K by the rule on every table, and the test NLL of every choice minus that of K = 8, as markdown."""
    choices = {"theory": "d = features", "theory_latent": "latent plane", "validation": "held-out rows"}
    lines: dict[str, list[str]] = {}
    found = densities.nll_by_rule(rows).to_dict("records")
    for row in found:
        if row["rule"] in ("theory", "theory_latent"):
            lines.setdefault(row["table"], [row["table"]]).append(f"{row['experts']:.0f}")
    for row in found:
        if row["rule"] in choices:
            lines[row["table"]].append(signed(float(row["difference"].mean())))
    heads = [
        "table",
        "K latent plane",
        "K d = features",
        "NLL, latent plane",
        "NLL, d = features",
        "NLL, held-out rows",
    ]
    return markdown_lines(heads, list(lines.values()))


def terminal(rows: pd.DataFrame) -> Table:
    """Return the table of verdicts for the terminal: a line for each claim."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 1, 0), pad_edge=False, expand=True)
    for head, ratio in zip(HEADS, _RATIOS, strict=True):
        table.add_column(head, ratio=ratio)
    for claim in claims(rows):
        table.add_row(*cells(claim))
    return table
