"""The objective that training descends and its gradients, as the kernels compute them, for one batch."""

import torch

from anchormoe.model import training
from anchormoe.model.kernels.interface import CompiledSteps, parameters
from anchormoe.model.network import AnchorMoE
from anchormoe.model.settings import TrainingSettings
from anchormoe.model.training import Batch


def objective(
    model: AnchorMoE, batch: Batch, config: TrainingSettings, epoch: int, dropout_seed: int = 1
) -> tuple[float, dict[str, torch.Tensor | None]]:
    """Return the value and the gradients by name, None where the optimiser passes a weight over."""
    steps = CompiledSteps(model, config)
    steps.optimiser = steps.optimiser._replace(learning_rate=0.0)
    steps.num_steps = dropout_seed - 1
    value = steps.run(batch, len(batch.y), training.objective(model, config, epoch))
    optimiser, names = steps.optimiser, {id(parameter): name for name, parameter in model.named_parameters()}
    gradients: dict[str, torch.Tensor | None] = {}
    for s, parameter in enumerate(parameters(model)):
        if id(parameter) in names:
            piece = torch.from_numpy(optimiser.gradient_P[optimiser.start_S[s] : optimiser.start_S[s + 1]])
            gradients[names[id(parameter)]] = piece.view(parameter.shape) if optimiser.steps_S[s] else None
    return value, gradients
