"""MC dropout: one network whose dropout stays on at prediction (Gal and Ghahramani, 2016)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.methods.base import StandardisedRegressor, hold_out, standardiser
from anchormoe.methods.batched_networks import Architecture, Layers, num_steps, train

# Scales 1 / sqrt(tau) to choose from, of the target's standard deviation.
SCALES = np.geomspace(1e-3, 2.0, 60)
# The paper ties weight decay to tau. Here tau is chosen after training, so decay uses the tau of a target that is all
# noise; at the paper's length scale the decay is almost zero for that tau, and less for any larger one.
DECAY_PRECISION = 1.0


class MCDropout(StandardisedRegressor):
    """One network with dropout at prediction, fitted to all rows.

    The rate and tau are chosen by the log-likelihood of held-out rows.

    p(y | x) = 1/T sum_t N(y; f(x; w_t), 1/tau), w_t: the weights under the t-th dropout mask. The T masks are drawn
    once, so that a row's prediction does not depend on the rows beside it.
    """

    def __init__(
        self,
        *,
        hidden_dim: int = 50,
        rates: Sequence[float] = (0.005, 0.01, 0.05, 0.1),
        num_samples: int = 100,
        epochs: int = 400,
        max_steps: int = 15_000,
        batch_size: int = 128,
        learning_rate: float = 1e-2,
        length_scale: float = 1e-2,
        random_state: int = 0,
    ) -> None:
        super().__init__(random_state=random_state)
        self.hidden_dim, self.rates, self.num_samples = hidden_dim, tuple(rates), num_samples
        self.epochs, self.max_steps, self.batch_size = epochs, max_steps, batch_size
        self.learning_rate, self.length_scale = learning_rate, length_scale

    def _fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        train_rows, validation = hold_out(len(y), seed)
        to_columns = standardiser(X[train_rows])
        networks = self._train(to_columns(X[train_rows]), y[train_rows], self.rates, generator)
        best = -math.inf
        self.rate, self.scale = self.rates[0], float(SCALES[-1])
        for index, rate in enumerate(self.rates):
            means = _sample(networks.only(index), rate, self.num_samples, generator).predict(to_columns(X[validation]))
            for scale in SCALES:
                likelihood = float(_mixture(means, float(scale)).log_prob(y[validation]).mean())
                if likelihood > best:
                    best, self.rate, self.scale = likelihood, rate, float(scale)

        self.to_columns = standardiser(X)
        network = self._train(self.to_columns(X), y, [self.rate], generator)
        self.networks = _sample(network, self.rate, self.num_samples, generator)

    def _train(self, X: np.ndarray, y: np.ndarray, rates: Sequence[float], generator: torch.Generator) -> Layers:
        """Train one network per rate."""
        rate_M = torch.tensor(rates)
        # lambda = (1 - p) l^2 / (2 N tau), in 1/N sum_n (y_n - f(x_n))^2 / 2 + lambda sum_w w^2
        decay_M = (1 - rate_M) * self.length_scale**2 / (2 * len(y) * DECAY_PRECISION)
        rate_M11 = rate_M.reshape(-1, 1, 1)

        def loss(layers: Layers, x_MBI: Tensor, y_MB: Tensor) -> Tensor:
            input_mask = _mask(rate_M11, x_MBI.shape, generator)
            hidden_mask = _mask(rate_M11, (*y_MB.shape, self.hidden_dim), generator)
            error_MB = layers(x_MBI, input_mask, hidden_mask).squeeze(2) - y_MB
            return 0.5 * error_MB.square().mean(1) + decay_M * sum(layers.squared_weights())

        architecture = Architecture(X.shape[1], self.hidden_dim, 1)
        (networks,) = train(
            architecture,
            architecture.initial(len(rates), generator=generator),
            X,
            y,
            loss,
            learning_rate=self.learning_rate,
            steps=[num_steps(len(y), epochs=self.epochs, batch_size=self.batch_size, max_steps=self.max_steps)],
            batch_size=self.batch_size,
            generator=generator,
        )
        return networks

    def _predict(self, X: np.ndarray) -> GaussianMixture:
        return _mixture(self.networks.predict(self.to_columns(X)), self.scale)


def _mask(rate: float | Tensor, shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Draw 0 with the probability of the rate, else the value that keeps the expectation at 1."""
    return (torch.rand(*shape, generator=generator) >= rate).float() / (1 - rate)


def _sample(network: Layers, rate: float, num_samples: int, generator: torch.Generator) -> Layers:
    _, input_dim, hidden_dim = network.hidden_weight_MIH.shape
    return network.masked(
        _mask(rate, (num_samples, input_dim), generator), _mask(rate, (num_samples, hidden_dim), generator)
    )


def _mixture(outputs_TN1: Tensor, scale: float) -> GaussianMixture:
    return GaussianMixture.equal_weights(outputs_TN1.squeeze(2).T.numpy(), scale)
