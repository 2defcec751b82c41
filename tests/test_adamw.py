"""The compiled AdamW against torch's, with clipping, decay and gradients that are sometimes absent."""

import itertools

import numpy as np
import pytest
import torch
from numba import njit

from anchormoe.model.kernels import adamw

SIZES = [12, 7, 1, 165]
STARTS = np.cumsum([0, *SIZES])
SETTINGS = {"learning_rate": 0.01, "weight_decay": 0.1}


@njit
def step(optimiser, moves):
    adamw.step(optimiser, moves)


@pytest.mark.parametrize("clip_norm", [0.5, 1e6])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_steps_equal_those_of_torch(dtype: type, clip_norm: float) -> None:
    rng = np.random.default_rng(0)
    weights = rng.standard_normal(STARTS[-1]).astype(dtype)
    gradients = np.empty_like(weights)
    segments = [slice(*ends) for ends in itertools.pairwise(STARTS)]
    theirs = [torch.nn.Parameter(torch.from_numpy(weights[segment].copy())) for segment in segments]
    ours = adamw.adamw(weights, gradients, STARTS, clip_norm=clip_norm, **SETTINGS)
    expected = torch.optim.AdamW(theirs, lr=SETTINGS["learning_rate"], weight_decay=SETTINGS["weight_decay"])
    for number in range(12):
        gradients[:] = rng.standard_normal(len(gradients))
        moves = np.arange(len(SIZES)) != number % 3  # another is absent each time; it must stand still, its count too
        for parameter, segment, moving in zip(theirs, segments, moves, strict=True):
            parameter.grad = torch.from_numpy(gradients[segment].copy()) if moving else None
        torch.nn.utils.clip_grad_norm_(theirs, clip_norm)
        before = weights.copy()
        step(ours, moves)
        expected.step()
        assert np.array_equal(weights[segments[number % 3]], before[segments[number % 3]])
        received = torch.cat([parameter.detach() for parameter in theirs]).numpy()
        tolerance = 1e-12 if dtype is np.float64 else 1e-6
        np.testing.assert_allclose(weights, received, rtol=tolerance, atol=tolerance)
