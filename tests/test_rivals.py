"""What the modern rivals are made of: widths from residuals, folds, stacks, smoothed quantiles, pretrained networks."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.stats

from anchormoe import methods
from anchormoe.distributions.scores import interval_coverage
from anchormoe.errors import UserError
from anchormoe.methods import calibrated, fold_stack
from anchormoe.methods.fold_stack import FoldStack, Part, Predict, fold_parts
from anchormoe.methods.residual_scale import ResidualScale
from anchormoe.methods.smoothing import smoothed
from anchormoe.model.sharing import shared_fits


def noisy(num_rows: int = 1500, *, growing: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Make rows whose noise has three degrees of freedom and, if `growing`, a width from 0.1 to 0.9."""
    rng = np.random.default_rng(1)
    X = rng.uniform(0, 1, (num_rows, 2))
    width = 0.1 + 0.8 * X[:, 0] if growing else np.full(num_rows, 0.5)
    return X, X[:, 1] + width * rng.standard_t(3, num_rows)


def test_the_width_follows_the_residuals_where_it_can_be_predicted() -> None:
    X, y = noisy()
    predicted = ResidualScale(seed=0).fit(X, X[:, 1], y).predict(X, X[:, 1])
    expected = 0.1 + 0.8 * X[:, 0]
    assert np.corrcoef(predicted.width, expected)[0, 1] > 0.9
    assert np.median(predicted.width / expected) == pytest.approx(1, abs=0.15)
    assert 2.1 <= predicted.degrees < 6
    assert interval_coverage(predicted, y, coverage=0.9) == pytest.approx(0.9, abs=0.03)


def test_the_width_is_nearly_one_for_all_where_it_cannot_be_predicted() -> None:
    X, y = noisy(growing=False)
    width = ResidualScale(seed=0).fit(X, X[:, 1], y).predict(X, X[:, 1]).width
    assert width.std() / width.mean() < 0.1
    degrees, _, scale = scipy.stats.t.fit(y - X[:, 1], floc=0)
    assert width.mean() == pytest.approx(scale, rel=0.1)
    assert 2.1 < degrees < 5


def test_every_row_is_held_out_by_one_part() -> None:
    X, y = noisy(103)
    parts = fold_parts(X, y, 0)
    assert np.sort(np.concatenate([part.held_out_y for part in parts])) == pytest.approx(np.sort(y))
    for part in parts:
        assert not set(part.y) & set(part.held_out_y)
        assert len(part.y) + len(part.held_out_y) == 103
        for rows, targets in ((part.X, part.y), (part.held_out_X, part.held_out_y)):
            assert {tuple(row): target for row, target in zip(X, y, strict=True)}.items() >= {
                tuple(row): target for row, target in zip(rows, targets, strict=True)
            }.items()


class _TwoMembers(FoldStack):
    """A good member with a useless and a useful setting, and a member that adds nothing."""

    fitted: list[str]

    def _members(self) -> dict[str, Any]:
        self.fitted = []

        def member(name: str, slope: float) -> fold_stack.Fitter:
            def fit(part: Part) -> Predict:
                self.fitted.append(name)
                mean = part.y.mean()
                return lambda X: mean + slope * X[:, 1]

            return fit

        return {"linear": [member("wrong", -9.0), member("right", 1.0)], "other": [member("opposite", -1.0)]}


def test_a_setting_is_chosen_on_the_first_fold_and_useless_members_get_no_weight() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 2))
    y = X[:, 1] + 0.1 * rng.standard_normal(200)
    stack = _TwoMembers(random_state=1).fit(X, y)
    assert stack.fitted == ["wrong", *["right"] * 5, *["opposite"] * 5]
    assert stack.diagnostics_["linear_setting"] == 1
    assert stack.diagnostics_["weights"]["linear"] > 0.9
    assert stack.diagnostics_["weights"]["other"] < 0.05
    assert np.corrcoef(stack.predict_dist(X).mean, y)[0, 1] > 0.99


def test_a_slow_member_is_fitted_once_on_many_rows_and_counts_by_the_rows_that_it_has_not_seen() -> None:
    class Slow(_TwoMembers):
        slow = frozenset({"linear"})

    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 2))
    y = X[:, 1] + 0.1 * rng.standard_normal(200)
    stack = Slow(folds_up_to=199, random_state=1).fit(X, y)
    assert stack.fitted == ["wrong", "right", *["opposite"] * 5]
    assert stack.diagnostics_["weights"]["linear"] > 0.9
    assert np.corrcoef(stack.predict_dist(X).mean, y)[0, 1] > 0.99


