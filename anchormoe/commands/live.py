"""A few published splits recomputed now: stored rows show what the code once did, this shows what it does."""

from __future__ import annotations

from rich.console import Console

from anchormoe.report import published

# Fast splits that come out to the published digits with scikit-learn's trees; what may differ is float32 rounding.
SPLITS = (("boston", 2), ("wine", 3), ("boston", 6), ("concrete", 3), ("boston", 13), ("wine", 9))
TOLERANCE = 0.005


def live_check(count: int, console: Console) -> bool:
    """Run the first `count` of SPLITS; True if all agree with the notebooks."""
    from anchormoe.config.compose import jobs
    from anchormoe.run.runner import one_thread, run_split

    all_agree = True
    for dataset, split in SPLITS[:count]:
        (job,) = jobs([f"dataset={dataset}", "anchor=gbdt", "protocol=published"])
        with one_thread():
            row = run_split(job.config(), split)
        notebook = published.notebook("full", dataset)
        if row["status"] != "ok":
            console.print(f"live {dataset} split {split}: {row['error']}", highlight=False, markup=False)
            all_agree = False
            continue
        ours = {"rmse": row["rmse_y"], "nll_z": row["nll_z"]}
        theirs = {name: notebook.values(name)[split - 1] for name in ours}
        agrees = all(abs(ours[name] - theirs[name]) <= TOLERANCE for name in ours)
        all_agree = all_agree and agrees
        figures = ", ".join(f"{name} {ours[name]:.4f} (published {theirs[name]:.4f})" for name in ours)
        console.print(f"live {dataset} split {split}: {figures}: {'agrees' if agrees else 'OFF'}", highlight=False)
    return all_agree
