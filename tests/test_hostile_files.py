"""A saved file that is damaged, hostile or newer is refused with one clear line, and nothing in it is executed."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from archives import zipped

from anchormoe import AnchorMoERegressor
from anchormoe.estimator.saving import SavedFileError
from anchormoe.model.settings import AnchorKind, AnchorSettings

SMALL: dict[str, Any] = {"folds": 2, "hidden_dim": 4, "training": {"epochs": 1, "min_steps": 0}, "random_state": 0}
X = np.random.default_rng(0).normal(size=(60, 3))
Y = X[:, 0] * X[:, 1]


class Saved:
    """A saved model whose content can be changed; sizes and hashes are then stated as a hostile author would."""

    def __init__(self, path: Path, **parameters: Any) -> None:
        self.path = path
        self.model = AnchorMoERegressor(**{**SMALL, **parameters}).fit(X, Y)
        self.model.save(path)
        self.data = path.read_bytes()
        with zipfile.ZipFile(path) as archive:
            self.members = {name: archive.read(name) for name in archive.namelist()}

    @property
    def manifest(self) -> dict[str, Any]:
        return json.loads(self.members["manifest.json"])

    def load(self, data: bytes) -> AnchorMoERegressor:
        self.path.write_bytes(data)
        return AnchorMoERegressor.load(self.path)

    def load_changed(self, manifest: Any = None, **members: bytes) -> AnchorMoERegressor:
        """Load the file with another manifest or with other members, given by the beginnings of their names."""
        contents = {
            name: next((new for start, new in members.items() if name.startswith(start)), content)
            for name, content in self.members.items()
            if name != "manifest.json"
        }
        if manifest is None:
            manifest = self.manifest
        if isinstance(manifest, dict):
            manifest["members"] = {
                name: {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
                for name, content in contents.items()
            }
            manifest = json.dumps(manifest)
        return self.load(zipped({"manifest.json": manifest, **contents}))

    def refuses(self, message: str, manifest: Any = None, **members: bytes) -> None:
        with pytest.raises(SavedFileError, match=message) as caught:
            self.load_changed(manifest, **members)
        assert_one_line(caught.value, self.path)


def assert_one_line(error: SavedFileError, path: Path) -> None:
    text = str(error)
    assert text.startswith(f"{path} cannot be loaded: expected ")
    assert "found" in text
    assert "\n" not in text
    assert len(text) < 1000


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    return Saved(tmp_path_factory.mktemp("saved") / "model.anchormoe", anchor=None, num_experts=2)


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """Return a stack of own trees, a kernel machine and another network."""
    members = {
        "trees": {"kind": "trees", "stages": 2, "params": {"learning_rate": 0.3, "max_depth": 2}},
        **{name: {"kind": name} for name in ("kernel", "network")},
    }
    anchor = AnchorSettings("stack", AnchorKind.stack, members=members)
    return Saved(tmp_path_factory.mktemp("trees") / "model.anchormoe", anchor=anchor, num_experts=2)


def test_an_unchanged_copy_loads(saved: Saved, trees: Saved) -> None:
    for one in (saved, trees):
        np.testing.assert_array_equal(one.load_changed().predict(X), one.model.predict(X))


def test_flipped_bytes(saved: Saved) -> None:
    """A byte that does not matter (a time, an attribute) changes nothing; every other one is found."""
    expected = saved.model.predict(X)
    generator = np.random.default_rng(1)
    size = len(saved.data)
    directory = range(size - 300, size)  # the names, sizes and places of the members
    refused = 0
    for position in [*range(120), *directory, *generator.integers(size, size=200)]:
        data = bytearray(saved.data)
        data[position] ^= int(generator.integers(1, 256))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # zipfile's, of repeated names
                loaded = saved.load(bytes(data))
        except SavedFileError as error:
            refused += 1
            assert_one_line(error, saved.path)
        else:
            np.testing.assert_array_equal(loaded.predict(X), expected)
    assert refused > 400


def test_truncated_and_extended_files(saved: Saved) -> None:
    generator = np.random.default_rng(2)
    size = len(saved.data)
    for length in [*range(30), *range(size - 30, size), *generator.integers(size, size=60)]:
        with pytest.raises(SavedFileError) as caught:
            saved.load(saved.data[:length])
        assert_one_line(caught.value, saved.path)
    with pytest.raises(SavedFileError):
        saved.load(saved.data + b"more" * 20000)


def test_files_of_another_kind(saved: Saved) -> None:
    bomb = b"cos\nsystem\n(S'touch executed'\ntR."
    for data in (b"", b"PK", b"PK\x03\x04" + bytes(100), b"length,width\n1,2\n", bomb, pickle.dumps(saved.model)):
        with pytest.raises(SavedFileError, match="cannot be loaded") as caught:
            saved.load(data)
        assert_one_line(caught.value, saved.path)
    with pytest.raises(FileNotFoundError):
        AnchorMoERegressor.load(saved.path.parent / "nothing")


def test_a_newer_file(saved: Saved) -> None:
    manifest = {**saved.manifest, "format": 2, "attributes": "of another form"}
    manifest["written_by"]["anchormoe"] = "9.1"
    saved.refuses("file of format 1, found format 2; it was written by anchormoe 9.1: upgrade", manifest)
    for wrong in (0, -1, 1.0, True, "1", None, [1]):
        saved.refuses("a format that is a whole number", {**saved.manifest, "format": wrong})


def test_containers(saved: Saved) -> None:
    members = saved.members
    for data, message in (
        (zipped(members, zipfile.ZIP_DEFLATED), "members without compression"),
        (zipped({**members, "bomb": bytes(10**7)}, zipfile.ZIP_DEFLATED), "members without compression"),
        (zipped({**members, "../../outside": "x"}), "members that save writes, found '../../outside'"),
        (zipped({**members, "/etc/outside": "x"}), "members that save writes"),
        (zipped({**members, "skops/0.skops": "x"}), "expected the members"),
        (zipped({"manifest.json": members["manifest.json"]}), "expected the members"),
        (zipped({"arrays.safetensors": members["arrays.safetensors"]}), r"a member manifest\.json"),
        (zipped({**members, "arrays.safetensors": b"other"}), r"arrays\.safetensors with .*sha256"),
    ):
        with pytest.raises(SavedFileError, match=message) as caught:
            saved.load(data)
        assert_one_line(caught.value, saved.path)
    assert not (saved.path.parent.parent / "outside").exists()


def test_repeated_members(saved: Saved) -> None:
    buffer = io.BytesIO(saved.data)
    with zipfile.ZipFile(buffer, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("manifest.json", saved.members["manifest.json"])
    with pytest.raises(SavedFileError, match="different names of members"):
        saved.load(buffer.getvalue())


def test_sizes_that_are_not_true(saved: Saved) -> None:
    """Members that overlap, or claim to be larger than the file, are not read."""
    data = bytearray(saved.data)
    entry = data.index(b"PK\x01\x02")
    data[entry + 20 : entry + 28] = (2**31).to_bytes(4, "little") * 2
    with pytest.raises(SavedFileError, match="members of at most"):
        saved.load(bytes(data))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000 + "]" * 100_000,
        '{"format": 1, "attributes": ' + '{"kind": "list", "items": [' * 2000 + "]}" * 2000 + "}",
        '{"format": NaN}',
        '{"format": 1, "format": 1}',
        '{"format": 1, "members": {"arrays.safetensors": {"size": NaN, "sha256": "0"}}}',
        "[]",
        "null",
        '{"format": ' + "9" * 5000 + "}",
        "{",
        "\xff",
        " " * (2**26 + 1),
    ],
    ids=[
        "deep",
        "deep objects",
        "nan",
        "repeated",
        "nan size",
        "list",
        "null",
        "long number",
        "open",
        "binary",
        "long",
    ],
)
def test_manifests_that_are_not_one(saved: Saved, text: str) -> None:
    saved.refuses("cannot be loaded", text)


def changed(value: Any, path: str, new: Any) -> Any:
    """Return JSON with the piece at a path of keys and positions replaced, or left out if `new` is ..."""
    copied = json.loads(json.dumps(value))
    *way, last = [int(step) if step.isdigit() else step for step in path.split("/")]
    place = copied
    for step in way:
        place = place[step]
    if new is ...:
        del place[last]
    else:
        place[last] = new
    return copied


FITTED = "attributes/fitted_/fields"
MEMBER = f"{FITTED}/members/items/0/fields"
MODEL = f"{MEMBER}/model"


@pytest.mark.parametrize(
    ("path", "new", "message"),
    [
        ("attributes", ..., "section 'attributes'"),
        ("attributes/columns_", ..., "the attributes"),
        ("attributes/__class__", 1, "the attributes"),
        ("attributes/n_features_in_", 4, "n_features_in_ to be 3"),
        ("attributes/n_features_in_", float("1e300"), "n_features_in_ to be 3"),
        ("attributes/feature_names_in_", "abc", "3 names of columns"),
        ("attributes/fitted_", {"kind": "list", "items": []}, "fitted_ to be of a recipe"),
        ("attributes/fitted_/type", "os.system", "fitted_ to have a type that is known, found 'os.system'"),
        ("attributes/fitted_/type", "Writer", "type that is known"),
        ("attributes/fitted_/type", ["Member"], "type that is known"),
        ("attributes/fitted_/kind", "pickle", "to have a kind among"),
        ("attributes/fitted_/kind", ["object"], "to have a kind among"),
        (f"{FITTED}/members/items", [], "at least one network"),
        (f"{FITTED}/linear_map", 3, "linear_map to be"),
        (f"{FITTED}/target/fields/num_rows", "many", "num_rows to be"),
        (f"{FITTED}/target/fields/num_rows", True, "num_rows to be"),
        (f"{FITTED}/target/fields/other", 1, "fields among"),
        (f"{FITTED}/target/fields/std", ..., "to have the fields"),
        (f"{FITTED}/held_out/fields/y/name", "nothing", "the name of an array"),
        (f"{FITTED}/held_out/fields/y/axes", [1], "to have 1 axes"),
        (f"{FITTED}/held_out/fields/y/axes", [-1], "to have 1 axes"),
        (f"{MEMBER}/scaling/fields/anchor_column", False, "means of 3 columns"),
        (f"{MEMBER}/encoder/fields/columns/items/0/fields/position", 3, "a column below 3"),
        (f"{MEMBER}/encoder/fields/columns/items/0/fields/position", -1, "a column below 3"),
        (f"{MEMBER}/encoder/fields/columns/items/0/fields/had_gaps", True, "3 encoded columns"),
        (f"{MEMBER}/anchor", {"kind": "object", "type": "LinearMap", "fields": {}}, "cannot be loaded"),
        (f"{MEMBER}/selected/fields/epoch", None, "epoch to be"),
        (f"{MODEL}/settings/fields/hidden_dim", 10**8, "weights of the shapes"),
        (f"{MODEL}/settings/fields/hidden_dim", 10**12, "cannot be loaded"),
        (f"{MODEL}/settings/fields/num_experts", 10**12, "to have 1000000000000 experts"),
        (f"{MODEL}/settings/fields/top_k", 3, "cannot be loaded"),
        (f"{MODEL}/settings/fields/router/name", "teleport", "a name among dot, cosine, none"),
        (f"{MODEL}/settings/fields/sigma_min", {"kind": "real", "value": "nan"}, "cannot be loaded"),
        (f"{MODEL}/settings/fields/sigma_min", {"kind": "real", "value": "1"}, "a value among inf"),
        (f"{MODEL}/input_dim", 5, "weights of the shapes"),
        (f"{MODEL}/input_dim", -1, "of positive size"),
        (f"{MODEL}/temperature", 0.0, "of positive size"),
        (f"{MODEL}/weights/window.center_KD", ..., "weights of the shapes"),
        (f"{MODEL}/weights/window.center_KD/name", "columns_", "the name of an array"),
        ("parameters/__init__", 1, "parameters among"),
        ("parameters/anchor", {"kind": "skops", "member": "skops/0.skops"}, "to have a member among"),
        ("parameters/anchor", {"kind": "skops", "member": "arrays.safetensors"}, "a zip archive"),
        ("parameters/anchor", {"kind": "xgboost", "member": "arrays.safetensors"}, "cannot be loaded"),
        ("parameters/anchor", {"kind": "lightgbm", "member": "arrays.safetensors"}, "cannot be loaded"),
        ("parameters/training/items", [[{"kind": "list", "items": []}, 1]], "unhashable"),
        ("parameters/training/items", [1], "to have pairs"),
    ],
)
def test_objects_that_are_not_what_save_writes(saved: Saved, path: str, new: Any, message: str) -> None:
    saved.refuses(message, changed(saved.manifest, path, new))


def changed_array(content: bytes, ending: str, change: Callable[[np.ndarray], np.ndarray]) -> bytes:
    arrays = {name: np.array(array) for name, array in safetensors.numpy.load(content).items()}
    name = next(name for name in arrays if name.endswith(ending))
    return safetensors.numpy.save({**arrays, name: change(arrays[name])})


@pytest.mark.parametrize(
    ("ending", "change", "message"),
    [
        ("model.feature", lambda feature: feature + 3, "splits on 3 features"),
        ("model.feature", lambda feature: feature - 2**31, "splits on 3 features"),
        ("model.feature", lambda feature: feature.astype(float), "whole numbers of features"),
        ("model.feature", lambda feature: feature[:, :2], "complete binary trees"),
        ("model.threshold", lambda threshold: threshold[:1], "complete binary trees"),
        ("model.leaf", lambda leaf: leaf[:, :3], "complete binary trees"),
        ("model.leaf", lambda leaf: leaf.astype(np.float32), "whole numbers of features"),
        ("anchor.weights", lambda weights: weights[:2], "3 weights"),
        ("model.centers", lambda centers: centers[:, :2], "a kernel of 3 columns"),
        ("model.weights", lambda weights: weights[1:], "a weight for each center"),
        ("scaling.column_mean", lambda mean: mean[:1], "means of 4 columns"),
        ("model.experts.packed.0", lambda packed: packed[:-1], "weights of the shapes"),
        ("model.experts.packed.0", lambda packed: packed.astype(np.float64), "weights of the shapes"),
        ("densities.means", lambda means: means[:3], "held-out densities"),
    ],
)
def test_arrays_that_do_not_fit(
    trees: Saved, ending: str, change: Callable[[np.ndarray], np.ndarray], message: str
) -> None:
    trees.refuses(message, arrays=changed_array(trees.members["arrays.safetensors"], ending, change))


@pytest.mark.parametrize(
    "header",
    [
        {"x": {"dtype": "F64", "shape": [2**40, 2**20], "data_offsets": [0, 8]}},
        {"x": {"dtype": "F64", "shape": [-1], "data_offsets": [0, 8]}},
        {"x": {"dtype": "F64", "shape": [1], "data_offsets": [0, 2**60]}},
        {"x": {"dtype": "O", "shape": [1], "data_offsets": [0, 8]}},
    ],
    ids=["huge", "negative", "outside", "object"],
)
def test_arrays_that_are_not_safetensors(saved: Saved, header: dict[str, Any]) -> None:
    text = json.dumps(header).encode()
    saved.refuses("cannot be loaded", arrays=len(text).to_bytes(8, "little") + text + bytes(8))
    saved.refuses("cannot be loaded", arrays=(2**62).to_bytes(8, "little") + text)
