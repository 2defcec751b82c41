"""A regressor of any shape: what it predicts becomes a distribution, and what cannot is refused in one line."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import scoringrules
from scipy.special import ndtri
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from anchormoe import methods
from anchormoe.distributions.empirical import Empirical
from anchormoe.distributions.foreign import ForeignDistribution
from anchormoe.distributions.integral import integral, require_density
from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.distributions.scores import scores
from anchormoe.errors import UserError
from anchormoe.methods.any_regressor import AnyRegressor

Params = namedtuple("Params", ["loc", "scale"])
SCALE = 0.3  # of the noise below, in standard deviations of the target


class Linear:
    """The base of the stubs: a linear mean and the scale of the residuals."""

    def fit(self, X, y):
        self.model_ = LinearRegression().fit(X, y)
        self.scale_ = float(np.std(y - self.model_.predict(X)))
        return self

    def mean(self, X):
        return self.model_.predict(X)


class WithStd(Linear):
    def predict(self, X, return_std=False):
        return (self.mean(X), np.full(len(X), self.scale_)) if return_std else self.mean(X)


class LocScale(Linear):  # as xgboost-distribution
    def predict(self, X):
        return Params(self.mean(X), np.full(len(X), self.scale_))


class Laplace(LocScale):
    distribution = "laplace"


class PlainTuple(Linear):
    def predict(self, X):
        return self.mean(X), np.full(len(X), self.scale_)


class Quantiles(Linear):  # as quantile-forest
    def predict(self, X, quantiles=None):
        return self.mean(X)[:, None] + self.scale_ * ndtri(np.asarray(quantiles))


class PredictQuantiles(Quantiles):
    def predict(self, X):
        return self.mean(X)

    def predict_quantiles(self, X, levels):
        return self.mean(X)[:, None] + self.scale_ * ndtri(np.asarray(levels))


class Columns(Linear):  # as XGBoost with quantile_alpha
    quantiles = (0.9, 0.1, 0.5)

    def predict(self, X):
        return self.mean(X)[:, None] + self.scale_ * ndtri(np.asarray(self.quantiles))


class Sampled(Linear):  # as Treeffuser
    def predict(self, X):
        return self.mean(X)

    def sample(self, X, n_samples, seed=None):
        noise = np.random.default_rng(seed).standard_normal((n_samples, len(X)))
        return (self.mean(X) + self.scale_ * noise)[:, :, None]


class Conformal(Linear):  # as MAPIE 1
    def __init__(self, confidence_level=0.9, prefit=True):
        self.levels, self.prefit = np.atleast_1d(confidence_level), prefit
        self._alphas = list(1 - self.levels)

    def conformalize(self, X, y):
        assert not self.prefit
        self.scores_ = np.abs(y - self.mean(X))
        return self

    def predict_interval(self, X):
        widths = np.quantile(self.scores_, self.levels)
        mean = self.mean(X)
        return mean, np.stack([mean[:, None] - widths, mean[:, None] + widths], axis=1)


class Scipy(Linear):
    def predict_dist(self, X):
        return scipy.stats.norm(self.mean(X), self.scale_)


class Inflated(Scipy):
    def predict_dist(self, X):
        frozen = super().predict_dist(X)
        logpdf = frozen.logpdf
        frozen.logpdf = lambda y: logpdf(y) + 100
        return frozen


class UnnormalisedMixture(Linear):
    def predict_dist(self, X):
        mixture = GaussianMixture.normal(self.mean(X), self.scale_)
        return GaussianMixture(mixture.log_weights + 0.05, mixture.means, mixture.scales)


class TwoColumns(Linear):
    def predict(self, X):
        return np.column_stack([self.mean(X), self.mean(X)])


class TooFew(Linear):
    def predict(self, X):
        return self.mean(X)[1:]


class Text(Linear):
    def predict(self, X):
        return {"mean": self.mean(X)}


class NegativeStd(Linear):
    def predict(self, X, return_std=False):
        return (self.mean(X), np.linspace(-0.1, 1, len(X))) if return_std else self.mean(X)


class NegativeScale(Linear):
    def predict(self, X):
        return self.mean(X), np.linspace(-0.2, 1, len(X))


class NoLevels(Linear):
    """A conformal regressor, made by a function, that does not say its levels."""

    def __init__(self):
        pass

    def conformalize(self, X, y):
        return self

    def predict_interval(self, X):
        return self.mean(X), np.stack([self.mean(X) - 1, self.mean(X) + 1], axis=1)


class Missing(Linear):
    def predict(self, X):
        return np.where(np.arange(len(X)) < 3, np.nan, self.mean(X))


class Wrapped(Linear):
    """A regressor whose constructor takes a regressor, as skpro's ResidualDouble."""

    def __init__(self, estimator, depth=1):
        self.estimator, self.depth = estimator, depth

    def fit(self, X, y):
        self.model_ = self.estimator.fit(X, y)
        return self

    def predict(self, X):
        return self.model_.predict(X)


