"""Every competing method: what the contract promises, on ordinary data and on data that break things."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import scipy.stats
import sklearn.base
import torch

from anchormoe import methods
from anchormoe.commands.run import parse
from anchormoe.config.schema import MethodConfig
from anchormoe.distributions.foreign import ForeignDistribution
from anchormoe.distributions.scores import scores
from anchormoe.errors import UserError
from anchormoe.methods import METHODS, Regressor

# Settings that make a method quick; the contract does not depend on them.
QUICK: dict[str, dict[str, object]] = {
    "bart": {"trees": 20, "variance_trees": [0, 5], "burn_in": 10, "draws": 20},
    "catboost": {"rounds": 30, "settings": [[4, 0.1]]},
    "catboost_uncertainty": {"stages": 30},
    "concrete_dropout": {"epochs": 30, "num_samples": 10, "learning_rates": [0.01]},
    "conformal": {"rounds": 30, "num_trees": 20},
    "cqr": {"rounds": 30},
    "deep_ensembles_tuned": {"steps": 200, "shapes": [[20]], "learning_rates": [0.01], "num_members": 3},
    "deep_ensembles": {"epochs": 30, "num_members": 3, "learning_rates": [0.02], "batch_sizes": [32]},
    "dist_forest": {"num_trees": 30},
    "flow": {"widths": [16], "weight_decays": [1e-4], "steps": 100, "learning_rate": 1e-2},
    "gamlss": {"rounds": 5, "penalties": [100.0, 1.0]},
    "gaussian_process": {"steps": 20},
    "gbdt_homoscedastic": {"stages": 30},
    "lightgbm": {"rounds": 40, "settings": ["shallow"]},
    "lightgbm_quantiles": {"rounds": 40, "folds_up_to": 0},
    "mc_dropout": {"epochs": 60, "num_samples": 20},
    "mdn": {"epochs": 40},
    "ngboost": {"stages": 60, "learning_rates": [0.05, 0.2]},
    "ngboost_authors": {"stages": 40, "learning_rates": [0.05], "select_stage": False},
    "quantile_forest": {"num_trees": 30},
    "realmlp": {"epochs": 20, "folds_up_to": 0},
    "realmlp_quantiles": {"epochs": 10, "folds_up_to": 0},
    "stack_t": {"rounds": 30, "epochs": 5, "folds_up_to": 0},
    "tabm": {"members": 4, "max_epochs": 8, "folds_up_to": 0},
    "xgboost_normal": {"stages": 60},
}
SPARSE = {"steps": 10, "sparse_steps": 5, "warm_up_rows": 25, "exact_up_to": 28, "num_inducing": 20}
HEAVY = {"rff_krr"}  # 20 ridge regressions on 4096 features, whatever the data
# Anchor-MoE, and what is built on its parts, has tests of its own.
RECIPES = {name for name, method in METHODS.items() if method.is_recipe}
CALIBRATED = {"calibrated"}  # so has this: tests/test_calibration.py
PRETRAINED = {"tabpfn", "tabicl"}  # their weights and libraries are not here


def fit(name: str, X: np.ndarray, y: np.ndarray, *, seed: int = 3) -> Regressor:
    return quick(name, seed).fit(X, y)


def quick(name: str, seed: int = 3) -> Regressor:
    if name == "sparse_gaussian_process":  # with many rows it is a different computation
        return made("gaussian_process", SPARSE, seed)
    return made(name, QUICK.get(name, {}), seed)


def made(name: str, parameters: dict[str, object], seed: int = 3) -> Regressor:
    target = {"target": "sklearn.linear_model.Ridge"} if name == "sklearn" else {}
    return methods.make(name, {**target, "random_state": seed, **parameters})


def ordinary(num_rows: int = 120, num_columns: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Make data with noise that grows with the first column."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (num_rows, num_columns))
    y = 2 * X[:, 0] + np.exp(X[:, 0]) * 0.2 * rng.standard_normal(num_rows)
    return X, (y - y.mean()) / y.std()


def constant_target() -> tuple[np.ndarray, np.ndarray]:
    X, y = ordinary()
    return X, np.zeros_like(y)


def constant_feature() -> tuple[np.ndarray, np.ndarray]:
    X, y = ordinary()
    return np.column_stack([np.full(len(y), 7.0), X]), y


def large_features() -> tuple[np.ndarray, np.ndarray]:
    X, y = ordinary()
    return X * np.array([1e6, 1e-6, 1.0]) + np.array([1e7, 0.0, 0.0]), y


CASES = {
    "ordinary": ordinary,
    "constant_target": constant_target,
    "constant_feature": constant_feature,
    "large_features": large_features,
    "thirty_rows": lambda: ordinary(30),
    "one_feature": lambda: ordinary(num_columns=1),
}


@functools.cache
def fitted(name: str, case: str) -> Regressor:
    return fit(name, *CASES[case]())


@functools.cache
def scored_in_unit(name: str, unit: float) -> dict[str, float]:
    X, y = ordinary()
    return scores(fit(name, X[:100], unit * y[:100]).predict_dist(X[100:]), unit * y[100:])


# One worker runs all tests of a method, so that they share its fits.
APART = HEAVY | RECIPES | CALIBRATED | PRETRAINED
NAMES = [*(name for name in METHODS if name not in APART), "sparse_gaussian_process"]


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in NAMES])
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def integration_points(lowest: np.ndarray, low: np.ndarray, high: np.ndarray, highest: np.ndarray) -> np.ndarray:
    """Return points (P, N): even ones between low and high, then ever wider steps, because a tail may be long."""
    assert (high > low).all()
    t, steps = np.linspace(0, 1, 1_501)[:, None], np.linspace(0, 1, 151)[1:, None] ** 4
    left, right = low - (low - lowest) * steps[::-1], high + (highest - high) * steps
    return np.concatenate([left, low + (high - low) * t, right])


@pytest.mark.parametrize("case", CASES)
def test_densities_are_finite_and_integrate_to_one(name: str, case: str) -> None:
    X, y = CASES[case]()
    distribution = fitted(name, case).predict_dist(X[:5])
    points = integration_points(*distribution.quantile([1e-9, 1e-3, 1 - 1e-3, 1 - 1e-9]).T)
    density = np.stack([np.exp(distribution.log_prob(values)) for values in points])
    assert np.isfinite(density).all()
    integral = np.trapezoid(density, points, axis=0)
    np.testing.assert_allclose(integral, 1, rtol=0, atol=2e-3)
    assert np.isfinite(distribution.crps(y[:5])).all()


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_units_of_the_target_do_not_matter(name: str, scale: float) -> None:
    found = {unit: scored_in_unit(name, unit) for unit in (1.0, scale)}
    assert found[scale]["rmse_y"] / scale == pytest.approx(found[1.0]["rmse_y"], rel=0.1)
    assert found[scale]["crps_y"] / scale == pytest.approx(found[1.0]["crps_y"], rel=0.1)
    assert found[scale]["nll_y"] - np.log(scale) == pytest.approx(found[1.0]["nll_y"], abs=0.2)


def test_it_learns_the_mean_and_its_uncertainty_is_sane(name: str) -> None:
    X, y = ordinary(600)
    distribution = fit(name, X[:400], y[:400]).predict_dist(X[400:])
    targets = y[400:]
    assert ((distribution.mean - targets) ** 2).mean() < 0.5 * targets.var()
    cdf = distribution.cdf(targets)
    assert 0.7 <= ((cdf > 0.05) & (cdf < 0.95)).mean() <= 1.0


def test_the_distribution_agrees_with_itself(name: str) -> None:
    X, _ = ordinary()
    distribution = fitted(name, "ordinary").predict_dist(X[:7])
    median = distribution.quantile(0.5)
    np.testing.assert_allclose(distribution.cdf(median), 0.5, rtol=0, atol=1e-3)
    low, high = distribution.interval(0.8).T
    assert (low < median).all()
    assert (median < high).all()


def test_a_seed_decides_everything(name: str) -> None:
    X, y = ordinary()
    first, again = (regressor.predict_dist(X[:5]) for regressor in (fitted(name, "ordinary"), fit(name, X, y)))
    assert np.array_equal(first.mean, again.mean)
    assert np.array_equal(first.log_prob(y[:5]), again.log_prob(y[:5]))


def test_rows_can_be_predicted_in_any_number_of_batches(name: str) -> None:
    X, _ = ordinary()
    regressor = fitted(name, "ordinary")
    whole = regressor.predict_dist(X[100:]).mean
    parts = [regressor.predict_dist(X[100 + first : 100 + first + 7]).mean for first in range(0, 20, 7)]
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-5, atol=1e-6)


def test_an_unknown_method_and_an_unknown_parameter_are_the_users_mistakes() -> None:
    with pytest.raises(UserError, match="method must be one of anchormoe_best, anchormoe_fast"):
        methods.make("no_such_method", {})
    with pytest.raises(UserError, match=r"method.params must be parameters of gbdt_homoscedastic, .* 'stagse'"):
        made("gbdt_homoscedastic", {"stagse": 3})
    with pytest.raises(UserError, match=r"sklearn.linear_model.Ridge has no alhpa"):
        made("sklearn", {"alhpa": 3})
    with pytest.raises(UserError, match="together with method=sklearn"):
        MethodConfig("sklearn")


# --- single methods


def test_a_sparse_process_with_all_rows_inducing_is_the_exact_one() -> None:
    """Titsias' bound is then the likelihood log N(y; m, K + s^2 I) itself, here computed by scipy."""
    from anchormoe.methods.gaussian_process import _Exact, _Sparse

    X, y = (torch.as_tensor(values) for values in ordinary(40))
    exact = _Exact(X, y)
    sparse = _Sparse(exact, X, y, X)
    rows = X[:7] + 0.1
    K, K_rows, variance = (
        exact.kernel(first, second).to_dense().detach().numpy() for first, second in ((X, X), (rows, X), (rows, rows))
    )
    noise, mean = exact.likelihood.noise.item(), exact.mean(X).detach().numpy()
    covariance = K + noise * np.eye(40)
    likelihood = scipy.stats.multivariate_normal(mean, covariance).logpdf(y)
    assert sparse._bound().item() == pytest.approx(likelihood, rel=1e-4)
    predicted_mean, predicted_variance = (values.detach().numpy() for values in sparse.latent(rows))
    solved = np.linalg.solve(covariance, K_rows.T)
    np.testing.assert_allclose(predicted_mean, mean[:7] + solved.T @ (y.numpy() - mean), atol=1e-4)
    np.testing.assert_allclose(predicted_variance, np.diag(variance - K_rows @ solved), atol=1e-4)


