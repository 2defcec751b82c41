"""A Gaussian process with one length-scale per feature: exact on few rows, sparse on many."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from anchormoe.methods.preparation import standardiser
from anchormoe.mixture import GaussianMixture

with warnings.catch_warnings():
    # The library compiles a function with torch.jit when it is imported.
    warnings.filterwarnings("ignore", message=r"`torch\.jit", category=DeprecationWarning)
    import gpytorch
    from gpytorch.constraints import GreaterThan, Interval
    from gpytorch.distributions import MultivariateNormal
    from gpytorch.kernels import InducingPointKernel, Kernel, MaternKernel, ScaleKernel
    from linear_operator.utils.warnings import NumericalWarning

NOISE_FLOOR = 1e-6  # of the target's variance; less, and the covariance of near-equal rows has no Cholesky factor
SPARSE_START_NOISE = 0.01
BOUNDS = (-25.0, 50.0)  # of a parameter before its constraint: a line search may not leave what can be computed
PREDICT_ROWS = 1000  # at a time; bounds the memory, not the result


class GaussianProcess:
    """Constant mean, Matern-5/2 kernel and Gaussian noise; what is unknown maximises the marginal likelihood.

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
    ) -> None:
        self.exact_up_to, self.num_inducing, self.warm_up_rows = exact_up_to, num_inducing, warm_up_rows
        self.steps, self.refining_steps = steps, refining_steps

    def fit(self, X: np.ndarray, y: np.ndarray, *, seed: int) -> None:
        self.standardise = standardiser(X)
        features, target = torch.as_tensor(self.standardise(X)), torch.as_tensor(y, dtype=torch.float64)
        order = torch.as_tensor(np.random.default_rng(seed).permutation(len(y)))
        some = order[: self.warm_up_rows]
        self.model = _Model(features[some], target[some])
        _maximise_likelihood(self.model, steps=self.steps)
        if len(y) > len(some):
            if len(y) > self.exact_up_to:
                self.model.make_sparse(features[order[: self.num_inducing]])
            self.model.set_train_data(features, target, strict=False)
            _maximise_likelihood(self.model, steps=self.refining_steps)

    def predict(self, X: np.ndarray) -> GaussianMixture:
        features = torch.as_tensor(self.standardise(X))
        means, variances = [], []
        with torch.no_grad(), _quiet_cholesky():
            for rows in features.split(PREDICT_ROWS):
                latent = self.model(rows)
                means.append(latent.mean)
                # Rounding can take the latent variance of a training row below zero; the noise is never less than this.
                variances.append(latent.variance.clamp_min(0.0) + self.model.likelihood.noise)
        return GaussianMixture.normal(torch.cat(means).numpy(), torch.cat(variances).sqrt().numpy())


class _Model(gpytorch.models.ExactGP):
    def __init__(self, features: Tensor, target: Tensor) -> None:
        likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=GreaterThan(NOISE_FLOOR))
        super().__init__(features, target, likelihood)
        self.mean = gpytorch.means.ConstantMean()
        matern = MaternKernel(nu=2.5, ard_num_dims=features.shape[1])
        # Bounded, or a line search on a target with almost no noise goes where no Cholesky factor exists.
        self.kernel: Kernel = ScaleKernel(matern, outputscale_constraint=Interval(1e-6, 1e3))
        self.double()
        # Distances between standardised rows grow with the root of the number of features.
        matern.lengthscale = features.shape[1] ** 0.5
        self.kernel.outputscale = 1.0
        likelihood.noise = 0.1

    def make_sparse(self, inducing: Tensor) -> None:
        self.kernel = InducingPointKernel(self.kernel, inducing_points=inducing.clone(), likelihood=self.likelihood)
        # Few points leave an error that noise must explain; from too little of it the bound is too steep to climb.
        self.likelihood.noise = max(self.likelihood.noise.item(), SPARSE_START_NOISE)

    def forward(self, features: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean(features), self.kernel(features))


def _maximise_likelihood(model: _Model, *, steps: int) -> None:
    """By L-BFGS, which needs far fewer factorisations than a first-order method."""
    model.train()
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    parameters = list(model.parameters())

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        torch.nn.utils.vector_to_parameters(torch.as_tensor(values), parameters)
        value = -objective(model(*model.train_inputs), model.train_targets)
        gradients = torch.autograd.grad(value, parameters)
        return value.item(), torch.cat([gradient.flatten() for gradient in gradients]).numpy()

    start = torch.nn.utils.parameters_to_vector(parameters).detach().numpy()
    with _quiet_cholesky():
        best = minimize(
            loss, start, jac=True, method="L-BFGS-B", bounds=[BOUNDS] * len(start), options={"maxfun": steps}
        )
    torch.nn.utils.vector_to_parameters(torch.as_tensor(best.x), parameters)
    model.eval()


@contextlib.contextmanager
def _quiet_cholesky() -> Iterator[None]:
    """A Cholesky factor at every size: the library's estimates for many rows draw from the global random stream."""
    with gpytorch.settings.max_cholesky_size(10**9), warnings.catch_warnings():
        # It says so when it adds to the diagonal of the inducing points' covariance, which near-equal points need.
        warnings.filterwarnings("ignore", category=NumericalWarning)
        yield
