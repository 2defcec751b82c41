"""Stored rows made from the published numbers, for tests of what reads rows."""

from __future__ import annotations

from typing import Any

import pandas as pd

from anchormoe.report import published

VARIANTS = {
    ("energy", "no_router"): "cooling",
    ("energy", "no_cal"): "cooling",
    ("naval", "no_router"): "turbine_with_compressor",
    ("naval", "no_cal"): "turbine_with_compressor",
}
STANDARD = {"energy": "heating", "naval": "compressor", "power": "sheet1"}


def stored_rows(protocol: str = "published", **changes: Any) -> pd.DataFrame:
    """Make rows that repeat the notebooks' values; nll_y is nll_z + 1, so that a mixed-up unit is noticed."""
    rows = []
    for ablation in published.ABLATIONS:
        for dataset in published.DATASETS:
            run = published.notebook(ablation, dataset)
            variant = STANDARD.get(dataset, "standard")
            if protocol == "published":
                variant = VARIANTS.get((dataset, ablation), variant)
            other_model = run.run_name == "kin8nm_rff_krr" and protocol == "published"
            for split in range(1, published.NUM_SPLITS + 1):
                row = {
                    "dataset": dataset,
                    "method": "rff_krr" if other_model else "anchormoe",
                    "ablation": ablation,
                    "protocol": protocol,
                    "anchor": "none" if ablation == "no_anchor" else "gbdt",
                    "seed": 1,
                    "split": split,
                    "variant": variant,
                    "config_hash": "abc",
                    "status": "ok",
                    "rmse_y": run.rmse[split - 1],
                    "nll_z": run.nll_z[split - 1],
                    "nll_y": run.nll_z[split - 1] + 1,
                    "anchor_stage": run.stages[split - 1] if run.stages else 100,
                    "epoch": run.epochs[split - 1] if run.epochs else None,
                }
                rows.append({**row, **changes})
    return pd.DataFrame(rows)
