"""Between the torch module and the kernels: its weights as arrays, its settings as numbers, steps and predictions."""

from __future__ import annotations

import numpy as np
from torch import Tensor, from_numpy

from anchormoe.model.kernels import epoch as kernels
from anchormoe.model.kernels.adamw import adamw
from anchormoe.model.kernels.epoch import NUM_GATE_WEIGHTS, Settings, Weights
from anchormoe.model.kernels.experts import BLOCK_ROWS
from anchormoe.model.kernels.router import COSINE_ROUTER, DOT_ROUTER, NO_ROUTER
from anchormoe.model.network import AnchorMoE
from anchormoe.model.settings import AnchorMode, Combination, SmoothAt, TrainingSettings
from anchormoe.model.training import Batch, Objective


class CompiledSteps:
    """The compiled epoch on a copy of the model's weights."""

    def __init__(self, model: AnchorMoE, config: TrainingSettings) -> None:
        self.model = model
        segments = parameters(model)
        self.trained_S = np.array([segment.requires_grad for segment in segments])
        flat_P = pack(model)
        gradient_P = np.zeros_like(flat_P)
        self.weight_views, self.gradient_views = views(model, flat_P), views(model, gradient_P)
        self.optimiser = adamw(
            flat_P,
            gradient_P,
            np.cumsum([0, *(segment.numel() for segment in segments)]),
            learning_rate=config.learning_rate,
            weight_decay=config.weight_decay,
            clip_norm=config.clip_norm,
        )
        self.scratch_4PH = scratch(model)
        self.num_steps = 0

    def run(self, batch: Batch, batch_size: int, objective: Objective) -> float:
        value = kernels.train_epoch(
            *arrays(batch.x, batch.anchor, batch.y, batch.weights),
            batch_size,
            self.weight_views,
            self.gradient_views,
            self.optimiser,
            self.trained_S,
            self.scratch_4PH,
            settings(self.model, training=True),
            objective,
            self.num_steps,
        )
        self.num_steps += -(-len(batch.y) // batch_size)
        return value

    def mean_nll(self, batch: Batch) -> float:
        x, anchor, y, row_weight = arrays(batch.x, batch.anchor, batch.y, batch.weights)
        numbers = settings(self.model, training=False)
        mixture = kernels.mixture(x, anchor, self.weight_views, self.scratch_4PH, numbers)
        return float(kernels.mean_nll(*mixture, y, row_weight))

    def weights(self) -> np.ndarray:
        return self.optimiser.weight_P.copy()

    def store(self, weights: np.ndarray) -> None:
        start = 0
        for parameter in parameters(self.model):
            last = start + parameter.numel()
            parameter.detach().copy_(from_numpy(weights[start:last]).view(parameter.shape))
            start = last


def predict_compiled(model: AnchorMoE, batch: Batch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return log weights, means and scales of each row's components, (N, M), in evaluation mode."""
    x, anchor = arrays(batch.x, batch.anchor)
    return kernels.mixture(x, anchor, views(model, pack(model)), scratch(model), settings(model, training=False))


def arrays(*tensors: Tensor) -> tuple[np.ndarray, ...]:
    """Return contiguous arrays, views of the tensors where these are contiguous."""
    return tuple(tensor.detach().contiguous().numpy() for tensor in tensors)


def parameters(model: AnchorMoE) -> list[Tensor]:
    """Return the model's weights in the kernels' order; an absent part has empty ones."""
    projection, window, norm, router = model.projection, model.window, model.projection.norm, model.router
    empty, empty_matrix = window.center_KD.new_empty(0), window.center_KD.new_empty(0, 0)
    return [
        *(projection.weight_DI, projection.bias_D),
        *((empty, empty) if norm is None else (norm.weight, norm.bias)),
        *(window.center_KD, window.log_scale_KD),
        *(
            (empty_matrix, empty, empty_matrix)
            if router is None
            else (router.query_RD, router.query_bias_R, router.key_KR)
        ),
        *model.experts.packed,
    ]


def pack(model: AnchorMoE) -> np.ndarray:
    """Return a copy of all weights as one flat array."""
    return np.concatenate([array.ravel() for array in arrays(*parameters(model))])


def views(model: AnchorMoE, flat: np.ndarray) -> Weights:
    """Return views of a flat array in the shapes of the model's weights."""
    pieces, start = [], 0
    for parameter in parameters(model)[:NUM_GATE_WEIGHTS]:
        last = start + parameter.numel()
        pieces.append(flat[start:last].reshape(parameter.shape))
        start = last
    return Weights._make([*pieces, flat[start:].reshape(len(model.experts.packed), -1)])


def scratch(model: AnchorMoE) -> np.ndarray:
    """Return memory for the hidden layers of a block of rows; what is not used of it stays unmapped."""
    shape = (4, BLOCK_ROWS * model.config.top_k, model.experts.hidden_dim)
    return np.empty(shape, arrays(model.window.center_KD)[0].dtype)


def settings(model: AnchorMoE, *, training: bool) -> Settings:
    """Return the numbers that the kernels take, in training or evaluation mode and at the model's temperature."""
    config, router = model.config, model.router
    smoothed = training or config.smooth_at is SmoothAt.always
    return Settings(
        router=NO_ROUTER if router is None else COSINE_ROUTER if router.cosine else DOT_ROUTER,
        layer_norm=model.projection.norm is not None,
        log_space=config.combination is Combination.log_space,
        log_scale_min=float(model.window.log_scale_min),
        log_scale_max=float(model.window.log_scale_max),
        top_k=config.top_k,
        smoothing=float(config.smoothing) if smoothed else 0.0,
        temperature=float(model.temperature),
        num_components=model.experts.num_components,
        dropout=float(model.experts.dropout),
        use_anchor=config.anchor_mode is not AnchorMode.free,
        use_delta=config.anchor_mode is not AnchorMode.only,
        sigma_min=float(config.sigma_min),
        sigma_max=float(config.sigma_max),
    )