def test_a_tree_of_ngboost_fits_its_rows_as_the_librarys_own() -> None:
    """This holds for ties too: columns that split the rows equally fit them equally."""
    learners = pytest.importorskip("ngboost.learners")
    from anchormoe.methods.ngboost import Tree

    X, _ = ordinary(60)
    for gradient in np.random.default_rng(1).standard_cauchy((20, 60)):  # outliers, which get nodes of their own
        library = sklearn.base.clone(learners.default_tree_learner).set_params(random_state=0).fit(X, gradient)
        mine = Tree(X).fit(X, gradient).predict(X)
        np.testing.assert_allclose(mine, library.predict(X), rtol=1e-10, atol=1e-10 * np.abs(gradient).max())


def test_ngboost_is_what_its_library_computes_with_its_own_trees() -> None:
    X, y = ordinary(600)
    # Training is short: later, several columns cut off the same few rows, and the library draws one at random. Its
    # held-out loss then differs between seeds, so its choice of stages may differ from ours.
    parameters = {"stages": 60, "learning_rates": [0.01, 0.02]}
    mine, library = (made("ngboost", parameters | {"own_trees": own}).fit(X, y) for own in (False, True))
    assert mine.model.n_estimators == library.model.n_estimators
    ours, theirs = mine.predict_dist(X), library.predict_dist(X)
    np.testing.assert_allclose(ours.mean, theirs.mean, rtol=0, atol=1e-10)
    np.testing.assert_allclose(ours.scales, theirs.scales, rtol=1e-10, atol=0)


