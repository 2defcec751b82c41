"""Concrete dropout: dropout rates learned by gradient, through a relaxation (Gal, Hron and Kendall, 2017)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.methods.base import StandardisedRegressor, hold_out, standardiser
from anchormoe.methods.batched_networks import (
    Architecture,
    Layers,
    mean_and_variance,
    negative_log_likelihood,
    num_steps,
    train,
)

TEMPERATURE = 0.1
INITIAL_RATE = 0.1
# The learned variance keeps shrinking on the rows it is trained on, and the rates shrink with it. So training must stop
# early, and where little noise is left (Naval) it needs small steps. Several networks are trained side by side to make
# the choice less random.
FRACTIONS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
NUM_TRIALS = 3


class ConcreteDropout(StandardisedRegressor):
    """One network with a mean, a variance and a learned dropout rate per layer.

    The learning rate and the length of training are chosen on held-out rows.

    p(y | x) = 1/T sum_t N(y; mu(x; w_t), s^2(x; w_t)), w_t: the weights under the t-th relaxed mask. The T masks are
    drawn once, so that a row's prediction does not depend on the rows beside it.
    """

    def __init__(
        self,
        *,
        hidden_dim: int = 50,
        num_samples: int = 100,
        epochs: int = 400,
        max_steps: int = 12_000,
        batch_size: int = 128,
        learning_rates: Sequence[float] = (3e-3, 1e-2),
        length_scale: float = 1e-2,
        random_state: int = 0,
    ) -> None:
        super().__init__(random_state=random_state)
        self.hidden_dim, self.num_samples = hidden_dim, num_samples
        self.epochs, self.max_steps, self.batch_size = epochs, max_steps, batch_size
        self.learning_rates, self.length_scale = tuple(learning_rates), length_scale

    def _fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        train_rows, validation = hold_out(len(y), seed)
        to_columns = standardiser(X[train_rows])
        rate_of_trial = np.repeat(self.learning_rates, NUM_TRIALS)
        stages = self._train(to_columns(X[train_rows]), y[train_rows], FRACTIONS, rate_of_trial, generator)

        def likelihood(network: Layers) -> float:
            mixture = _mixture(self._sample(network, generator), to_columns(X[validation]))
            return float(mixture.log_prob(y[validation]).mean())

        likelihoods = {
            (rate, fraction): np.mean(
                [likelihood(networks.only(trial)) for trial in np.flatnonzero(rate_of_trial == rate)]
            )
            for networks, fraction in zip(stages, FRACTIONS, strict=True)
            for rate in self.learning_rates
        }
        self.learning_rate, self.fraction = max(likelihoods, key=likelihoods.__getitem__)

        self.to_columns = standardiser(X)
        (network,) = self._train(self.to_columns(X), y, [self.fraction], [self.learning_rate], generator)
        self.rates = _logits(network).sigmoid().flatten().tolist()  # of the inputs and of the hidden units
        self.networks = self._sample(network, generator)

    def _train(
        self,
        X: np.ndarray,
        y: np.ndarray,
        fractions: Sequence[float],
        learning_rates: Sequence[float] | np.ndarray,
        generator: torch.Generator,
    ) -> list[Layers]:
        """Train a network for each learning rate and return them after each fraction of the full training."""

        def loss(layers: Layers, x_MBI: Tensor, y_MB: Tensor) -> Tensor:
            logit_2M11 = _logits(layers).unflatten(1, (-1, 1, 1))
            input_mask = _relaxed_mask(logit_2M11[0], x_MBI.shape, generator)
            hidden_mask = _relaxed_mask(logit_2M11[1], (*y_MB.shape, self.hidden_dim), generator)
            outputs_MB2 = layers(x_MBI, input_mask, hidden_mask)
            fit_M = negative_log_likelihood(*mean_and_variance(outputs_MB2), y_MB).mean(1)
            return fit_M + _divergence(layers, self.length_scale) / len(y)

        steps = num_steps(len(y), epochs=self.epochs, batch_size=self.batch_size, max_steps=self.max_steps)
        architecture = Architecture(X.shape[1], self.hidden_dim, 2, further_dim=2)
        return train(
            architecture,
            architecture.initial(len(learning_rates), generator=generator),
            X,
            y,
            loss,
            learning_rate=torch.as_tensor(learning_rates),
            steps=[math.ceil(fraction * steps) for fraction in fractions],
            batch_size=self.batch_size,
            generator=generator,
        )

    def _sample(self, network: Layers, generator: torch.Generator) -> Layers:
        logit_21 = _logits(network)
        return network.masked(
            _relaxed_mask(logit_21[0], (self.num_samples, network.hidden_weight_MIH.shape[1]), generator),
            _relaxed_mask(logit_21[1], (self.num_samples, self.hidden_dim), generator),
        )

    def _predict(self, X: np.ndarray) -> GaussianMixture:
        return _mixture(self.networks, self.to_columns(X))


def _mixture(networks: Layers, X: np.ndarray) -> GaussianMixture:
    means, variances = mean_and_variance(networks.predict(X))
    return GaussianMixture.equal_weights(means.T.numpy(), variances.sqrt().T.numpy())


def _logits(layers: Layers) -> Tensor:
    """Return log(p / (1 - p)) of both layers' rates p (2, M), learned as the difference from the initial rate's."""
    return layers.further.T + math.log(INITIAL_RATE / (1 - INITIAL_RATE))


def _relaxed_mask(logit: Tensor, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draw (1 - z) / (1 - p), z = sigmoid((logit p + logit u) / temperature), u uniform: near 0 with probability p."""
    uniform = torch.rand(*shape, generator=generator).clamp_(1e-7, 1 - 1e-7)
    kept = torch.sigmoid(-(logit + uniform.logit()) / TEMPERATURE)
    return kept / torch.sigmoid(-logit)


def _divergence(layers: Layers, length_scale: float) -> Tensor:
    """Return KL(q || prior) of each network (M), up to a constant: sum over layers l^2 |W|^2 / (2 (1 - p)) - K H(p).

    K is the number of units the rate is for, H the entropy of a Bernoulli variable.
    """
    logits = _logits(layers)
    total = torch.zeros(logits.shape[1])
    units = layers.hidden_weight_MIH.shape[1], layers.output_weight_MHO.shape[1]
    for logit, squares, num_units in zip(logits, layers.squared_weights(), units, strict=True):
        rate = logit.sigmoid()
        entropy = torch.nn.functional.softplus(logit) - rate * logit
        total = total + length_scale**2 * squares / (2 * (1 - rate)) - num_units * entropy
    return total
