"""Kernel regression against scikit-learn's Gaussian process."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from anchormoe.model.anchors.kernel_machine import (
    JITTER,
    NOISE_FLOOR,
    KernelMachine,
    learn_kernel,
    negative_log_likelihood,
)


def ordinary(num_rows: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(num_rows, 3)) * [1.0, 5.0, 0.1]
    return X, 3 + np.sin(2 * X[:, 0]) + 2 * X[:, 2] + 0.1 * rng.normal(size=num_rows)


def reference(rates, signal: float, noise: float) -> GaussianProcessRegressor:
    kernel = ConstantKernel(signal) * Matern(1 / np.asarray(rates), nu=2.5) + WhiteKernel(noise)
    return GaussianProcessRegressor(kernel, optimizer=None, alpha=0.0)


def test_likelihood_and_its_gradient():
    X, y = ordinary()
    parameters = np.log([0.7, 0.2, 5.0, 1.5, 0.03])
    value, gradient = negative_log_likelihood(parameters, X, y)
    signal, noise = np.exp(parameters[-2:])
    process = reference(np.exp(parameters[:-2]), signal, noise + NOISE_FLOOR + JITTER * signal).fit(X, y)
    constant = 0.5 * np.log(2 * np.pi)
    assert value == pytest.approx(-process.log_marginal_likelihood_value_ / len(y) - constant, abs=1e-9)
    for index, step in enumerate(1e-5 * np.eye(5)):
        up, down = (negative_log_likelihood(parameters + sign * step, X, y)[0] for sign in (1, -1))
        assert gradient[index] == pytest.approx((up - down) / 2e-5, abs=1e-8)


def test_the_learnt_kernel_is_as_likely_as_scikit_learns():
    X, y = ordinary()
    z = (y - y.mean()) / y.std()
    found = learn_kernel(X, z, steps=100)
    ours = reference(found.rates, found.signal, found.noise).fit(X, z).log_marginal_likelihood_value_
    kernel = ConstantKernel(1.0, (1e-3, 1e3)) * Matern([1.0, 5.0, 0.1], (1e-2, 1e3), nu=2.5) + WhiteKernel(0.1)
    theirs = GaussianProcessRegressor(kernel, alpha=0.0).fit(X, z).log_marginal_likelihood_value_
    assert ours == pytest.approx(theirs, abs=0.05)


def test_prediction_is_the_mean_of_the_process():
    X, y = ordinary()
    new = ordinary(200)[0][60:]
    machine = KernelMachine().fit(X, y)
    kernel = machine.kernel
    process = reference(kernel.rates, kernel.signal, kernel.noise + JITTER * kernel.signal).fit(
        X, (y - y.mean()) / y.std()
    )
    assert np.allclose(machine.predict(new), process.predict(new) * y.std() + y.mean(), atol=1e-9)


def test_with_every_row_as_a_center_few_centers_are_the_whole():
    X, y = ordinary()
    new = ordinary(200)[0][60:]
    exact = KernelMachine().fit(X, y)
    sparse = KernelMachine(exact_up_to=10, num_centers=60).fit(X, y, kernel=exact.kernel)
    assert np.allclose(sparse.predict(new), exact.predict(new), atol=1e-5)


def test_few_centers_minimise_the_penalised_error():
    """The weights minimise |y - K w|^2 + noise w^T C w, here solved as one dense system."""
    X, y = ordinary()
    machine = KernelMachine(exact_up_to=10, num_centers=20).fit(X, y)
    kernel, centers = machine.kernel, machine.centers
    K = kernel.covariance(kernel.positions(X), centers)
    C = kernel.self_covariance(centers)
    weights = np.linalg.solve(K.T @ K + kernel.noise * C, K.T @ ((y - y.mean()) / y.std()))
    assert np.allclose(machine.predict(X), K @ weights * y.std() + y.mean(), atol=1e-7)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_units_do_not_matter(scale):
    X, y = ordinary()
    plain, scaled = KernelMachine().fit(X, y).predict(X), KernelMachine().fit(X / scale, y * scale).predict(X / scale)
    assert np.allclose(scaled / scale, plain, rtol=1e-4)


def test_it_learns_what_a_feature_is_worth():
    X, y = ordinary(200)
    rates = KernelMachine().fit(X, y).kernel.rates * X.std(0)  # the target is not a function of the second feature
    assert rates[1] < 0.2 * rates[[0, 2]].min()


@pytest.mark.parametrize("kind", ["constant target", "constant feature", "one feature", "equal rows", "two rows"])
@pytest.mark.parametrize("exact_up_to", [1, 1000])
def test_survives_difficult_data(kind, exact_up_to):
    X, y = ordinary()
    if kind == "constant target":
        y = np.full_like(y, 3.0)
    elif kind == "constant feature":
        X[:, 1] = 7.0
    elif kind == "one feature":
        X = X[:, :1]
    elif kind == "equal rows":
        X, y = np.repeat(X, 3, axis=0), np.repeat(y, 3)
    else:
        X, y = X[:2], y[:2]
    mean = KernelMachine(exact_up_to=exact_up_to).fit(X, y).predict(X)
    assert np.isfinite(mean).all()
    if kind == "constant target":
        assert np.allclose(mean, 3.0)
