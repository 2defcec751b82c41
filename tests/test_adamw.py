"""The compiled AdamW against torch's, with clipping, decay and gradients that are sometimes absent."""

import numpy as np
import pytest
import torch

from anchormoe.model.kernels.adamw import adamw, step

SHAPES = [(3, 4), (7,), (1,), (33, 5)]
SETTINGS = {"learning_rate": 0.01, "weight_decay": 0.1}


@pytest.mark.parametrize("clip_norm", [0.5, 1e6])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_steps_equal_those_of_torch(dtype: type, clip_norm: float) -> None:
    rng = np.random.default_rng(0)
    ours = [rng.standard_normal(shape).astype(dtype) for shape in SHAPES]
    theirs = [torch.nn.Parameter(torch.from_numpy(weight.copy())) for weight in ours]
    optimiser = adamw(ours, clip_norm=clip_norm, **SETTINGS)
    expected = torch.optim.AdamW(theirs, lr=SETTINGS["learning_rate"], weight_decay=SETTINGS["weight_decay"])
    for number in range(12):
        gradients = [rng.standard_normal(shape).astype(dtype) for shape in SHAPES]
        absent = number % 3  # another array each time, which must not change, nor its count of steps
        for i, (parameter, gradient) in enumerate(zip(theirs, gradients, strict=True)):
            parameter.grad = None if i == absent else torch.from_numpy(gradient.copy())
        torch.nn.utils.clip_grad_norm_(theirs, clip_norm)
        before = ours[absent].copy()
        step(optimiser, tuple(gradient.ravel()[: 0 if i == absent else None] for i, gradient in enumerate(gradients)))
        expected.step()
        assert np.array_equal(ours[absent], before)
        for weight, parameter in zip(ours, theirs, strict=True):
            tolerance = 1e-12 if dtype is np.float64 else 1e-6
            np.testing.assert_allclose(weight, parameter.detach().numpy(), rtol=tolerance, atol=tolerance)
