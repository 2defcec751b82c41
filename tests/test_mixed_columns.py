"""Every method on a table with categories and gaps: those that cannot take them get an encoder of the training rows."""

from __future__ import annotations

import numpy as np
import pytest
from test_methods import APART, QUICK, made, quick

from anchormoe import methods
from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.methods import METHODS
from anchormoe.methods.base import StandardisedRegressor
from anchormoe.model.encoding import Takes
from anchormoe.model.training_rows import TrainingRows

CATEGORICAL = (1, 2)
NAMES = [name for name in METHODS if name not in APART]
# The quick settings of other tests stop before these have learnt the categories.
LONGER: dict[str, dict[str, object]] = {
    "catboost": {"rounds": 150},
    "cqr": {"rounds": 150},
    "realmlp_quantiles": {"epochs": 60},
    "tabm": {"max_epochs": 60},
}


def mixed(num_rows: int = 260) -> tuple[np.ndarray, np.ndarray]:
    """Make a table of which the categories tell more than the numbers: one of 4 levels, one of 30, gaps everywhere."""
    rng = np.random.default_rng(0)
    few, many = rng.integers(0, 4, num_rows), rng.integers(0, 30, num_rows)
    X = np.column_stack([rng.normal(size=num_rows), few, many, rng.normal(size=num_rows)])
    y = 0.5 * X[:, 0] + np.array([0, 2, -2, 1])[few] + rng.normal(size=30)[many] + 0.2 * rng.normal(size=num_rows)
    X[rng.random(X.shape) < 0.05] = np.nan
    return X, y


@pytest.mark.parametrize("name", NAMES)
def test_categories_are_learnt_from_and_gaps_are_no_obstacle(name: str) -> None:
    X, y = mixed()
    regressor = made(name, {**QUICK.get(name, {}), **LONGER.get(name, {})})
    regressor.categorical_features = CATEGORICAL
    predicted = regressor.fit(X[:200], y[:200]).predict_dist(X[200:])
    rmse = np.sqrt(np.mean((predicted.mean - y[200:]) ** 2))
    assert rmse < 0.75 * y[200:].std(), "the numeric columns alone explain a twelfth of the variance"


@pytest.mark.parametrize("name", NAMES)
def test_a_gap_and_a_level_that_only_new_rows_have(name: str) -> None:
    X, y = mixed()
    X[np.isnan(X)] = 0.0
    regressor = quick(name)
    regressor.categorical_features = CATEGORICAL
    regressor.fit(X[:200], y[:200])
    new = X[200:210].copy()
    new[0, 0], new[1, 1], new[2, 2] = np.nan, np.nan, 30
    assert np.isfinite(regressor.predict_dist(new).log_prob(y[200:210])).all()


def test_the_contract_hands_the_categories_on() -> None:
    regressor = methods.make("xgboost_normal", {"random_state": 1}, categorical=(2,))
    assert regressor.categorical_features == [2]
    assert methods.make("anchormoe_crossfit", {}, categorical=(2,)).categorical_features == [2]
    assert methods.make("anchormoe_crossfit", {}).categorical_features == "auto"


class Recorded(StandardisedRegressor):
    """A method that keeps the rows it gets."""

    def _fit(self, X, y, seed):
        self.fitted_to = X

    def _predict(self, X):
        self.asked_for = X
        return GaussianMixture.normal(np.zeros(len(X)), 1.0)


def recorded(takes: Takes, categorical: tuple[int, ...], X: np.ndarray, y: np.ndarray) -> Recorded:
    regressor = Recorded()
    regressor.takes, regressor.categorical_features = takes, categorical
    regressor.fit(X, y).predict_dist(X)
    return regressor


@pytest.mark.parametrize("takes", Takes)
def test_complete_numbers_stay_the_very_same_rows(takes: Takes) -> None:
    X, y = mixed()
    X = X[:, [0, 3]]
    X[np.isnan(X)] = 1.0
    found = recorded(takes, (), X, y)
    assert found.fitted_to is X
    assert found.asked_for is X


def test_each_method_gets_what_it_says_it_takes() -> None:
    X, y = mixed()
    everything = recorded(Takes.categories, CATEGORICAL, X, y)
    assert everything.fitted_to is X
    gaps = recorded(Takes.gaps, CATEGORICAL, X, y)
    assert np.array_equal(gaps.fitted_to[:, 0], X[:, 0], equal_nan=True)
    assert np.isfinite(gaps.fitted_to[:, 1:7]).all(), "a column per level, one for gaps, one of means"
    numbers = recorded(Takes.numbers, CATEGORICAL, X, y)
    assert np.isfinite(numbers.fitted_to).all()
    assert numbers.fitted_to.shape == numbers.asked_for.shape == (260, 2 + 5 + 1 + 2)


def test_a_training_rows_own_target_is_not_in_its_encoding() -> None:
    X, y = mixed()
    changed = y.copy()
    changed[7] += 1000
    first, second = (Recorded()._encoded(TrainingRows(X, z, None, CATEGORICAL))[0] for z in (y, changed))
    assert np.array_equal(first[7], second[7])
    assert not np.array_equal(first, second), "other rows of its level know it"


def test_methods_say_what_they_take() -> None:
    taken = {name: type(made(name, {})).takes for name in NAMES}
    assert {name for name, takes in taken.items() if takes is Takes.categories} >= {"xgboost_normal"}
    assert all(isinstance(takes, Takes) for takes in taken.values())
