"""Numbers as text, with as many digits as they are known to."""

from __future__ import annotations

import math

MOST_DECIMALS = 5  # with more decimals, or for means below, scientific notation is easier to read
SMALL_MEAN = 0.001
_DIGITS_ALONE = 3  # significant digits of a small number without a spread
_ROUNDING = 1e-9  # a spread below this share of its mean is rounding of the arithmetic, not a spread


def plus_minus(mean: float, spread: float | None, *, least: int) -> str:
    """Write `mean ± spread` with `least` decimals, or with more where these would hide the spread.

    A spread below two units of the last decimal would be shown as 0 or 1. It gets two significant digits instead, and
    the mean ends at the same place: `0.037 ± 0.000` is written `0.03702 ± 0.00021`, and still smaller numbers
    `9.35e-06 ± 1.2e-07`. Without a spread the number alone is written.
    """
    decimals = _decimals(mean, spread, least)
    if decimals > MOST_DECIMALS or (decimals > least and abs(mean) < SMALL_MEAN):
        number = _scientific(mean, decimals)
        return number if spread is None else f"{number} ± {_scientific(spread, decimals)}"
    return fixed(mean, spread, decimals)


def fixed(mean: float, spread: float | None, decimals: int) -> str:
    """Write `mean ± spread` with exactly this number of decimals."""
    return f"{mean:.{decimals}f}" if spread is None else f"{mean:.{decimals}f} ± {spread:.{decimals}f}"


def _decimals(mean: float, spread: float | None, least: int) -> int:
    """Return the number of decimals that shows enough digits of the spread or, without one, of the mean."""
    digits, size, enough = _DIGITS_ALONE, abs(mean), 1
    if spread is not None and spread > _ROUNDING * size:
        digits, size, enough = 2, spread, 2
    if not math.isfinite(size) or size == 0 or size >= enough * 10.0**-least:
        return least
    return digits - 1 - math.floor(math.log10(float(f"{size:.{digits - 1}e}")))


def _scientific(value: float, decimals: int) -> str:
    """Write a number in scientific notation, down to the same decimal place as `decimals` would."""
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(value)))
    return f"{value:.{max(decimals + exponent, 1)}e}"
