"""A Gaussian process with one length-scale per feature: exact on few rows, sparse on many."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.methods.base import StandardisedRegressor, standardiser

with warnings.catch_warnings():
    # The library compiles a function with torch.jit when it is imported.
    warnings.filterwarnings("ignore", message=r"`torch\.jit", category=DeprecationWarning)
    import gpytorch
    from gpytorch.constraints import GreaterThan, Interval
    from gpytorch.distributions import MultivariateNormal
    from gpytorch.kernels import MaternKernel, ScaleKernel
    from linear_operator.utils.errors import NotPSDError
    from linear_operator.utils.warnings import NumericalWarning

NOISE_FLOOR = 1e-6  # share of the target's variance; with less, near-equal rows leave no Cholesky factor
JITTER = 1e-6  # of the inducing points' variance, for the same reason
SPARSE_START_NOISE = 0.01
BOUNDS = (-25.0, 50.0)  # of a parameter before its constraint, so that a line search stays where values are finite
PREDICT_ROWS = 1000  # rows at a time; it bounds the memory and does not change results


class GaussianProcess(StandardisedRegressor):
    """A process with constant mean, Matern-5/2 kernel and Gaussian noise, fitted by its marginal likelihood.

    Above exact_up_to rows the likelihood is replaced by Titsias' lower bound on it with num_inducing inducing points,
    which start at training rows and are learnt as well. The cost of a step is cubic in the rows, so most are taken on
    warm_up_rows of them and only refining_steps on all.
    """

    def __init__(
        self,
        *,
        exact_up_to: int = 2000,
        num_inducing: int = 200,
        warm_up_rows: int = 500,
        steps: int = 100,
        refining_steps: int = 30,
        sparse_steps: int = 100,
        random_state: int = 0,
    ) -> None:
        super().__init__(random_state=random_state)
        self.exact_up_to, self.num_inducing, self.warm_up_rows = exact_up_to, num_inducing, warm_up_rows
        self.steps, self.refining_steps, self.sparse_steps = steps, refining_steps, sparse_steps

    def _fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> None:
        self.standardise = standardiser(X)
        features, target = torch.as_tensor(self.standardise(X)), torch.as_tensor(y, dtype=torch.float64)
        order = torch.as_tensor(np.random.default_rng(seed).permutation(len(y)))
        some = order[: self.warm_up_rows]
        exact = _Exact(features[some], target[some])
        exact.maximise_likelihood(steps=self.steps)
        self.model: _Exact | _Sparse = exact
        if len(y) > self.exact_up_to:
            self.model = _Sparse(exact, features, target, features[order[: self.num_inducing]])
            self.model.maximise_bound(steps=self.sparse_steps)
        elif len(y) > len(some):
            exact.set_train_data(features, target, strict=False)
            exact.maximise_likelihood(steps=self.refining_steps)

    def _predict(self, X: np.ndarray) -> GaussianMixture:
        features = torch.as_tensor(self.standardise(X))
        with torch.no_grad(), _quiet_cholesky():
            parts = [self.model.latent(rows) for rows in features.split(PREDICT_ROWS)]
        mean, variance = (torch.cat(values) for values in zip(*parts, strict=True))
        # Rounding can take the latent variance of a training row below zero; the noise is never less than its floor.
        scale = (variance.clamp_min(0.0) + self.model.likelihood.noise.detach()).sqrt()
        return GaussianMixture.normal(mean.numpy(), scale.numpy())


class _Exact(gpytorch.models.ExactGP):
    def __init__(self, features: Tensor, target: Tensor) -> None:
        likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=GreaterThan(NOISE_FLOOR))
        super().__init__(features, target, likelihood)
        self.mean = gpytorch.means.ConstantMean()
        matern = MaternKernel(nu=2.5, ard_num_dims=features.shape[1])
        # Bounded, or a line search on a target with almost no noise goes where no Cholesky factor exists.
        self.kernel = ScaleKernel(matern, outputscale_constraint=Interval(1e-6, 1e3))
        self.double()
        # Distances between standardised rows grow with the root of the number of features.
        matern.lengthscale = features.shape[1] ** 0.5
        self.kernel.outputscale = 1.0
        likelihood.noise = 0.1

    def forward(self, features: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean(features), self.kernel(features))

    def maximise_likelihood(self, *, steps: int) -> None:
        self.train()
        likelihood = gpytorch.mlls.ExactMarginalLogLikelihood(self.likelihood, self)
        _minimise(lambda: -likelihood(self(*self.train_inputs), self.train_targets), self, steps=steps)
        self.eval()

    def latent(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance without the noise."""
        predicted = self(rows)
        return predicted.mean, predicted.variance