def test_ngboost_of_the_paper_is_fitted_to_the_target_in_its_own_units() -> None:
    """The library's shortest step is 1e-4 in the unit of the target, which matters here."""
    library = pytest.importorskip("ngboost")
    X, y = ordinary(80, num_columns=1)  # one column: the library draws one at random where two are equally good
    (job,) = parse(["method=ngboost_authors", "anchor=none", "method.params.stages=1000"])
    scales = {}
    for unit in (1.0, 1e4):
        predicted = made("ngboost_authors", job.method.params).fit(X[:60], unit * y[:60]).predict_dist(X[60:])
        scales[unit] = predicted.scales[:, 0]
        model = library.NGBRegressor(n_estimators=1000, learning_rate=0.05, verbose=False).fit(X[:60], unit * y[:60])
        expected = model.pred_dist(X[60:])
        np.testing.assert_allclose(predicted.mean, expected.loc, rtol=1e-6)
        np.testing.assert_allclose(predicted.std, expected.scale, rtol=1e-6)
    assert np.abs(np.log(scales[1.0] / scales[1e4])).max() > 0.1, "the units matter here"


def test_a_regressor_that_predicts_distributions_is_asked_for_them() -> None:
    X, y = ordinary()
    pytest.importorskip("ngboost")
    arguments = {"target": "ngboost.NGBRegressor", "n_estimators": 5, "random_state": 1}
    predicted = methods.make("sklearn", arguments).fit(X, y).predict_dist(X)
    assert isinstance(predicted, ForeignDistribution)
    assert predicted.quantile(0.9).shape == (len(X),)
