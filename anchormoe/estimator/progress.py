"""The progress bar of a fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def fit_progress(total: int, *, shown: bool) -> Iterator[Callable[[str], None] | None]:
    """Show a bar over the pieces of a fit with the remaining time; yields what is called after each piece."""
    if not shown:
        yield None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns) as progress:
        bar = progress.add_task("fitting", total=total)
        yield lambda title: progress.update(bar, advance=1, description=f"fitting {title}")