def test_methods_share_a_member_and_each_counts_its_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()  # a clock that goes on by one whenever it is looked at
    for module in (fold_stack, calibrated):
        monkeypatch.setattr(module, "clock", ticks.__next__)
    X, y = noisy(200)
    rounds = {"rounds": 30, "random_state": 3}

    def lightgbm() -> methods.Regressor:
        return methods.make("lightgbm", {**rounds, "settings": ["tuned"]})

    alone = lightgbm().fit(X, y)
    with shared_fits(str(tmp_path)):
        stack = methods.make("stack_t", {**rounds, "epochs": 1}).fit(X, y)
        fits = len(list(tmp_path.rglob("output.pkl")))
        assert fits == 20  # four members on five folds: all can be stored
        again = lightgbm().fit(X, y)
        assert len(list(tmp_path.rglob("output.pkl"))) == fits
        new, loaded = (calibrated.Calibrated(lightgbm(), "pit", folds=2).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(again.predict_dist(X).mean, alone.predict_dist(X).mean)
    assert (
        0 < again.diagnostics_["fit_seconds"] == alone.diagnostics_["fit_seconds"] < stack.diagnostics_["fit_seconds"]
    )
    assert loaded.diagnostics_["fit_seconds"] == new.diagnostics_["fit_seconds"] > again.diagnostics_["fit_seconds"]


def test_smoothed_quantiles_keep_their_spread() -> None:
    quantiles = scipy.stats.norm.ppf((np.arange(50) + 0.5) / 50)[None] * np.array([[1.0], [3.0]])
    for bandwidth in (0.2, 1.0):
        mixture = smoothed(quantiles, bandwidth)
        np.testing.assert_allclose(mixture.std, quantiles.std(1), rtol=1e-10)
        np.testing.assert_allclose(mixture.mean, 0, atol=1e-12)


@pytest.mark.parametrize("name", ["quantile_forest", "lightgbm_quantiles", "realmlp_quantiles", "conformal", "cqr"])
def test_a_smoothed_nll_is_marked(name: str) -> None:
    quick: dict[str, dict[str, object]] = {
        "quantile_forest": {"num_trees": 30},
        "lightgbm_quantiles": {"rounds": 5, "folds_up_to": 0},
        "realmlp_quantiles": {"epochs": 1, "folds_up_to": 0},
        "conformal": {"rounds": 5, "num_trees": 5},
        "cqr": {"rounds": 5},
    }
    X, y = noisy(80)  # 24 held-out rows, four times a whole number: conformal levels must not ask for all of them
    try:
        regressor = methods.make(name, {"random_state": 0, **quick[name]})
    except UserError as error:
        pytest.skip(str(error))
    assert regressor.fit(X, y).diagnostics_["density"] == "smoothed quantiles"


# --- pretrained networks: stubs with the interface of the libraries


class _Stub:
    """Predicts quantiles of a normal distribution around the mean of the targets it was fitted to."""

    made: dict[str, Any]

    def __init__(self, **settings: Any) -> None:
        type(self).made = settings

    def fit(self, X: np.ndarray, y: np.ndarray) -> _Stub:
        self.normal = scipy.stats.norm(y.mean(), y.std())
        return self

    def quantiles(self, X: np.ndarray, levels: list[float]) -> np.ndarray:
        assert all(isinstance(level, float) for level in levels)
        return np.tile(self.normal.ppf(levels), (len(X), 1))


class _TabPFN(_Stub):
    def predict(self, X: np.ndarray, *, output_type: str, quantiles: list[float]) -> list[np.ndarray]:
        assert output_type == "quantiles"
        return list(self.quantiles(X, quantiles).T)


class _TabICL(_Stub):
    def predict(self, X: np.ndarray, output_type: str, alphas: list[float]) -> np.ndarray:
        assert output_type == "quantiles"
        return self.quantiles(X, alphas)


STUBS = {
    "tabpfn": SimpleNamespace(TabPFNRegressor=_TabPFN),
    "tabicl": SimpleNamespace(TabICLRegressor=_TabICL),
}


@pytest.mark.parametrize("name", STUBS)
def test_pretrained_networks_read_their_weights_from_a_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, STUBS[name])
    weights = tmp_path / "weights.ckpt"
    weights.write_bytes(b"numbers")
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((300, 2)), 50 + 7 * rng.standard_normal(300)
    regressor = methods.make(name, {"weights": str(weights), "n_estimators": 4, "random_state": 5}).fit(X, y)
    distribution = regressor.predict_dist(X[:20])
    settings = vars(STUBS[name])[next(iter(vars(STUBS[name])))].made
    assert settings == {"model_path": str(weights), "device": "cpu", "random_state": 5, "n_estimators": 4}
    np.testing.assert_allclose(distribution.mean, y.mean(), rtol=1e-6)
    np.testing.assert_allclose(distribution.std, y.std(), rtol=0.05)
    assert regressor.diagnostics_["density"] == "smoothed quantiles"


@pytest.mark.parametrize("name", STUBS)
def test_a_pretrained_network_without_weights_or_library_is_the_users_mistake(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for weights in (None, str(tmp_path / "none.ckpt")):
        with pytest.raises(UserError, match=r"method.params.weights must be a file with the weights of Tab"):
            methods.make(name, {"weights": weights})
    file = tmp_path / "weights.ckpt"
    file.touch()
    monkeypatch.setitem(sys.modules, name, None)
    X = np.zeros((40, 1))
    with pytest.raises(UserError, match=f"method={name} needs the {name} package: pip install {name}"):
        methods.make(name, {"weights": str(file)}).fit(X, np.arange(40.0))
