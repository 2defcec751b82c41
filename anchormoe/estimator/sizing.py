"""What changes with the number of rows, so that a fit takes time in proportion to them."""

from __future__ import annotations

from anchormoe.model.settings import AnchorSettings, TrainingSettings

LARGE_ROWS = 50_000  # up to here nothing changes


def at_size(anchor: AnchorSettings, train: TrainingSettings, num_rows: int) -> tuple[AnchorSettings, TrainingSettings]:
    """Return the settings of the cross-fitted recipe for a table of `num_rows` rows."""
    return anchor, train
