"""A saved regressor predicts the same bits when it is loaded, here and in another process, and saving loses nothing."""

from __future__ import annotations

import copy
import errno
import hashlib
import io
import json
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

import anchormoe
from anchormoe import AnchorMoERegressor
from anchormoe.estimator.saving import SavedFileError
from anchormoe.model.settings import AnchorKind, AnchorSettings, CrossfitSettings, ModelSettings

SMALL: dict[str, Any] = {"folds": 2, "hidden_dim": 8, "training": {"epochs": 2, "min_steps": 0}, "random_state": 0}
PAPER: dict[str, Any] = {"recipe": "paper", **{name: value for name, value in SMALL.items() if name != "folds"}}
MEMBERS = {
    "trees": {"kind": "trees", "stages": 5, "params": {"learning_rate": 0.3, "max_depth": 2}},
    "xgboost": {"kind": "xgboost", "stages": 5, "params": {"max_depth": 2}},
    **{name: {"kind": name} for name in ("quadratic", "kernel", "network")},
}
STACK = AnchorSettings("stack", AnchorKind.stack, members=MEMBERS)
LIGHTGBM = {"num_leaves": 4, "min_child_samples": 2, "min_data_per_group": 2, "cat_smooth": 1.0, "max_cat_to_onehot": 1}


def boosted(kind: AnchorKind, **params: Any) -> AnchorSettings:
    return AnchorSettings(kind.value, kind, stages=5, params=params)


def numbers() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    return X, X[:, 0] * X[:, 1] + 0.1 * rng.normal(size=60)


def table() -> tuple[pd.DataFrame, np.ndarray]:
    """Return a table with gaps, a category of few levels and one of many."""
    X, y = numbers()
    frame = pd.DataFrame(X, columns=["length", "width", "height"])
    frame.loc[::7, "width"] = np.nan
    frame["colour"] = np.array(["red", "green", "blue"])[np.arange(60) % 3]
    frame.loc[5, "colour"] = None
    frame["town"] = pd.Categorical(np.arange(60) % 15)
    return frame, y + 0.5 * (np.arange(60) % 3)


def assert_equal_predictions(model: AnchorMoERegressor, loaded: AnchorMoERegressor, X: Any) -> None:
    ours, theirs = model.predict_dist(X), loaded.predict_dist(X)
    for name in ("log_weights", "means", "scales", "mean", "std"):
        first, second = getattr(ours, name), getattr(theirs, name)
        assert first.dtype == second.dtype
        np.testing.assert_array_equal(first, second)


def summary(model: AnchorMoERegressor) -> str:
    text = io.StringIO()
    model.summary(Console(file=text, width=100))
    return text.getvalue()


@pytest.fixture(scope="module")
def ridge() -> AnchorMoERegressor:
    return AnchorMoERegressor(anchor="ridge", **SMALL).fit(*numbers())


CASES = {
    "stack": {"anchor": STACK, **SMALL},
    "several cuts into folds": {"anchor": "ridge", **SMALL, "folds": CrossfitSettings(folds=2, repetitions=2)},
    "no anchor, crps": {"anchor": None, "loss": "crps", **SMALL},
    "gbdt": {"anchor": boosted(AnchorKind.gbdt, max_depth=2), **SMALL},
    "lightgbm": {"anchor": boosted(AnchorKind.lightgbm, **LIGHTGBM), **SMALL},
    "xgboost, pruned": {"anchor": boosted(AnchorKind.xgboost, max_depth=4, gamma=1.0, tree_method="exact"), **PAPER},
    "paper, trees": {"anchor": boosted(AnchorKind.trees, max_depth=2, learning_rate=0.3), **PAPER},
    "paper, ridge": {"anchor": "ridge", "calibration": "none", **PAPER},
    "forest": {"anchor": RandomForestRegressor(5, max_features=0.5), **SMALL},
    "pipeline": {"anchor": make_pipeline(StandardScaler(), SVR()), **SMALL},
    "settings": {
        "anchor": "ridge",
        "network": ModelSettings(hidden_dim=4, layer_norm=True),
        **PAPER,
        "hidden_dim": None,
    },
}


@pytest.mark.parametrize("parameters", CASES.values(), ids=CASES)
def test_a_loaded_model_is_the_saved_one(parameters: dict[str, Any], tmp_path: Path) -> None:
    X, y = numbers()
    model = AnchorMoERegressor(**parameters).fit(X, y)
    model.save(tmp_path / "model.anchormoe")
    loaded = AnchorMoERegressor.load(tmp_path / "model.anchormoe")
    assert_equal_predictions(model, loaded, np.vstack([X, 3 * X]))
    np.testing.assert_array_equal(model.fitted_.held_out.y, loaded.fitted_.held_out.y)
    assert summary(model) == summary(loaded)
    assert model.diagnostics_ == loaded.diagnostics_
    assert str(model.get_params(deep=False)) == str(loaded.get_params(deep=False))


