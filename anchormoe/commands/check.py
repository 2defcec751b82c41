"""The command `anchormoe-bench check`: compare stored rows with the published numbers and recompute a few splits."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from anchormoe.commands.options import parse_options, write_text
from anchormoe.commands.rows import stored_rows, table_rows
from anchormoe.errors import UserError
from anchormoe.report import check, published

HELP = """anchormoe-bench check [missing=off|ok] [live=2] [show=problems|all] [output=FILE] [results_dir=FOLDER]

Compares stored rows of protocol=published with the authors' numbers, split by split, and recomputes `live` splits.
Exit code 1 if a cell is off, or missing unless missing=ok. With output= the full report is written to a file too.
Without results_dir= the shipped rows and those of ./results are read, with it that folder alone."""

# Fast splits that come out to the published digits with scikit-learn's trees; what may differ is float32 rounding.
LIVE_SPLITS = (("boston", 2), ("wine", 3), ("boston", 6), ("concrete", 3), ("boston", 13), ("wine", 9))
LIVE_TOLERANCE = 0.005


def main(arguments: list[str]) -> int:
    """Run the command."""
    options = parse_options(
        arguments,
        HELP,
        {"missing": ("off", "ok"), "live": None, "show": ("problems", "all"), "output": None, "results_dir": None},
    )
    if options is None:
        return 0
    live = options["live"] or "2"
    if not live.isdigit():
        raise UserError(f"live must be a number of splits, received {live}")
    if not 0 <= int(live) <= len(LIVE_SPLITS):
        raise UserError(f"live must be from 0 to {len(LIVE_SPLITS)}, received {live}")
    console = Console()
    rows = table_rows(stored_rows(options["results_dir"] or None))
    report = check.check(rows, require_all=options["missing"] == "off")
    console.print(check.to_rich(report, problems_only=options["show"] == "problems"))
    if options["output"]:
        text = io.StringIO()
        Console(file=text, width=110).print(check.to_rich(report))
        write_text(Path(options["output"]), text.getvalue())
    live_ok = live_check(int(live), console)
    return 0 if report.exit_code == 0 and live_ok else 1


def live_check(count: int, console: Console) -> bool:
    """Recompute the first `count` of LIVE_SPLITS and tell whether all agree with the published values.

    Stored rows show what the code computed when they were made; this shows what it computes now.
    """
    if count == 0:
        return True
    from anchormoe.config.compose import jobs
    from anchormoe.running.evaluate import evaluate
    from anchormoe.running.tasks import make_task
    from anchormoe.running.threads import one_thread

    all_agree = True
    for dataset, split in LIVE_SPLITS[:count]:
        (job,) = jobs([f"dataset={dataset}", "anchor=gbdt", "protocol=published"])
        with one_thread():
            row = evaluate(make_task(job.config(), split))
        if row["status"] != "ok":
            console.print(f"live {dataset} split {split}: {row['error']}", highlight=False, markup=False)
            all_agree = False
            continue
        notebook = published.notebook("full", dataset)
        ours = {"rmse": row["rmse_y"], "nll_z": row["nll_z"]}
        theirs = {name: notebook.values(name)[split - 1] for name in ours}
        agrees = all(abs(ours[name] - theirs[name]) <= LIVE_TOLERANCE for name in ours)
        all_agree = all_agree and agrees
        figures = ", ".join(f"{name} {ours[name]:.4f} (published {theirs[name]:.4f})" for name in ours)
        console.print(f"live {dataset} split {split}: {figures}: {'agrees' if agrees else 'OFF'}", highlight=False)
    return all_agree
