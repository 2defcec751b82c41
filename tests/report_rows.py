"""Rows of a user's own datasets, whose names try to break out of the page they are shown in."""

from __future__ import annotations

import numpy as np
import pandas as pd

HOSTILE = "<script>window.hacked=1</script>"
METHODS = {
    "ngboost": 0.0,
    "mine.Best<img src=x onerror='window.hacked=1'>": -1.0,
    'it\'s "quoted" & größer </script>': 0.5,
    "gamlss": 1.0,
}


def own_rows(*, datasets: tuple[str, ...] = (HOSTILE, "houses"), num_splits: int = 5) -> pd.DataFrame:
    """Make rows of all methods on all datasets; the second method is the best everywhere."""
    rng = np.random.default_rng(0)
    rows = []
    for dataset in datasets:
        for method, offset in METHODS.items():
            for split in range(1, num_splits + 1):
                score = 3 + offset + 0.1 * rng.standard_normal()
                rows.append(
                    {
                        "experiment": "runs",
                        "dataset": dataset,
                        "method": method,
                        "ablation": "full",
                        "protocol": "clean",
                        "anchor": "none",
                        "seed": 1,
                        "split": split,
                        "config_hash": f"hash of {method}",
                        "variant": "standard",
                        "status": "ok",
                        "nll_y": score,
                        "nll_z": score - 0.5,
                        "crps_y": score / 2,
                        "rmse_y": score / 3,
                        "coverage_90": 0.9,
                        "scale_y": float(np.exp(0.5)),
                        "pit_counts_once": [1] * 20,
                        "fit_seconds": 0.5,
                        "versions": {"python": "3.11", "library": HOSTILE},
                        "num_rows": 50,
                    }
                )
    return pd.DataFrame(rows)