pipeline = make_pipeline(StandardScaler(), WithStd())
instance = WithStd()
conformal_instance = Conformal([0.2, 0.5, 0.8, 0.9, 0.95], prefit=False)


def conformal_factory():
    return Conformal(np.arange(1, 20) / 20, prefit=False)


def factory(alpha=1.0):
    return make_pipeline(StandardScaler(), Ridge(alpha=alpha))


def __getattr__(name: str):
    if name != "mapie_instance":
        raise AttributeError(name)
    from mapie.regression import SplitConformalRegressor

    return SplitConformalRegressor(LinearRegression(), confidence_level=[0.5, 0.9], prefit=False)


def makes_nothing():
    return 3


def data(num_rows: int = 300) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(num_rows, 2))
    return X, 50 + 10 * (X @ [1.0, -1.0] + SCALE * np.sqrt(2) * rng.normal(size=num_rows))


def made(name: str, **parameters: object) -> AnyRegressor:
    regressor = methods.make("sklearn", {"target": f"{__name__}.{name}", "random_state": 3, **parameters})
    assert isinstance(regressor, AnyRegressor)
    return regressor


SMOOTHED = {
    **dict.fromkeys(["Quantiles", "PredictQuantiles", "Columns"], "smoothed quantiles"),
    **dict.fromkeys(["Sampled"], "smoothed draws"),
    **dict.fromkeys(["Conformal", "conformal_instance", "conformal_factory"], "smoothed intervals"),
    **dict.fromkeys(["factory"], "smoothed residuals"),
}
NORMAL = ("WithStd", "LocScale", "PlainTuple", "Scipy", "pipeline", "instance", *SMOOTHED)


@pytest.mark.parametrize("name", NORMAL)
def test_every_shape_of_the_same_normal_gets_nearly_the_same_scores(name: str) -> None:
    X, y = data()
    regressor = made(name).fit(X[:200], y[:200])
    expected = made("Scipy").fit(X[:200], y[:200]).predict_dist(X[200:])
    predicted = regressor.predict_dist(X[200:])
    found, wanted = (scores(one, y[200:]) for one in (predicted, expected))
    # Residuals of 40 held-out rows know the scale less well than those of 200.
    slack = 0.1 if "onformal" in name or name == "factory" else 0.03
    assert found["crps_y"] == pytest.approx(wanted["crps_y"], rel=slack)
    assert found["rmse_y"] == pytest.approx(wanted["rmse_y"], rel=slack)
    assert found["coverage_90"] == pytest.approx(wanted["coverage_90"], abs=0.05)
    assert found["nll_y"] == pytest.approx(wanted["nll_y"], abs=5 * slack)
    assert regressor.diagnostics_.get("density") == SMOOTHED.get(name)


def test_the_named_distribution_of_a_tuple_is_used() -> None:
    X, y = data()
    regressor = made("Laplace").fit(X[:200], y[:200])
    predicted = regressor.predict_dist(X[200:])
    model = Laplace().fit(X[:200], y[:200])
    np.testing.assert_allclose(
        predicted.log_prob(y[200:]), scipy.stats.laplace(model.mean(X[200:]), model.scale_).logpdf(y[200:])
    )


def test_the_crps_of_quantiles_and_of_draws_against_an_independent_computation() -> None:
    rng = np.random.default_rng(1)
    points, y = np.sort(rng.gamma(2.0, size=(7, 40)), axis=1), rng.gamma(2.0, size=7)
    quantiles, draws = Empirical(points), Empirical.from_draws(points.T)
    np.testing.assert_allclose(quantiles.crps(y), scoringrules.crps_ensemble(y, points, estimator="nrg"))
    np.testing.assert_allclose(draws.crps(y), scoringrules.crps_ensemble(y, points, estimator="fair"))
    levels = (np.arange(40) + 0.5) / 40
    pinball = 2 * ((levels - (y[:, None] < points)) * (y[:, None] - points)).mean(1)
    np.testing.assert_allclose(quantiles.crps(y), pinball)


def test_quantiles_and_cdf_of_values_are_each_others_inverse() -> None:
    points = np.sort(np.random.default_rng(1).gamma(2.0, size=(7, 40)), axis=1)
    distribution = Empirical(points, center=3.0, scale=2.0)
    for level in (0.001, 0.05, 0.31, 0.5, 0.95, 0.999):
        np.testing.assert_allclose(distribution.cdf(distribution.quantile(level)), level)
    np.testing.assert_allclose(distribution.mean, 3 + 2 * points.mean(1))


