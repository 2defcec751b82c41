"""The resolution of a target: the step in which its values were recorded."""

import numpy as np

_MOST_DECIMALS = 9  # a target with more is taken as continuous; a step that small changes no score
_EXACT = 2**53  # whole numbers up to this are exact in float64


def recording_step(y: np.ndarray) -> float:
    """Return the largest step of which all differences of recorded values are multiples, 0 if there is none.

    The values must be decimal numbers: 0.5, 0.25 and 10 are found as well as 0.001. Numbers with more than nine
    decimals, and a target of one value, have no step.
    """
    values = np.unique(y)
    for decimals in range(_MOST_DECIMALS + 1):
        unit = 10.0**decimals
        whole = np.rint(values * unit)
        if np.abs(whole).max() >= _EXACT:
            return 0.0
        if np.array_equal(whole / unit, values):
            return float(np.gcd.reduce(np.diff(whole.astype(np.int64)))) / unit if len(values) > 1 else 0.0
    return 0.0


def repeated_share(y: np.ndarray) -> float:
    """Return the share of rows whose target value, or values, another row has too."""
    _, counts = np.unique(y, return_counts=True, axis=0)
    return float(counts[counts > 1].sum() / len(y))
