"""The kernel-ridge mixture behind the published Kin8nm row."""

import numpy as np
import pytest

from anchormoe.methods.rff_krr import RIDGE, _weighted_ridge


@pytest.mark.parametrize("num_rows", [80, 200], ids=["fewer rows than features", "more"])
def test_the_weighted_ridge_is_the_normal_equations_solution(num_rows: int) -> None:
    rng = np.random.default_rng(0)
    design, weight = rng.standard_normal((num_rows, 120)), rng.uniform(0, 1, num_rows)
    z = rng.standard_normal(num_rows)
    gram = design.T @ (weight[:, None] * design) + RIDGE * np.eye(120)
    expected = np.linalg.solve(gram, design.T @ (weight * z))
    np.testing.assert_allclose(_weighted_ridge(design, weight, z), expected, rtol=1e-7, atol=1e-9)
