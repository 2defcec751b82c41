"""AnchorMoERegressor: scikit-learn's own checks, the harness's numbers, tables as people have them, mistakes."""

from __future__ import annotations

import io
import pickle
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.linear_model import BayesianRidge, RidgeCV
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from anchormoe import AnchorMoERegressor

TRAINING = {"epochs": 20, "min_steps": 0, "learning_rate": 0.01}
QUICK: dict[str, Any] = {"anchor": "ridge", "folds": 3, "hidden_dim": 8, "training": TRAINING, "random_state": 0}


def quick(**settings: Any) -> AnchorMoERegressor:
    return AnchorMoERegressor(**{**QUICK, **settings})


def numbers(num_rows: int = 120) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (num_rows, 3))
    return X, 3 * X[:, 0] + X[:, 1] ** 2 + 0.2 * rng.standard_normal(num_rows)


def mixed(num_rows: int = 300, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Return a table with a category that matters, a gap that matters, and noise."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size": rng.uniform(0, 1, num_rows),
            "town": rng.choice(["east", "north", "west"], num_rows),
            "new": rng.random(num_rows) < 0.5,
            "age": rng.uniform(0, 50, num_rows),
        }
    )
    y = (
        2 * frame["size"]
        + frame["town"].map({"east": 0.0, "north": 4.0, "west": 8.0})
        + 0.2 * rng.normal(size=num_rows)
    )
    frame.loc[rng.random(num_rows) < 0.3, "age"] = np.nan
    y = y + 3 * frame["age"].isna()
    return frame, y.to_numpy()


WEIGHTS_DIFFER = (
    "rows are cut into folds at random and mini-batches count rows, so a row of weight 2 is not the same as two rows"
)


@parametrize_with_checks(
    [quick()],
    expected_failed_checks=lambda estimator: {"check_sample_weight_equivalence_on_dense_data": WEIGHTS_DIFFER},
)
def test_scikit_learns_checks(estimator: AnchorMoERegressor, check: Any) -> None:
    check(estimator)


def test_regressors_of_other_libraries_see_no_difference() -> None:
    X, y = numbers()
    search = GridSearchCV(quick(), {"num_experts": [2, 3], "loss": ["nll", "crps"]}, cv=2).fit(X, y)
    assert set(search.best_params_) == {"num_experts", "loss"}
    assert cross_val_predict(quick(), X, y, cv=2).shape == y.shape
    assert clone(quick(num_experts=3)).num_experts == 3
    scaled = make_pipeline(StandardScaler().set_output(transform="pandas"), quick()).fit(X, y)
    assert scaled.score(X, y) > 0.5
    assert list(scaled[-1].feature_names_in_) == ["x0", "x1", "x2"]
    frame, target = mixed(80)
    columns = make_column_transformer((StandardScaler(), ["size", "age"]), remainder="passthrough")
    chained = make_pipeline(columns.set_output(transform="pandas"), quick()).fit(frame, target)
    assert chained[-1].columns_.categorical == (2,)


def test_what_is_pickled_predicts_the_same(tmp_path: Any) -> None:
    frame, y = mixed(100)
    fitted = quick(anchor="stack", folds=2).fit(frame, y)
    joblib.dump(fitted, tmp_path / "model.joblib")
    for copy in (pickle.loads(pickle.dumps(fitted)), joblib.load(tmp_path / "model.joblib")):
        assert np.array_equal(copy.predict(frame), fitted.predict(frame))


def test_all_predictions_come_from_one_distribution() -> None:
    X, y = numbers()
    model = quick().fit(X, y)
    predicted = model.predict_dist(X[:9])
    mean, std = model.predict(X[:9], return_std=True)
    assert np.array_equal(mean, predicted.mean)
    assert np.array_equal(std, predicted.std)
    assert np.array_equal(model.predict_interval(X[:9], coverage=0.8), predicted.interval(0.8))
    np.testing.assert_allclose(model.predict_quantiles(X[:9], [0.1, 0.9]), predicted.interval(0.8), rtol=1e-12)
    assert model.predict_quantiles(X[:9]).shape == (9, 3)