CATEGORICAL = {
    "stack": {"anchor": STACK, **SMALL},
    "xgboost": {"anchor": boosted(AnchorKind.xgboost, max_depth=3, max_cat_to_onehot=2), **PAPER},
    "lightgbm": {"anchor": boosted(AnchorKind.lightgbm, **LIGHTGBM), **SMALL},
    "trees": {"anchor": boosted(AnchorKind.trees, max_depth=2, learning_rate=0.3), **SMALL},
}


@pytest.mark.parametrize("parameters", CATEGORICAL.values(), ids=CATEGORICAL)
def test_categories_gaps_and_weights(parameters: dict[str, Any], tmp_path: Path) -> None:
    X, y = table()
    model = AnchorMoERegressor(**parameters).fit(X, y, sample_weight=np.linspace(0.5, 2, 60))
    model.save(tmp_path / "model.anchormoe")
    loaded = AnchorMoERegressor.load(tmp_path / "model.anchormoe")
    new = X.assign(colour="violet", length=np.nan)  # a level and a gap that were not there
    for rows in (X, new):
        assert_equal_predictions(model, loaded, rows)
    assert loaded.n_features_in_ == 5
    np.testing.assert_array_equal(loaded.feature_names_in_, model.feature_names_in_)
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(X[X.columns[::-1]])


def test_a_target_that_never_varies(tmp_path: Path) -> None:
    X, y = numbers()
    for kind in (AnchorKind.xgboost, AnchorKind.lightgbm):  # trees without a split
        params = {"min_child_samples": 2} if kind is AnchorKind.lightgbm else {}
        model = AnchorMoERegressor(anchor=boosted(kind, **params), **SMALL).fit(X, np.full_like(y, 2.5))
        model.save(tmp_path / "model.anchormoe")
        assert_equal_predictions(model, AnchorMoERegressor.load(tmp_path / "model.anchormoe"), X)


def test_another_process_predicts_the_same_bits(tmp_path: Path) -> None:
    X, y = numbers()
    stack = AnchorMoERegressor(anchor=STACK, **SMALL).fit(X, y)
    stack.save(tmp_path / "model.anchormoe")
    np.save(tmp_path / "X.npy", X)
    code = """
import numpy as np
from anchormoe import AnchorMoERegressor
predicted = AnchorMoERegressor.load("model.anchormoe").predict_dist(np.load("X.npy"))
np.save("predicted.npy", np.stack([predicted.log_weights, predicted.means, predicted.scales]))
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    predicted = stack.predict_dist(X)
    ours = np.stack([predicted.log_weights, predicted.means, predicted.scales])
    np.testing.assert_array_equal(np.load(tmp_path / "predicted.npy"), ours)


def test_a_loaded_model_can_be_cloned_fitted_and_saved_again(ridge: AnchorMoERegressor, tmp_path: Path) -> None:
    X, y = numbers()
    ridge.save(tmp_path / "first")
    loaded = AnchorMoERegressor.load(tmp_path / "first")
    assert_equal_predictions(ridge, clone(loaded).fit(X, y), X)
    loaded.save(tmp_path / "second")
    assert_equal_predictions(ridge, AnchorMoERegressor.load(tmp_path / "second"), X)


def test_pickle_and_joblib(tmp_path: Path) -> None:
    X, y = table()
    model = AnchorMoERegressor(anchor=STACK, **SMALL).fit(X, y)
    assert_equal_predictions(model, pickle.loads(pickle.dumps(model)), X)
    joblib.dump(model, tmp_path / "model.joblib")
    assert_equal_predictions(model, joblib.load(tmp_path / "model.joblib"), X)


def test_parameters_of_all_kinds(ridge: AnchorMoERegressor, tmp_path: Path) -> None:
    drawn = np.random.RandomState(3)
    drawn.normal(size=5)
    stated: dict[str, Any] = {
        "random_state": drawn,
        "folds": np.int64(3),
        "categorical_features": np.array(["a", "b"]),
        "training": {"learning_rate": float("inf"), "epochs": 2},
        "recipe_parameters": {"anchor_column": np.bool_(False), "steps": (1, [2.5])},
        "anchor": RandomForestRegressor(3, random_state=4),
    }
    model = copy.copy(ridge).set_params(**stated)
    model.save(tmp_path / "model")
    loaded = AnchorMoERegressor.load(tmp_path / "model").get_params(deep=False)
    assert loaded.pop("random_state").normal() == drawn.normal()
    np.testing.assert_array_equal(loaded.pop("categorical_features"), stated["categorical_features"])
    assert type(loaded["folds"]) is np.int64
    assert str(loaded) == str({name: value for name, value in model.get_params(deep=False).items() if name in loaded})


def test_arrays_keep_their_order_in_memory(ridge: AnchorMoERegressor, tmp_path: Path) -> None:
    stored = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    model = copy.copy(ridge).set_params(categorical_features=[stored, stored.T, stored[:, ::2]])
    model.save(tmp_path / "model")
    first, second, third = AnchorMoERegressor.load(tmp_path / "model").categorical_features
    assert first.flags.f_contiguous
    assert second.flags.c_contiguous
    for loaded, saved in ((first, stored), (second, stored.T), (third, stored[:, ::2])):
        np.testing.assert_array_equal(loaded, saved)


def test_the_file_says_what_it_holds(ridge: AnchorMoERegressor, tmp_path: Path) -> None:
    ridge.save(tmp_path / "model")
    with zipfile.ZipFile(tmp_path / "model") as archive:
        manifest = json.loads(archive.read("manifest.json"))
        assert manifest["format"] == 1
        assert manifest["written_by"]["anchormoe"] == anchormoe.__version__
        assert manifest["written_by"]["numpy"] == np.__version__
        assert archive.namelist() == ["manifest.json", "arrays.safetensors", "skops/0.skops", "skops/1.skops"]
        for name, stated in manifest["members"].items():
            content = archive.read(name)
            assert stated == {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def test_the_same_model_gives_the_same_file(tmp_path: Path) -> None:
    for name in ("first", "second"):
        AnchorMoERegressor(anchor="kernel", **SMALL).fit(*numbers()).save(tmp_path / name)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


class HalfMean(RegressorMixin, BaseEstimator):
    """A regressor of the user's own, which skops does not know."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> HalfMean:
        self.mean_ = float(y.mean()) / 2
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.full(len(X), self.mean_)


