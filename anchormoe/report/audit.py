"""The audit: where paper and notebooks disagree, each with evidence computed anew from data and rows where it can be.

The statements are in `benchmarks/audit.json`, the evidence in `audit_evidence.py`. Those without evidence were read
off the authors' code.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import pandas as pd

from anchormoe.paths import shipped
from anchormoe.report.audit_evidence import EVIDENCE, Facts, Missing
from anchormoe.report.cells import StoredRuns
from anchormoe.report.comparison import Comparison


@dataclass(frozen=True)
class Finding:
    """One disagreement: what the paper says, what was found, and the evidence."""

    id: int
    part: str  # method or results
    paper: str
    found: str
    evidence: str  # empty where it was read off the authors' code
    confirmed: bool | None  # None where nothing was recomputed


def audit(rows: pd.DataFrame) -> list[Finding]:
    """Return all findings, with evidence from the rows behind the paper's tables."""
    facts = Facts(StoredRuns(rows), Comparison(rows))
    findings = []
    for entry in json.loads(shipped("benchmarks/audit.json").read_text(encoding="utf-8")):
        recompute = EVIDENCE.get(entry["id"])
        try:
            evidence, confirmed = recompute(facts) if recompute else ("", None)
        except Missing as missing:
            evidence, confirmed = f"not recomputed: {missing}", None
        agrees = None if confirmed is None else bool(confirmed)  # NumPy has a bool of its own
        findings.append(Finding(**entry, evidence=evidence, confirmed=agrees))
    return findings
