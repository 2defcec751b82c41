"""The kernel-ridge mixture behind the published Kin8nm row."""

import numpy as np

from anchormoe.methods.rff_krr import RIDGE, _weighted_ridge


def test_the_weighted_ridge_is_the_normal_equations_solution() -> None:
    rng = np.random.default_rng(0)
    design, weight, z = rng.standard_normal((80, 120)), rng.uniform(0, 1, 80), rng.standard_normal(80)
    gram = design.T @ (weight[:, None] * design) + RIDGE * np.eye(120)
    expected = np.linalg.solve(gram, design.T @ (weight * z))
    np.testing.assert_allclose(_weighted_ridge(design, weight, z), expected, rtol=1e-7, atol=1e-9)
