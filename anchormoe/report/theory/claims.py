"""A claim of the theory beside what was measured, and the rule by which it is judged.

A claim holds if the whole interval of what was measured lies within a tolerance of what is predicted: numbers of
windows are whole and numbers of rows finite, so that slopes of exact rates are a few hundredths off. It holds with a
qualification if the interval comes within twice that, and is not seen otherwise, or where the interval is too wide to
say anything. Where the prediction is an upper bound, everything below agrees. No claim is said to hold unless its
controls failed: the same measurement of something that must not agree, further away than the tolerance. And where a
reference that is known to agree does not, nothing better than a qualification is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anchormoe.report.theory.slopes import Estimate, signed

HOLDS, QUALIFIED, NOT_SEEN = "holds", "holds with a qualification", "not seen"
TOLERANCE = 0.05  # of a prediction up to 1 in size; of a larger one 5%
WIDEST = 0.4  # interval that says something, likewise


@dataclass(frozen=True)
class Part:
    """One measurement of a claim, for example at one dimension."""

    label: str
    predicted: float
    measured: Estimate
    at_most: bool = False  # the prediction is an upper bound

    @property
    def unit(self) -> float:
        """Return what tolerances are multiples of: 1, or the size of a larger prediction."""
        return max(1.0, abs(self.predicted))

    @property
    def distance(self) -> float:
        """Return how far the interval is from the prediction; 0 inside it, or below an upper bound."""
        above, below = self.measured.low - self.predicted, self.predicted - self.measured.high
        return max(0.0, above, 0.0 if self.at_most else below)

    @property
    def verdict(self) -> str:
        """Return the verdict about this part alone."""
        low, high, tolerance = self.measured.low, self.measured.high, TOLERANCE * self.unit
        if high <= self.predicted + tolerance and (self.at_most or low >= self.predicted - tolerance):
            return HOLDS
        return QUALIFIED if self.distance <= 2 * tolerance and high - low <= WIDEST * self.unit else NOT_SEEN

    @property
    def failed(self) -> bool:
        """Tell whether what was measured does not agree, as is required of a control."""
        return self.distance > TOLERANCE * self.unit


@dataclass(frozen=True)
class Claim:
    """A statement of the theory about an object, all its measurements, and the controls, which must not agree."""

    key: str  # the study or theorem that it belongs to
    claim: str
    object: str
    parts: Sequence[Part]
    controls: Sequence[Part] = ()
    references: Sequence[Part] = ()  # what is known to agree

    @property
    def failed_controls(self) -> int:
        """Return the number of controls that failed, as they must."""
        return sum(control.failed for control in self.controls)

    @property
    def verdict(self) -> str:
        """Return the verdict: that of the parts, if there are controls and all of them failed."""
        if not self.controls or self.failed_controls < len(self.controls):
            return NOT_SEEN
        verdicts = {part.verdict for part in self.parts}
        if len(verdicts) > 1 or (verdicts == {HOLDS} and self._missed):
            return QUALIFIED
        return verdicts.pop()

    @property
    def _missed(self) -> list[str]:
        return [reference.label for reference in self.references if reference.verdict == NOT_SEEN]

    @property
    def note(self) -> str:
        """Say which parts keep the verdict from being that the claim holds, and which controls did not fail."""
        notes = []
        off = [part.label for part in self.parts if part.verdict == NOT_SEEN]
        if off and len(off) < len(self.parts):
            notes.append(f"not for {', '.join(off)}")
        near = [part.label for part in self.parts if part.verdict == QUALIFIED]
        if near:
            where = f" for {', '.join(near)}" if len(self.parts) > 1 else ""
            notes.append(f"not within the tolerance{where}")
        passed = [control.label for control in self.controls if not control.failed]
        if passed:
            notes.append(f"the control agrees too: {', '.join(passed)}")
        if self._missed:
            notes.append(f"the reference does not agree for {', '.join(self._missed)}")
        return "; ".join(notes)


def cells(claim: Claim) -> list[str]:
    """Return the cells of a claim's line: claim, object, predicted, measured, controls, verdict."""
    several = len(claim.parts) > 1
    predicted = [f"{'≤ ' if part.at_most else ''}{signed(part.predicted)}" for part in claim.parts]
    labels = [f"{part.label}: " if several else "" for part in claim.parts]
    return [
        claim.claim,
        claim.object,
        "; ".join(map("".join, zip(labels, predicted, strict=True))),
        "; ".join(label + part.measured.text for label, part in zip(labels, claim.parts, strict=True)),
        f"{claim.failed_controls} of {len(claim.controls)} failed" if claim.controls else "none",
        claim.verdict + (f" ({claim.note})" if claim.note else ""),
    ]