def test_threads_change_nothing() -> None:
    frame, y = mixed(150)
    settings = {"anchor": "stack", "folds": 3}
    one, two, all_cores = (quick(**settings, n_jobs=n).fit(frame, y).predict_dist(frame) for n in (1, 2, -1))
    for other in (two, all_cores):
        assert np.array_equal(one.means, other.means)
        assert np.array_equal(one.log_weights, other.log_weights)


def test_blocks_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = numbers()
    model = quick().fit(X, y)
    whole = model.predict_dist(X)
    monkeypatch.setattr("anchormoe.model.crossfit.BLOCK_ROWS", 50)
    blocks = model.predict_dist(X)
    np.testing.assert_allclose(blocks.means, whole.means, rtol=1e-5)
    np.testing.assert_allclose(blocks.crps(y), whole.crps(y), rtol=1e-4)
    np.testing.assert_allclose(blocks.mean_before_calibration, whole.mean_before_calibration, rtol=1e-5)


@pytest.mark.parametrize(
    "anchor", ["stack", "trees", "xgboost", "kernel", "ridge", "gbdt", None, RandomForestRegressor(10)]
)
def test_categories_and_gaps_are_used(anchor: Any) -> None:
    frame, y = mixed()
    model = quick(anchor=anchor).fit(frame[:240], y[:240])
    assert model.columns_.categorical == (1,)
    # The town and the gap explain nearly all; without them R2 is at most about 0.05.
    assert model.score(frame[240:], y[240:]) > 0.9


@pytest.mark.parametrize("recipe", ["crossfit", "paper"])
def test_categories_that_are_unknown_or_missing_are_levels_of_their_own(recipe: str) -> None:
    frame, y = mixed()
    settings = {"recipe": recipe, "anchor": "xgboost", "folds": 3 if recipe == "crossfit" else None}
    model = quick(**settings).fit(frame, y)
    new = frame[:3].copy()
    new["town"] = ["south", None, "east"]
    predicted = model.predict_dist(new)
    assert np.isfinite(predicted.mean).all()
    assert np.isfinite(predicted.std).all()
    assert predicted.mean[2] == pytest.approx(model.predict(frame.assign(town="east")[:3])[2])


def test_a_gap_that_training_rows_never_had_is_filled() -> None:
    X, y = numbers()
    model = quick(anchor="stack").fit(X, y)
    new = X[:4].copy()
    new[0, 1] = np.nan
    predicted = model.predict(new)
    assert np.isfinite(predicted).all()
    np.testing.assert_allclose(predicted[1:], model.predict(X[:4])[1:], rtol=1e-4)


