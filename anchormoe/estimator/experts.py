"""The number of experts that the paper's theory suggests."""

from __future__ import annotations

import math
from numbers import Integral, Real


def suggest_num_experts(
    n: int, d: int, alpha: float = 1.0, intrinsic_dim: float | None = None, sparsity: int | None = None
) -> int:
    """Suggest a number of experts K for n rows, by the paper's balance of approximation and estimation error.

    With K windows, a regression function that is Hölder smooth of order alpha on m dimensions is estimated with the
    squared error

        C1 K^(-2 alpha / m) + C2 K / n,

    the first term from approximation, the second from estimation (Section 4 and Theorem A1.5). The two are balanced,
    and the error has the minimax rate n^(-2 alpha / (2 alpha + m)), at

        K = n^(m / (2 alpha + m)),    m = min(d, intrinsic_dim, sparsity).

    The theory fixes the order of K and not its constants, which are taken to be 1; the result is rounded to a whole
    number. It assumes windows that are not learnt, and leaves the anchor out of account, which takes work off the
    experts: the paper's experiments do with K = 8 throughout. Take the result as an upper end to try.

    Parameters
    ----------
    n : int
        Number of training rows.
    d : int
        Number of features.
    alpha : float
        Order of smoothness of the regression function; 1 is Lipschitz continuous.
    intrinsic_dim : float or None
        Dimension of the manifold that the rows lie on, if it is lower than d; an estimate need not be whole.
    sparsity : int or None
        Number of features that the regression function depends on, if it is fewer than d.

    Returns
    -------
    int
        The number of experts, at least 1 and at most n.

    Examples
    --------
    >>> suggest_num_experts(10_000, 6)
    1000
    >>> suggest_num_experts(10_000, 6, intrinsic_dim=2)
    100
    >>> suggest_num_experts(10_000, 6, alpha=3, sparsity=2)
    10
    """
    _require_count("n", n)
    _require_count("d", d)
    if isinstance(alpha, bool) or not isinstance(alpha, Real) or not 0 < alpha < math.inf:
        raise ValueError(f"alpha must be a positive number, received {alpha!r}")
    dimension: float = d
    if intrinsic_dim is not None:
        if isinstance(intrinsic_dim, bool) or not isinstance(intrinsic_dim, Real) or not 0 < intrinsic_dim <= d:
            raise ValueError(f"intrinsic_dim must be a positive number up to d={d}, received {intrinsic_dim!r}")
        dimension = min(dimension, float(intrinsic_dim))
    if sparsity is not None:
        _require_count("sparsity", sparsity)
        if sparsity > d:
            raise ValueError(f"sparsity must be at most the number of features d={d}, received {sparsity!r}")
        dimension = min(dimension, sparsity)
    return round(n ** (dimension / (2 * alpha + dimension)))


def _require_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, received {value!r}")