class _Sparse(torch.nn.Module):
    """The sparse process of Titsias' bound log N(y; m, Q + s^2 I) - tr(K - Q) / (2 s^2).

    Q = K_nu K_uu^-1 K_un, and u are the inducing points. The library's own version factorises K_uu and Q themselves and
    breaks down where there is hardly any noise (Naval). Here, with L L^T = K_uu and A = L^-1 K_un / s, everything goes
    through I + A A^T, which small noise cannot make singular.
    """

    def __init__(self, start: _Exact, features: Tensor, target: Tensor, inducing: Tensor) -> None:
        super().__init__()
        self.mean, self.kernel, self.likelihood = start.mean, start.kernel, start.likelihood
        self.inducing = torch.nn.Parameter(inducing.clone())
        self.features, self.target = features, target
        # Few points leave an error that noise must explain; with too little of it the bound is too steep to search.
        self.likelihood.noise = max(self.likelihood.noise.item(), SPARSE_START_NOISE)

    def maximise_bound(self, *, steps: int) -> None:
        _minimise(lambda: -self._bound() / len(self.target), self, steps=steps)

    def _factors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return L, A, the factor of I + A A^T, and that factor's inverse times A (y - m) / s."""
        noise = self.likelihood.noise
        jitter = JITTER * self.kernel.outputscale * torch.eye(len(self.inducing), dtype=torch.float64)
        L = torch.linalg.cholesky(self.kernel(self.inducing).to_dense() + jitter)
        A = _solve(L, self.kernel(self.inducing, self.features).to_dense()) / noise.sqrt()
        B = torch.linalg.cholesky(A @ A.T + torch.eye(len(A), dtype=torch.float64))
        error = self.target - self.mean(self.features)
        return L, A, B, _solve(B, (A @ error / noise.sqrt()).unsqueeze(1)).squeeze(1)

    def _bound(self) -> Tensor:
        _, A, B, projected = self._factors()
        noise, num_rows = self.likelihood.noise.squeeze(), len(self.target)
        error = self.target - self.mean(self.features)
        log_determinant = 2 * B.diagonal().log().sum() + num_rows * noise.log()
        squares = error.square().sum() / noise - projected.square().sum()
        left_out = num_rows * self.kernel.outputscale / noise - A.square().sum()
        return -0.5 * (num_rows * math.log(2 * math.pi) + log_determinant + squares + left_out)

    def latent(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance without the noise."""
        L, _, B, projected = self._factors()
        prior = _solve(L, self.kernel(self.inducing, rows).to_dense())
        posterior = _solve(B, prior)
        variance = self.kernel.outputscale - prior.square().sum(0) + posterior.square().sum(0)
        return self.mean(rows) + posterior.T @ projected, variance


def _solve(lower: Tensor, right: Tensor) -> Tensor:
    return torch.linalg.solve_triangular(lower, right, upper=False)


def _minimise(loss: Callable[[], Tensor], module: torch.nn.Module, *, steps: int) -> None:
    """Minimise a loss by L-BFGS, which needs far fewer factorisations than a first-order method."""
    parameters = list(module.parameters())

    def loss_and_gradient(values: np.ndarray) -> tuple[float, np.ndarray]:
        torch.nn.utils.vector_to_parameters(torch.as_tensor(values), parameters)
        try:
            value = loss()
        except (NotPSDError, torch.linalg.LinAlgError):  # the line search went too far: a high value makes it return
            return 1e10, np.zeros_like(values)
        gradients = torch.autograd.grad(value, parameters)
        return value.item(), torch.cat([gradient.flatten() for gradient in gradients]).numpy()

    start = torch.nn.utils.parameters_to_vector(parameters).detach().numpy()
    with _quiet_cholesky():
        best = minimize(
            loss_and_gradient,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=[BOUNDS] * len(start),
            options={"maxfun": steps},
        )
    torch.nn.utils.vector_to_parameters(torch.as_tensor(best.x), parameters)


@contextlib.contextmanager
def _quiet_cholesky() -> Iterator[None]:
    """Use Cholesky factors at every size: the library's estimates for many rows draw from the global random stream."""
    with gpytorch.settings.max_cholesky_size(10**9), warnings.catch_warnings():
        # The library warns when it adds to the diagonal of a covariance, which near-equal rows need.
        warnings.filterwarnings("ignore", category=NumericalWarning)
        yield
