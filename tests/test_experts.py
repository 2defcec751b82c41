"""The suggested number of experts follows the paper's formula."""

from __future__ import annotations

import doctest
import math
import re
from typing import Any

import numpy as np
import pytest

from anchormoe import suggest_num_experts
from anchormoe.estimator import experts


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"n": 1000, "d": 1}, 10),  # 1000^(1/3)
        ({"n": 4096, "d": 2}, 64),  # 4096^(2/4)
        ({"n": 10_000, "d": 6}, 1000),  # 10000^(6/8)
        ({"n": 10_000, "d": 4, "alpha": 2.0}, 100),  # 10000^(4/8)
        ({"n": 10_000, "d": 6, "intrinsic_dim": 2}, 100),  # 10000^(2/4)
        ({"n": 506, "d": 13, "sparsity": 1}, 8),  # 506^(1/3) = 7.97
        ({"n": 506, "d": 13, "intrinsic_dim": 1.0}, 8),
        ({"n": 32, "d": 9, "alpha": 0.5, "intrinsic_dim": 1.5}, 8),  # 32^(1.5/2.5) = 2^3
        ({"n": 10_000, "d": 8, "intrinsic_dim": 6, "sparsity": 2}, 100),  # the smaller of the two
        ({"n": 10_000, "d": 8, "intrinsic_dim": 2, "sparsity": 6}, 100),
        ({"n": 1, "d": 5}, 1),
        ({"n": np.int64(4096), "d": np.int64(2), "alpha": np.float64(1)}, 64),
    ],
)
def test_values_computed_by_hand(arguments: dict[str, Any], expected: int) -> None:
    suggested = suggest_num_experts(**arguments)
    assert suggested == expected
    assert type(suggested) is int


@pytest.mark.parametrize("n", [300, 5000, 200_000])
@pytest.mark.parametrize(("d", "alpha"), [(2, 1.0), (5, 1.5), (9, 0.7)])
def test_the_suggestion_balances_the_two_terms_of_the_bound(n: int, d: int, alpha: float) -> None:
    """With both constants 1, approximation exceeds estimation just below the suggestion and not just above it."""
    suggested = suggest_num_experts(n, d, alpha)

    def excess(num_experts: float) -> float:
        return num_experts ** (-2 * alpha / d) - num_experts / n

    assert excess(suggested - 0.5) >= 0 >= excess(suggested + 0.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0, "d": 3}, "n must be a whole number of at least 1, received 0"),
        ({"n": 10.5, "d": 3}, "n must be a whole number of at least 1, received 10.5"),
        ({"n": 10, "d": True}, "d must be a whole number of at least 1, received True"),
        ({"n": 10, "d": 3, "alpha": 0}, "alpha must be a positive number, received 0"),
        ({"n": 10, "d": 3, "alpha": math.nan}, "alpha must be a positive number, received nan"),
        ({"n": 10, "d": 3, "alpha": math.inf}, "alpha must be a positive number, received inf"),
        ({"n": 10, "d": 3, "alpha": "1"}, "alpha must be a positive number, received '1'"),
        ({"n": 10, "d": 3, "intrinsic_dim": 4}, "intrinsic_dim must be a positive number up to d=3, received 4"),
        ({"n": 10, "d": 3, "intrinsic_dim": 0}, "intrinsic_dim must be a positive number up to d=3, received 0"),
        ({"n": 10, "d": 3, "sparsity": 4}, "sparsity must be at most the number of features d=3, received 4"),
        ({"n": 10, "d": 3, "sparsity": 1.5}, "sparsity must be a whole number of at least 1, received 1.5"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        suggest_num_experts(**arguments)


def test_the_examples_of_the_docstring() -> None:
    assert doctest.testmod(experts).failed == 0
    assert doctest.testmod(experts).attempted == 3
