"""The objective that training descends and its gradients, as the kernels compute them, for one batch."""

import numpy as np

from anchormoe.config.schema import TrainingSettings
from anchormoe.model.kernels import network as network_kernels
from anchormoe.model.network import AnchorMoE, arrays
from anchormoe.model.training import Batch
from anchormoe.model.training import objective as what_is_descended


def objective(
    model: AnchorMoE, batch: Batch, config: TrainingSettings, epoch: int, dropout_seed: int = 0
) -> tuple[float, list[np.ndarray | None]]:
    """Return gradients in the order and shapes of model.parameters(), None where the kernels give an empty one."""
    value, gradients = network_kernels.objective_and_gradients(
        *arrays(batch.x, batch.anchor, batch.y),
        model.weights(),
        model.settings(),
        what_is_descended(model, config, epoch),
        dropout_seed,
    )
    weights = model.weights()
    present = [
        gradient.reshape(weight.shape) if gradient.size else None
        for weight, gradient in zip((*weights.gates, *weights.experts), gradients, strict=True)
        if weight.size
    ]
    return value, present
