"""Models of other libraries inside a saved file are checked before the libraries read them.

XGBoost, LightGBM and scikit-learn take the indices of children and features on trust: some of these files would read
foreign memory or never end.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from archives import zipped
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
from sklearn.tree import DecisionTreeRegressor

from anchormoe.estimator.saving import SavedFileError, foreign, lightgbm_model, xgboost_model

X = np.random.default_rng(0).normal(size=(60, 3))
X[:, 2] = np.arange(60) % 5
Y = X[:, 0] + X[:, 2] % 3


def xgboost_content() -> bytes:
    import xgboost

    rows = xgboost.DMatrix(X, label=Y, feature_types=["q", "q", "c"], enable_categorical=True)
    return xgboost_model.to_bytes(xgboost.train({"max_depth": 3, "max_cat_to_onehot": 2}, rows, 3), "model")


def lightgbm_content() -> bytes:
    import lightgbm

    parameters = {"verbosity": -1, "num_leaves": 5, "min_data_in_leaf": 2, "min_data_per_group": 2, "cat_smooth": 1.0}
    rows = lightgbm.Dataset(X, Y, categorical_feature=[2])
    return lightgbm_model.to_bytes(lightgbm.train(parameters, rows, 3), "model")


@pytest.mark.parametrize(
    ("library", "make"),
    [(xgboost_model, xgboost_content), (lightgbm_model, lightgbm_content)],
    ids=["xgboost", "lightgbm"],
)
def test_changed_bytes(library: Any, make: Callable[[], bytes]) -> None:
    """The libraries would end the process at some of these; they get none of those."""
    content = make()
    assert library.is_its(library.from_bytes(content, ()))
    generator = np.random.default_rng(3)
    refused = 0
    for _ in range(300):
        data = bytearray(content)
        data[int(generator.integers(len(data)))] = int(generator.choice(list(b"0123456789-. =\n\xff\x7f\x00")))
        try:
            library.from_bytes(bytes(data), ())
        except Exception:
            refused += 1
    assert 100 < refused < 300
    for data in (b"", content[:-1], content[: len(content) // 2], bytes(100), b"{" * 100_000):
        with pytest.raises(ValueError, match="expected"):
            library.from_bytes(data, ())


def big_endian(*numbers: int) -> bytes:
    return np.array(numbers, dtype=">i4").tobytes()


def test_xgboost_trees_that_loop_or_leave_the_model() -> None:
    content = xgboost_content()
    start = content.index(b"left_children") + len(b"left_children[$l#L") + 8
    for child, message in ((0, "one parent"), (1000, "nodes of their tree"), (-2, "nodes of their tree")):
        data = content[:start] + big_endian(child) + content[start + 4 :]
        with pytest.raises(SavedFileError, match=message):
            xgboost_model.from_bytes(data, ())
    feature = content.index(b"split_indices") + len(b"split_indices[$l#L") + 8
    with pytest.raises(SavedFileError, match="splits on 3 features"):
        xgboost_model.from_bytes(content[:feature] + big_endian(7) + content[feature + 4 :], ())


def test_lightgbm_trees_that_loop_or_leave_the_model() -> None:
    text = lightgbm_content().decode()
    line = next(line for line in text.split("\n") if line.startswith("left_child="))
    first = line.removeprefix("left_child=").split(" ")[0]
    for child, message in ((0, "one parent"), (9, "nodes of their tree"), (-9, "nodes of their tree")):
        new = line.replace(first, str(child), 1)
        size = text.split("tree_sizes=")[1].split(" ")[0]
        grown = text.replace(line, new, 1).replace(
            f"tree_sizes={size}", f"tree_sizes={int(size) + len(new) - len(line)}"
        )
        with pytest.raises(SavedFileError, match=message):
            lightgbm_model.from_bytes(grown.encode(), ())


def changed_tree(regressor: Any, change: Callable[[dict[str, Any]], Any]) -> bytes:
    """Return a regressor in skops' format whose first tree has another state."""
    tree = regressor.tree_
    state = tree.__getstate__()
    change(state)
    hostile = type(tree)(tree.n_features, np.array([1], dtype=np.intp), 1)
    hostile.__setstate__(state)
    regressor.tree_ = hostile
    return foreign.to_bytes(regressor, "anchor")


def set_node(name: str, node: int, value: int) -> Callable[[dict[str, Any]], Any]:
    return lambda state: state["nodes"][name].__setitem__(node, value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_node("left_child", 0, 0), "one parent"),
        (set_node("left_child", 0, 10**6), "nodes of their tree"),
        (set_node("right_child", 0, -1), "two children or none"),
        (set_node("feature", 0, 3), "splits on 3 features"),
        (set_node("feature", 0, -5), "splits on 3 features"),
    ],
)
def test_trees_of_scikit_learn(change: Callable[[dict[str, Any]], Any], message: str) -> None:
    content = changed_tree(DecisionTreeRegressor(max_depth=2).fit(X, Y), change)
    with pytest.raises(SavedFileError, match=message):
        foreign.from_bytes(content, ())


@pytest.mark.parametrize("ensemble", [RandomForestRegressor(2), GradientBoostingRegressor(n_estimators=2)])
def test_ensembles_whose_trees_have_more_features(ensemble: Any) -> None:
    wide = DecisionTreeRegressor(max_depth=2).fit(np.tile(X, 2), Y)
    ensemble.fit(X, Y)
    ensemble.estimators_[0] = wide if isinstance(ensemble, RandomForestRegressor) else [wide]
    with pytest.raises(SavedFileError, match="estimators of 3 features"):
        foreign.from_bytes(foreign.to_bytes(ensemble, "anchor"), ())


def regressor_members() -> dict[str, bytes]:
    """Return what skops writes for a regressor."""
    content = foreign.to_bytes(DecisionTreeRegressor(max_depth=2).fit(X, Y), "anchor")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_archives_within_the_archive() -> None:
    members = regressor_members()
    with pytest.raises(SavedFileError, match="members without compression"):
        foreign.from_bytes(zipped({**members, "bomb.npy": bytes(10**6)}, zipfile.ZIP_DEFLATED), ())
    bomb = zipped({"data.npy": bytes(2**28 + 1)}, zipfile.ZIP_DEFLATED)
    with pytest.raises(SavedFileError, match="sparse matrices of at most"):
        foreign.from_bytes(zipped({**members, "1.npz": bomb}), ())


def test_a_function_is_not_called() -> None:
    members = regressor_members()
    schema = json.loads(members["schema.json"])
    schema.update({"__class__": "system", "__module__": "os", "__loader__": "FunctionNode", "content": "system"})
    with pytest.raises(SavedFileError, match=r"os\.system"):
        foreign.from_bytes(zipped({**members, "schema.json": json.dumps(schema)}), ())