def test_quantiles_of_a_few_levels_are_joined_by_normals() -> None:
    levels = [0.05, 0.5, 0.95]
    values = np.array([[1.0, 3.0, 5.0], [5.0, 3.0, 1.0]]) * ndtri(0.95)
    distribution = Empirical.from_quantiles(levels, np.broadcast_to(ndtri(levels), (2, 3)) * 2 + 7)
    np.testing.assert_allclose(distribution.points[0], 7 + 2 * ndtri((np.arange(100) + 0.5) / 100), atol=1e-9)
    crossing = Empirical.from_quantiles(levels, values)
    np.testing.assert_allclose(crossing.points[0], crossing.points[1])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("TwoColumns", r"predict must return one number per row, \(40,\), received \(40, 2\)"),
        ("TooFew", r"predict must return one number per row, \(40,\), received \(39,\)"),
        ("Missing", r"predict must return finite numbers, received nan or infinity in 3 of 40"),
        ("Text", r"predict must return numbers, received a value of type dict"),
        ("NegativeStd", r"a predicted scale must be positive, received -0\.1"),
        ("NegativeScale", r"a predicted scale must be positive, received -0\.2"),
        ("NoLevels", r"must say its levels in an attribute confidence_level"),
        ("Inflated", r"a predicted density must integrate to 1, .* received 2\.688e\+43"),
        ("UnnormalisedMixture", r"a predicted density must integrate to 1, .* received 1\.051"),
    ],
)
def test_what_cannot_be_scored_is_refused_with_the_reason(name: str, message: str) -> None:
    X, y = data()
    with pytest.raises(ValueError, match=message):
        made(name).fit(X[:200], y[:200]).predict_dist(X[200:])


def test_honest_densities_of_all_kinds_integrate_to_one() -> None:
    two_spikes = GaussianMixture.equal_weights(np.array([[0.0, 1.0]] * 3), 1e-4)
    np.testing.assert_allclose(integral(two_spikes), 1, atol=0.015)
    for frozen in (
        scipy.stats.uniform,
        scipy.stats.cauchy,
        scipy.stats.t(2),
        scipy.stats.expon,
        scipy.stats.beta(9, 1),
    ):

        class OnRows:
            mean = np.zeros(2)

            def __init__(self, inner):
                self.logpdf, self.cdf, self.ppf = inner.logpdf, inner.cdf, inner.ppf

        require_density(ForeignDistribution(OnRows(frozen), 2))


@pytest.mark.parametrize(
    "estimator", ["sklearn.linear_model.Ridge", {"target": "sklearn.linear_model.Ridge", "alpha": 7}]
)
def test_a_parameter_may_be_a_regressor(estimator: object) -> None:
    regressor = made("Wrapped", estimator=estimator, depth=2)
    inner = regressor._new(0, 10).estimator
    assert isinstance(inner, Ridge)
    assert inner.alpha == (7 if isinstance(estimator, dict) else 1)
    X, y = data()
    assert np.isfinite(regressor.fit(X, y).predict_dist(X).mean).all()


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("Wrapped", {}, r"Wrapped cannot be made: TypeError: .*missing 1 required positional argument: 'estimator'"),
        ("Wrapped", {"estimator": "sklearn.linear_model.Rigde"}, r"estimator must be the import path of a regressor"),
        ("makes_nothing", {}, r"makes_nothing must return a regressor with fit and predict, received int"),
        ("factory", {"beta": 3}, r"factory has no beta"),
        ("Params", {}, r"method.target must be the import path of a regressor.*it has no fit and predict"),
    ],
)
def test_a_mistake_is_found_before_anything_is_fitted(name: str, parameters: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        made(name, **parameters)


def test_text_that_is_no_import_path_stays_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert made("Wrapped", estimator="model.txt").parameters == {"estimator": "model.txt"}


@pytest.mark.parametrize(
    ("target", "parameters", "density"),
    [
        ("sklearn.gaussian_process.GaussianProcessRegressor", {"alpha": 0.2}, None),
        ("sklearn.linear_model.BayesianRidge", {}, None),
        ("sklearn.linear_model.Ridge", {}, "smoothed residuals"),
        ("quantile_forest.RandomForestQuantileRegressor", {"n_estimators": 20}, "smoothed quantiles"),
        (
            "xgboost.XGBRegressor",
            {"objective": "reg:quantileerror", "quantile_alpha": [0.1, 0.5, 0.9], "n_estimators": 20, "n_jobs": 1},
            "smoothed quantiles",
        ),
        ("skpro.regression.residual.ResidualDouble", {"estimator": "sklearn.linear_model.Ridge"}, None),
        (
            "skpro.regression.bootstrap.BootstrapRegressor",
            {"estimator": "sklearn.linear_model.Ridge", "n_bootstrap_samples": 20},
            "smoothed quantiles",
        ),
        ("mapie.regression.CrossConformalRegressor", {}, "smoothed intervals"),
        ("test_shapes.mapie_instance", {}, "smoothed intervals"),
    ],
)
@pytest.mark.filterwarnings("ignore")  # of the libraries
def test_regressors_of_other_libraries_need_no_wrapper(
    target: str, parameters: dict[str, object], density: str | None
) -> None:
    pytest.importorskip(target.partition(".")[0])
    X, y = data(150)
    regressor = methods.make("sklearn", {"target": target, "random_state": 1, **parameters})
    found = scores(regressor.fit(X[:100], y[:100]).predict_dist(X[100:]), y[100:])
    assert found["rmse_y"] < 0.75 * y.std()
    assert regressor.diagnostics_.get("density") == density
