"""Deep ensembles: networks that predict a mean and a variance, pooled (Lakshminarayanan et al., 2017)."""

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

ADVERSARIAL_STEP = 0.01  # of a feature's range


class DeepEnsemble(StandardisedRegressor):
    """An ensemble of networks, fitted to all rows.

    Batch size and learning rate are chosen by the log-likelihood of held-out rows.

    p(y | x) = N(y; mean_m mu_m, mean_m (s_m^2 + mu_m^2) - (mean_m mu_m)^2): the moments of the members' mixture.
    """

    def __init__(
        self,
        *,
        num_members: int = 5,
        hidden_dim: int = 50,
        epochs: int = 40,
        batch_sizes: Sequence[int] = (32, 100),
        learning_rates: Sequence[float] = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05),
        adversarial: bool = False,
        random_state: int = 0,
    ) -> None:
        super().__init__(random_state=random_state)
        self.num_members, self.hidden_dim = num_members, hidden_dim
        self.epochs, self.adversarial = epochs, adversarial
        self.batch_sizes, self.learning_rates = tuple(batch_sizes), tuple(learning_rates)

    def _fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        train_rows, validation = hold_out(len(y), seed)
        to_columns = standardiser(X[train_rows])
        best = -math.inf
        self.batch_size, self.learning_rate = self.batch_sizes[0], self.learning_rates[0]
        for batch_size in self.batch_sizes:
            networks = self._train(to_columns(X[train_rows]), y[train_rows], self.learning_rates, batch_size, generator)
            outputs = networks.predict(to_columns(X[validation])).unflatten(0, (-1, self.num_members))
            for learning_rate, members in zip(self.learning_rates, outputs, strict=True):
                likelihood = float(_pool(members).log_prob(y[validation]).mean())  # nan, never the best, if it diverged
                if likelihood > best:
                    best, self.batch_size, self.learning_rate = likelihood, batch_size, learning_rate

        self.to_columns = standardiser(X)
        self.networks = self._train(self.to_columns(X), y, [self.learning_rate], self.batch_size, generator)

    def _train(
        self,
        X: np.ndarray,
        y: np.ndarray,
        learning_rates: Sequence[float],
        batch_size: int,
        generator: torch.Generator,
    ) -> Layers:
        """Train an ensemble per learning rate and return their members one after the other."""
        adversarial_step_I = ADVERSARIAL_STEP * torch.as_tensor(np.ptp(X, axis=0), dtype=torch.float32)

        def loss(layers: Layers, x_MBI: Tensor, y_MB: Tensor) -> Tensor:
            if not self.adversarial:
                return _loss(layers, x_MBI, y_MB)
            x_MBI = x_MBI.detach().requires_grad_()
            plain_M = _loss(layers, x_MBI, y_MB)
            (gradient_MBI,) = torch.autograd.grad(plain_M.sum(), x_MBI, retain_graph=True)
            return plain_M + _loss(layers, x_MBI.detach() + adversarial_step_I * gradient_MBI.sign(), y_MB)

        architecture = Architecture(X.shape[1], self.hidden_dim, 2)
        (networks,) = train(
            architecture,
            architecture.initial(len(learning_rates) * self.num_members, generator=generator),
            X,
            y,
            loss,
            learning_rate=torch.tensor(learning_rates).repeat_interleave(self.num_members),
            steps=[num_steps(len(y), epochs=self.epochs, batch_size=batch_size)],
            batch_size=batch_size,
            generator=generator,
        )
        return networks

    def _predict(self, X: np.ndarray) -> GaussianMixture:
        return _pool(self.networks.predict(self.to_columns(X)))


def _loss(layers: Layers, x_MBI: Tensor, y_MB: Tensor) -> Tensor:
    return negative_log_likelihood(*mean_and_variance(layers(x_MBI)), y_MB).mean(1)


def _pool(outputs_MN2: Tensor) -> GaussianMixture:
    mean_MN, variance_MN = mean_and_variance(outputs_MN2)
    variance_N = variance_MN.mean(0) + mean_MN.var(0, correction=0)
    return GaussianMixture.normal(mean_MN.mean(0).numpy(), variance_N.sqrt().numpy())
