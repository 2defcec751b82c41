"""The preflight of a dataset as a table, and its file beside the rows."""

from __future__ import annotations

import json

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from anchormoe.data.catalogue import DatasetInfo
from anchormoe.data.preflight import Preflight, preflight
from anchormoe.data.splits import Scheme
from anchormoe.errors import UserError
from anchormoe.running.store import Place, path_for

_MOST_NAMES = 6


def show_preflight(info: DatasetInfo, console: Console, path: Place | None = None) -> Preflight:
    """Look at a dataset, print what was found as one table and, if a place is given, store it there as JSON."""
    found = preflight(info)
    console.print(table_of(found))
    if path is not None:
        try:
            path.put((json.dumps(found.as_json(), indent=2, ensure_ascii=False) + "\n").encode())
        except OSError as error:
            raise UserError(
                f"results_dir must be a folder that can be written to, received {path}: {error.strerror}"
            ) from None
    return found


def preflight_path(results_dir: str, experiment: str, dataset: str) -> Place:
    """Return the place where a dataset's preflight is stored, beside its rows."""
    return path_for(results_dir, experiment, dataset).with_suffix(".preflight.json")


def table_of(found: Preflight) -> Table:
    table = Table(title=f"Preflight of {found.dataset}", box=box.SIMPLE_HEAD, title_justify="left", show_header=False)
    table.add_column("what", no_wrap=True)
    table.add_column("found", overflow="fold")
    for name, text in _lines(found):
        table.add_row(name, Text(text))  # names of columns are no markup
    for finding in found.findings():
        table.add_row(Text("look at", style="bold"), Text(finding), style="yellow")
    return table


def _lines(found: Preflight) -> list[tuple[str, str]]:
    target = found.target
    dropped = f", {found.missing_targets} more dropped: they have no target" if found.missing_targets else ""
    lines = [
        ("rows", f"{found.rows}{dropped}"),
        ("features", ", ".join(f"{count} {kind}" for kind, count in found.kinds.items())),
        ("missing values", _shares(found.missing) or "none"),
        ("repeated rows", str(found.hazards.repeated_rows or "none")),
        ("target", f"{target.name}, {target.lowest:g} to {target.highest:g}" + _recorded(found)),
        ("outliers", f"{target.outliers} rows far from the median" if target.outliers else "none"),
        ("splits", _splits(found)),
    ]
    lines += [("left out", f"{name}: {reason}") for name, reason in found.left_out.items()]
    lines += [("seconds per fit", f"{method}: {seconds:.1f}") for method, seconds in found.seconds.items()]
    return lines


def _recorded(found: Preflight) -> str:
    target = found.target
    step = f", in steps of {target.step:g}" if target.step else ""
    return step + (f", {target.repeated_share:.0%} of the values repeat earlier ones" if target.repeated_share else "")


def _shares(missing: dict[str, float]) -> str:
    largest = sorted(missing.items(), key=lambda item: -item[1])
    named = ", ".join(f"{name} {share:.1%}" for name, share in largest[:_MOST_NAMES])
    return named + (f" and {len(largest) - _MOST_NAMES} more columns" if len(largest) > _MOST_NAMES else "")


def _splits(found: Preflight) -> str:
    fewest, most = min(found.test_rows), max(found.test_rows)
    size = f"{fewest} test rows" if fewest == most else f"{fewest} to {most} test rows"
    if found.scheme == Scheme.groups.value:
        return f"20, whole groups on one side ({found.num_groups} groups), {size}"
    if found.scheme == Scheme.time.value:
        return f"20, each trained on all earlier rows and tested on the next ones, {size}"
    return f"20, 90% of the rows to train and {found.test_rows[0]} to test, at random"