@pytest.mark.parametrize(
    ("anchor", "named"),
    [
        (HalfMean(), f"{__name__}.HalfMean"),
        (
            HistGradientBoostingRegressor(max_iter=3),
            "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
        ),
        (LinearRegression, "sklearn.linear_model._base.LinearRegression"),  # skops trusts instances, not classes
    ],
    ids=["own", "histogram", "class"],
)
def test_types_that_are_not_known_must_be_named(anchor: Any, named: str, tmp_path: Path) -> None:
    X, y = numbers()
    model = AnchorMoERegressor(anchor=anchor, **SMALL).fit(X, y)
    model.save(tmp_path / "model")
    with pytest.raises(SavedFileError, match=rf"found {named}; if you trust .* trusted=\['{named}'\]") as caught:
        AnchorMoERegressor.load(tmp_path / "model", trusted=["another.Type"])
    assert "\n" not in str(caught.value)
    assert_equal_predictions(model, AnchorMoERegressor.load(tmp_path / "model", trusted=[named]), X)
    with pytest.raises(ValueError, match="trusted must be a list"):
        AnchorMoERegressor.load(tmp_path / "model", trusted=named)


def test_what_cannot_be_saved_leaves_the_old_file(ridge: AnchorMoERegressor, tmp_path: Path) -> None:
    path = tmp_path / "model"
    ridge.save(path)
    before = path.read_bytes()
    for parameters, message in (
        ({"verbose": object()}, "verbose must be something that can be saved"),
        ({"categorical_features": np.array([1j])}, "categorical_features must be an array of numbers"),
        ({"training": {"epochs": {1, 2}}}, r"training\.epochs must be something that can be saved"),
    ):
        with pytest.raises(ValueError, match=message):
            copy.copy(ridge).set_params(**parameters).save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model"]


def test_a_full_disk_leaves_the_old_file(
    ridge: AnchorMoERegressor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model"
    ridge.save(path)
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"could not be saved to .*model: No space left") as caught:
        ridge.save(path)
    assert caught.value.errno == errno.ENOSPC
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model"]


def test_a_place_that_cannot_be_written(ridge: AnchorMoERegressor, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for place in ("nowhere/model", "folder"):
        with pytest.raises(OSError, match=f"could not be saved to .*{place}: ") as caught:
            ridge.save(tmp_path / place)
        assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == ["folder"]


def test_a_link_is_written_through(ridge: AnchorMoERegressor, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    ridge.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").stat().st_mode & 0o777 == 0o666 & ~_umask()
    AnchorMoERegressor.load(tmp_path / "target")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
