"""What a campaign counts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Outcome:
    """The counts of one kind of fault; everything after `rows` should be zero."""

    fault: str
    kills: int = 0
    rows: int = 0  # rows that were reported as stored, or computed to the end of a sweep
    lost: int = 0
    doubled: int = 0
    different: int = 0
    processes: int = 0  # that outlived their run
    folders: int = 0  # temporary ones that outlived the next run
    tracebacks: int = 0

    HEAD = "| fault | times | rows | lost | doubled | different | orphan processes | folders left | tracebacks |"

    def line(self) -> str:
        counts = (self.kills, self.rows, self.lost, self.doubled, self.different, self.processes)
        return f"| {self.fault} | {' | '.join(f'{n:,}' for n in (*counts, self.folders, self.tracebacks))} |"

    @property
    def is_clean(self) -> bool:
        return not any((self.lost, self.doubled, self.different, self.processes, self.folders, self.tracebacks))