def test_many_levels_are_encoded_without_the_rows_own_target() -> None:
    """Noise with a level for every two rows must not look as if it explained anything."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"id": [f"n{k}" for k in rng.integers(0, 150, 300)], "x": rng.normal(size=300)})
    y = rng.normal(size=300)
    model = quick(categorical_features=["id"]).fit(frame[:200], y[:200])
    assert model.fitted_.held_out.scores["rmse"] > 0.9 * y[:200].std()
    assert model.score(frame[200:], y[200:]) > -0.2


def test_positions_and_masks_name_categorical_columns() -> None:
    X, y = numbers()
    X[:, 2] = np.digitize(X[:, 2], [-0.5, 0, 0.5])
    for wanted in ([2], [False, False, True], np.array([False, False, True])):
        assert quick(categorical_features=wanted).fit(X, y).columns_.categorical == (2,)
    assert quick(categorical_features=None).fit(X, y).columns_.categorical == ()


def test_weights_move_the_fit_and_zero_weights_remove_rows() -> None:
    X, y = numbers(200)
    half = np.arange(200) < 100
    y = np.where(half, y, y + 10)
    weight = np.where(half, 1.0, 0.0)
    removed, kept = quick().fit(X, y, sample_weight=weight), quick().fit(X[half], y[half])
    assert np.array_equal(removed.predict(X), kept.predict(X))
    assert np.array_equal(quick().fit(X, y, np.full(200, 7.0)).predict(X), quick().fit(X, y).predict(X))
    means = [quick(anchor="stack").fit(X, y, np.where(half, 1.0, w)).predict(X).mean() for w in (0.1, 1.0, 10.0)]
    assert means[0] < means[1] - 2 < means[2] - 4


def test_weights_need_an_anchor_that_takes_them() -> None:
    class Blind:
        def fit(self, X: np.ndarray, y: np.ndarray) -> Blind:
            return self

        def predict(self, X: np.ndarray) -> np.ndarray:
            return np.zeros(len(X))

    X, y = numbers()
    with pytest.raises(ValueError, match="sample_weight needs anchors that take it, received the anchor Blind"):
        quick(anchor=Blind()).fit(X, y, np.linspace(1, 2, len(y)))


def test_any_regressor_is_an_anchor() -> None:
    X, y = numbers()
    named, instance = (quick(anchor=anchor).fit(X, y) for anchor in ("ridge", RidgeCV(np.logspace(-3, 3, 7))))
    assert np.array_equal(named.predict(X), instance.predict(X))
    assert quick(anchor=make_pipeline(StandardScaler(), BayesianRidge())).fit(X, y).score(X, y) > 0.8


def test_settings_reach_the_network() -> None:
    X, y = numbers()
    model = quick(num_experts=5, top_k=3, num_components=2, network={"router": "none"}, calibration="none").fit(X, y)
    network = model.fitted_.members[0].model
    assert (network.config.num_experts, network.config.top_k, network.router) == (5, 3, None)
    assert model.fitted_.linear_map is None
    assert model.predict_dist(X).means.shape == (len(y), 3 * 3 * 2 + 1)
    assert quick(random_state=np.random.RandomState(0)).fit(X, y).fitted_.members


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"recipe": "papper"}, "recipe must be one of crossfit, fast, best, paper, received 'papper'"),
        (
            {"anchor": "xgbost"},
            r"anchor must be a regressor, None or one of .* received 'xgbost'; did you mean xgboost",
        ),
        ({"anchor": 3}, "anchor must be 'auto', a name, a regressor with fit and predict, or None, received 3"),
        ({"top_k": 9}, r"model.top_k must be at most num_experts=1, received 9"),
        ({"num_experts": 0}, "model.num_experts must be positive"),
        ({"folds": 1}, "crossfit.folds must be at least 2, received 1"),
        ({"loss": "mse"}, "loss must be one of nll, crps, received 'mse'"),
        ({"calibration": "isotonic"}, "none, pit, conformal, received 'isotonic'"),
        (
            {"network": {"hiden_dim": 3}},
            r"network must have settings among .* received 'hiden_dim'; did you mean hidden",
        ),
        ({"training": {"epochs": -1}}, "train.epochs must be positive and finite, received -1"),
        ({"recipe_parameters": {"inner": 1}}, "recipe_parameters must be among .* received 'inner'"),
        ({"recipe": "paper"}, "folds must be None for recipe='paper', which has no folds, received 3"),
        ({"n_jobs": 0}, "n_jobs must be None or a whole number other than 0, received 0"),
        ({"device": "abacus"}, "device must be 'auto' or torch's name of a device, received 'abacus'"),
        ({"categorical_features": ["garage"]}, r"names or positions of the 3 columns, received 'garage'"),
    ],
)
def test_settings_that_make_no_sense_are_one_line(settings: dict[str, Any], message: str) -> None:
    X, y = numbers(20)
    with pytest.raises(ValueError, match=message) as error:
        quick(**settings).fit(X, y)
    assert "\n" not in str(error.value)


def with_value(value: Any, column: str = "size") -> pd.DataFrame:
    frame = mixed(40)[0].astype({column: object})
    frame.at[3, column] = value
    return frame


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (with_value(np.inf).astype({"size": float}), "column 'size' must be finite, received infinity"),
        (
            with_value(1e200).astype({"size": float}),
            r"column 'size' must be finite, received 1e\+200: numbers may be up",
        ),
        (
            mixed(40)[0].assign(part=pd.cut(mixed(40)[0]["size"], 3)),
            r"column 'part' must have texts or numbers as categories, received Interval\(.*: turn them into texts",
        ),
        (
            mixed(40)[0].assign(when=pd.Timestamp("2020-01-01")),
            "column 'when' must be numeric or categorical, received",
        ),
        (
            mixed(40)[0].assign(note=[f"text {k}" for k in range(40)]),
            "column 'note' must be numeric or categorical, received text: 40 different values in 40 rows; drop it",
        ),
        (with_value([1, 2], "town"), "column 'town' must hold numbers or categories, received a value of type list"),
    ],
)
def test_columns_that_cannot_be_used_are_named(frame: pd.DataFrame, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick().fit(frame, np.arange(40.0))


def test_targets_that_cannot_be_fitted() -> None:
    X, y = numbers(20)
    for bad, message in ((np.nan, "Input y contains NaN"), (np.inf, "Input y contains infinity")):
        target = y.copy()
        target[3] = bad
        with pytest.raises(ValueError, match=message):
            quick().fit(X, target)
    with pytest.raises(ValueError, match=r"y must have values up to 1e\+36 in size, received"):
        quick().fit(X, y * 1e300)
    with pytest.raises(ValueError, match="y must be numeric, received dates or durations"):
        quick().fit(X, pd.Series(pd.date_range("2020", periods=20)))
    with pytest.raises(ValueError, match=r"Found array with 1 sample\(s\) .* while a minimum of 5 is required"):
        quick().fit(X[:1], y[:1])
    with pytest.raises(ValueError, match=r"Found array with 3 sample\(s\) .* while a minimum of 5 is required"):
        quick().fit(pd.DataFrame(X[:3]), y[:3])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        quick().fit(X, y[:9])
    with pytest.raises(ValueError, match="Negative values"):
        quick().fit(X, y, np.linspace(-1, 1, 20))
    with pytest.raises(ValueError, match="sample_weight must be positive for at least 5 rows, received 2"):
        quick().fit(X, y, np.eye(20)[0] + np.eye(20)[1])
    with pytest.raises(ValueError, match=r"sample_weight must be positive|Sample weights must contain at least one"):
        quick().fit(X, y, np.zeros(20))
    with pytest.warns(DataConversionWarning, match="column-vector y was passed"):
        quick().fit(X, y[:, None])


@pytest.mark.parametrize("size", [1e-12, 1e12, 1e35])
def test_units_do_not_matter(size: float) -> None:
    """Columns and targets of very small and very large numbers give the same intervals in their units."""
    X, y = numbers(60)
    expected = quick(anchor="stack").fit(X, y).predict_interval(X)
    found = quick(anchor="stack").fit(X * size, y * size).predict_interval(X * size) / size
    np.testing.assert_allclose(found, expected, atol=0.3 * y.std())


def test_a_target_that_never_varies_is_predicted() -> None:
    X, _ = numbers(30)
    predicted = quick(anchor="stack").fit(X, np.full(30, 7.0)).predict_dist(X)
    assert predicted.mean == pytest.approx(7, abs=1e-4)


def test_new_rows_must_have_the_columns_of_the_fit() -> None:
    frame, y = mixed(40)
    model = quick().fit(frame, y)
    with pytest.raises(ValueError, match="feature names should match those that were passed during fit"):
        model.predict(frame.rename(columns={"age": "years"}))
    X, target = numbers()
    with pytest.raises(ValueError, match="X has 2 features, but AnchorMoERegressor is expecting 3"):
        quick().fit(X, target).predict(X[:, :2])
    with pytest.raises(ValueError, match="column 'size' must be numeric, received"):
        model.predict(with_value("large"))
    with pytest.raises(ValueError, match="column 'size' must be finite, received infinity"):
        model.predict(with_value(np.inf).astype({"size": float}))
    with pytest.raises(NotFittedError):
        quick().predict(frame)
    for coverage in (0, 1, 1.5, -0.1, np.nan, "0.9", None, [0.5, 0.9]):
        with pytest.raises(ValueError, match="coverage must lie strictly between 0 and 1, received"):
            model.predict_interval(frame, coverage)
    with pytest.raises(ValueError, match="level must lie strictly between 0 and 1"):
        model.predict_quantiles(frame, [0.5, 1.0])
    with pytest.raises(ValueError, match=r"quantiles must be a list of levels between 0 and 1, received 0\.5"):
        model.predict_quantiles(frame, 0.5)


@pytest.mark.parametrize("num_rows", [5, 9, 37])
def test_small_tables_have_fewer_folds(num_rows: int) -> None:
    X, y = numbers(num_rows)
    model = quick(anchor="stack", folds=None).fit(X, y)
    assert len(model.fitted_.members) == min(8, max(2, num_rows // 4))
    assert np.isfinite(model.predict_dist(X).log_prob(y)).all()


@pytest.mark.parametrize("recipe", ["crossfit", "paper"])
def test_the_summary_says_what_was_fitted_and_how_good_it_is(recipe: str) -> None:
    frame, y = mixed(120)
    settings = {"anchor": "stack"} if recipe == "crossfit" else {"recipe": "paper", "anchor": "trees", "folds": None}
    model = quick(**settings).fit(frame, y)
    text = io.StringIO()
    model.summary(Console(file=text, width=100))
    scores = model.fitted_.held_out.scores
    for expected in ("trees", "4, 1 of them categorical", f"{scores['crps']:.4g}", "coverage of 90% intervals"):
        assert expected in text.getvalue()
    assert 0.5 < scores["coverage_90"] <= 1
    if recipe == "crossfit":
        assert [member.name for member in model.fitted_.anchor.members] == [
            *("trees", "xgboost", "quadratic", "kernel", "network")
        ]
        assert "stack" in text.getvalue()


def test_held_out_scores_are_those_of_rows_each_member_has_not_seen() -> None:
    X, y = numbers()
    model = quick().fit(X, y)
    held_out = model.fitted_.held_out
    assert np.array_equal(held_out.y, y)
    assert held_out.scores["crps"] == pytest.approx(held_out.densities.crps(y).mean())
    assert held_out.scores["nll"] == pytest.approx(-held_out.densities.log_prob(y).mean())
    low, high = held_out.densities.interval(0.9).T
    assert held_out.scores["coverage_90"] == pytest.approx(((y >= low) & (y <= high)).mean())


def test_plots() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    X, y = numbers()
    model = quick().fit(X, y)
    for plot in (model.plot_reliability, model.plot_pit, model.plot_intervals):
        assert plot().get_title() == plot(X[:30], y[:30]).get_title()
    axes = model.plot_reliability(X, y)
    levels, observed = axes.lines[1].get_data()
    inside = [((y >= low) & (y <= high)).mean() for low, high in [model.predict_interval(X, levels[50]).T]]
    assert observed[50] == pytest.approx(inside[0])
    points = model.plot_router(X).collections[0].get_offsets()
    assert points.shape == (len(y), 2)
    with pytest.raises(ValueError, match="member must be from 0 to 2, received 9"):
        model.plot_router(X, member=9)
    with pytest.raises(ValueError, match="X and y must be given together"):
        model.plot_pit(X)
    plt.close("all")


def test_the_progress_bar_counts_every_piece(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = numbers(60)
    quick(anchor="stack", verbose=True).fit(X, y)
    assert "18/18" in capsys.readouterr().out  # five anchors and the networks, three folds each


def test_rows_unlike_all_others_do_not_explode() -> None:
    """A column that never varied in the training rows, and one a thousand times as large as there."""
    X, y = numbers()
    X = np.column_stack([X, np.full(len(y), 2.0)])
    model = quick(anchor="stack").fit(X, y)
    new = X[:3].copy()
    new[0, 3] = 5.0
    new[1, 0] = 1000.0
    predicted = model.predict(new)
    assert predicted[0] == pytest.approx(model.predict(X[:1])[0], abs=0.1)
    length = y.max() - y.min()
    assert y.min() - 3 * length < predicted[1] < y.max() + 3 * length


def test_an_anchor_that_says_nothing_does_no_harm() -> None:
    """The stack's weights are all near zero, and its tiny variation must not be blown up to an input."""
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(200, 5)), np.exp(2 * rng.standard_normal(200))
    predicted = quick(anchor="stack").fit(X[:150], y[:150]).predict_dist(X[150:])
    assert np.abs(predicted.mean).max() < 3 * y.max()
