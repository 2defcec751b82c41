"""The adapter for skpro passes skpro's checks, predicts what the regressor predicts, and works with skpro's tools."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scoringrules
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.datasets import load_diabetes
from sklearn.model_selection import KFold
from sklearn.preprocessing import StandardScaler
from skpro.benchmarking.evaluate import evaluate
from skpro.distributions import NormalMixture
from skpro.metrics import CRPS, EmpiricalCoverage, LogLoss
from skpro.model_selection import GridSearchCV
from skpro.utils import check_estimator

from anchormoe import AnchorMoERegressor
from anchormoe.estimator.skpro_adapter import AnchorMoEProbaRegressor, ExactNormalMixture

QUICK: dict[str, Any] = {"anchor": "ridge", "folds": 2, "training": {"epochs": 3}, "random_state": 0}


@pytest.fixture(scope="module")
def table() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows with a categorical column, gaps and an index of their own."""
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    X, y = X[:120], y[:120].to_frame("progression")
    X["sex"] = X["sex"].map({1.0: "a", 2.0: "b"}).astype("category")
    X.loc[X.index % 7 == 0, "bmi"] = np.nan
    X.index = y.index = pd.Index([f"patient {k}" for k in X.index])
    return X, y


@pytest.mark.parametrize("checked", [AnchorMoEProbaRegressor, ExactNormalMixture])
@pytest.mark.filterwarnings("ignore:.*'pdfnorm' method")  # skpro says that it approximates this
def test_skpro_checks(checked: type) -> None:
    results = check_estimator(checked, verbose=False)
    assert {name: result for name, result in results.items() if result != "PASSED"} == {}
    assert len(results) > 50


@pytest.mark.parametrize("recipe", ["crossfit", "best", "paper"])
def test_predictions_are_those_of_the_regressor(recipe: str, table: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    X, y = table
    settings = {**QUICK, "folds": None} if recipe == "paper" else QUICK
    adapter = AnchorMoEProbaRegressor(AnchorMoERegressor(recipe, **settings)).fit(X[:90], y[:90])
    if recipe == "best":  # by itself it maps the distribution function, and its predictions are no mixtures
        settings = {**settings, "calibration": "weighted"}
    regressor = AnchorMoERegressor(recipe, **settings).fit(X[:90], y["progression"][:90])
    new, target = X[90:], y[90:]
    predicted, expected = adapter.predict_proba(new), regressor.predict_dist(new)

    assert isinstance(predicted, NormalMixture)
    assert list(predicted.index) == list(new.index)
    assert list(predicted.columns) == ["progression"]
    values = target["progression"].to_numpy()
    close = {"rtol": 2e-5, "atol": 1e-9}  # log_prob and mean of ours are in float32
    np.testing.assert_allclose(predicted.mean()["progression"], expected.density_mean, **close)
    np.testing.assert_allclose(predicted.log_pdf(target)["progression"], expected.log_prob(values), **close)
    np.testing.assert_allclose(predicted.cdf(target)["progression"], expected.cdf(values), rtol=1e-9)
    np.testing.assert_allclose(predicted.var()["progression"], expected.std**2, rtol=1e-9)
    np.testing.assert_array_equal(adapter.predict(new)["progression"], regressor.predict(new))
    np.testing.assert_allclose(adapter.predict_interval(new, 0.8), expected.interval(0.8), rtol=1e-9)
    crps = CRPS().evaluate_by_index(target, predicted).to_numpy().ravel()
    np.testing.assert_allclose(crps, expected.crps(values), rtol=1e-9)


def test_the_energy_agrees_with_independent_computations() -> None:
    rng = np.random.default_rng(1)
    weights, means, scales = rng.dirichlet([1, 1, 1], 4), rng.normal(0, 3, (4, 3)), rng.uniform(0.2, 2, (4, 3))
    y = rng.normal(0, 3, 4)
    mixture = ExactNormalMixture(weights, means, scales)

    def twice_cdf_times_survival(x: float, row: int) -> float:
        cdf = float(weights[row] @ norm.cdf(x, means[row], scales[row]))
        return 2 * cdf * (1 - cdf)

    integrals = [quad(twice_cdf_times_survival, -30, 30, args=(row,), limit=200)[0] for row in range(4)]
    np.testing.assert_allclose(mixture.energy().to_numpy()[:, 0], integrals, rtol=1e-6)
    crps = (mixture.energy(y[:, None]) - mixture.energy() / 2).to_numpy()[:, 0]
    np.testing.assert_allclose(crps, scoringrules.crps_mixnorm(y, means, scales, weights), rtol=1e-9)


def test_parts_of_a_mixture_keep_their_class_and_values() -> None:
    rng = np.random.default_rng(2)
    mixture = ExactNormalMixture(rng.dirichlet([1, 1], 5), rng.normal(size=(5, 2)), np.ones((5, 2)))
    for part in (mixture.iloc[[1, 3]], mixture.loc[[1, 3]]):
        assert type(part) is ExactNormalMixture
        np.testing.assert_array_equal(part.energy(), mixture.energy().iloc[[1, 3]])
    one = mixture.iat[2, 0]
    assert type(one) is ExactNormalMixture
    assert one.energy() == pytest.approx(mixture.energy().iloc[2, 0])
    assert one.var() == pytest.approx(mixture.var().iloc[2, 0])


def test_the_variance_keeps_its_digits_far_from_zero() -> None:
    mixture = ExactNormalMixture([[0.5, 0.5]], [[1e8 - 1, 1e8 + 1]], [[1.0, 1.0]])
    assert mixture.var().iloc[0, 0] == pytest.approx(2.0)


def test_a_pipeline_and_the_evaluation_of_skpro(table: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    X, y = table[0].drop(columns="sex"), table[1]
    pipeline = StandardScaler() * AnchorMoEProbaRegressor(AnchorMoERegressor(**QUICK))
    scores = evaluate(pipeline, KFold(2), X, y, scoring=[CRPS(), LogLoss(), EmpiricalCoverage()])
    assert (scores["test_CRPS"] < y["progression"].std()).all()
    assert np.isfinite(scores["test_LogLoss"].astype(float)).all()
    assert scores["test_EmpiricalCoverage"].between(0.5, 1).all()


def test_a_search_of_skpro_reaches_the_settings(table: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    X, y = table
    search = GridSearchCV(
        AnchorMoEProbaRegressor(AnchorMoERegressor(**QUICK)),
        cv=KFold(2),
        param_grid={"regressor__num_experts": [2, 3]},
        scoring=CRPS(),
        backend="None",  # no processes
    ).fit(X, y)
    fitted = search.best_estimator_.regressor_
    assert fitted.num_experts == search.best_params_["regressor__num_experts"]
    assert fitted.fitted_.networks[0].model.config.num_experts == fitted.num_experts


def test_the_regressor_that_is_given_stays_unfitted(table: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    X, y = table
    given = AnchorMoERegressor(**QUICK)
    adapter = AnchorMoEProbaRegressor(given).fit(X, y)
    assert not hasattr(given, "fitted_")
    assert adapter.regressor_.columns_.columns[1].levels == ("a", "b")
