"""The object graph as JSON, with everything large or foreign in members of its own.

None, truth values, whole numbers, text             as in JSON
{"kind": "real", "value": "inf"}                    numbers that JSON does not have; others as in JSON
{"kind": "list" | "tuple", "items": [...]}
{"kind": "dict", "items": [[key, value], ...]}
{"kind": "array", "name": ..., "axes": [...]}       an array of the safetensors member; axes in order of strides
{"kind": "scalar", "name": ...}                     a NumPy scalar, as an array without axes
{"kind": "texts", "items": [...], "dtype": ...}     an array of text
{"kind": "object", "type": ..., "fields": {...}}    a dataclass of the registry
{"kind": "choice", "type": ..., "name": ...}        an enum of the registry
{"kind": "network", ...}                            an AnchorMoE: its settings and its weights; with "num_targets"
                                                    a JointAnchorMoE
{"kind": "random_state", ...}                       a RandomState
{"kind": "xgboost" | "lightgbm" | "skops", "member": ...}
"""

from __future__ import annotations

import dataclasses
import math
import zipfile
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np
import safetensors.numpy
import torch

from anchormoe.estimator.saving import archive, foreign, lightgbm_model, xgboost_model
from anchormoe.estimator.saving.errors import refused, require
from anchormoe.estimator.saving.registry import DATACLASSES, ENUMS, field_types, is_of
from anchormoe.model.joint_network import JointAnchorMoE
from anchormoe.model.network import AnchorMoE
from anchormoe.model.settings import CrossfitSettings, ModelSettings

_DTYPES = (
    "float64",
    "float32",
    "float16",
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
)
# Settings that files of earlier versions do not have.
LATER_SETTINGS = {
    ModelSettings: ("covariance", "rank"),
    CrossfitSettings: ("repetitions", "repetitions_when_large"),
}
_LIBRARIES = {"xgboost": (xgboost_model, "ubj"), "lightgbm": (lightgbm_model, "txt"), "skops": (foreign, "skops")}


class Writer:
    """Turns objects into JSON, and collects arrays and members on the way."""

    def __init__(self) -> None:
        self._arrays: dict[str, np.ndarray] = {}
        self._names: dict[int, str] = {}  # of arrays that several objects share, which are stored once
        self._kept: list[np.ndarray] = []  # as long as an id is remembered, its array must live
        self._members: dict[str, bytes] = {}

    def members(self) -> dict[str, bytes]:
        """Return the content of all members."""
        return {archive.ARRAYS: safetensors.numpy.save(self._arrays), **self._members}

    def encode(self, value: Any, path: str) -> Any:
        """Return a value as JSON; `path` says where it stands, in names of arrays and in errors."""
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"kind": "real", "value": repr(value)}
        if isinstance(value, np.generic | np.ndarray):
            return self._array(value, path)
        if isinstance(value, list | tuple):
            kind = "list" if isinstance(value, list) else "tuple"
            return {"kind": kind, "items": [self.encode(item, f"{path}.{k}") for k, item in enumerate(value)]}
        if isinstance(value, Mapping):
            items = [
                [self.encode(key, f"{path}.{k}"), self.encode(item, f"{path}.{key}")]
                for k, (key, item) in enumerate(value.items())
            ]
            return {"kind": "dict", "items": items}
        if isinstance(value, Enum) and type(value) is ENUMS.get(type(value).__name__):
            return {"kind": "choice", "type": type(value).__name__, "name": value.name}
        if dataclasses.is_dataclass(value) and type(value) is DATACLASSES.get(type(value).__name__):
            return self._object(value, path)
        if type(value) in (AnchorMoE, JointAnchorMoE):
            return self._network(value, path)
        if type(value) is np.random.RandomState:
            return self._random_state(value, path)
        for name, (library, ending) in _LIBRARIES.items():
            if library.is_its(value):
                member = f"{name}/{len(self._members)}.{ending}"
                self._members[member] = library.to_bytes(value, path)
                return {"kind": name, "member": member}
        raise ValueError(f"{path} must be something that can be saved, received {type(value)}: use joblib or pickle")

    def _array(self, value: np.ndarray | np.generic, path: str) -> dict[str, Any]:
        if isinstance(value, np.generic):
            return {"kind": "scalar", "name": self._stored(np.array(value), path)}
        if value.dtype.kind in "OU" and all(isinstance(item, str) for item in value.flat) and value.ndim == 1:
            return {"kind": "texts", "items": value.tolist(), "dtype": value.dtype.kind}
        if id(value) not in self._names:
            # Sums go along the strides: the same numbers in another order in memory would give other last bits.
            self._names[id(value)] = self._stored(value.transpose(_axes(value)), path)
            self._kept.append(value)
        return {"kind": "array", "name": self._names[id(value)], "axes": _axes(value)}

    def _stored(self, array: np.ndarray, path: str) -> str:
        if array.dtype.name not in _DTYPES:
            raise ValueError(f"{path} must be an array of numbers, received dtype {array.dtype}: use joblib or pickle")
        self._arrays[path] = np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
        return path

    def _object(self, value: Any, path: str) -> dict[str, Any]:
        fields = {}
        kind: Any = type(value)
        for name, wanted in field_types(kind).items():
            if name not in vars(value):  # the result of a fit that has not been made
                continue
            content = getattr(value, name)
            if not is_of(content, wanted):
                raise ValueError(f"{path}.{name} must be {wanted}, received {type(content)}: use joblib or pickle")
            fields[name] = self.encode(content, f"{path}.{name}")
        return {"kind": "object", "type": kind.__name__, "fields": fields}

    def _random_state(self, value: np.random.RandomState, path: str) -> dict[str, Any]:
        state: Any = value.get_state(legacy=False)
        return {
            "kind": "random_state",
            "keys": self._array(state["state"]["key"], path),
            "position": state["state"]["pos"],
            "has_gauss": state["has_gauss"],
            "gauss": state["gauss"],
        }

    def _network(self, model: AnchorMoE, path: str) -> dict[str, Any]:
        state = {name: tensor.numpy(force=True) for name, tensor in model.state_dict().items()}
        return {
            "kind": "network",
            **({"num_targets": model.num_targets} if isinstance(model, JointAnchorMoE) else {}),
            "settings": self.encode(model.config, f"{path}.settings"),
            "input_dim": model.experts.input_dim,
            "temperature": float(model.temperature),
            "weights": {name: self._array(array, f"{path}.{name}") for name, array in state.items()},
        }


class Reader:
    """Turns JSON back into objects, and refuses all that a Writer does not write."""

    def __init__(self, members: Mapping[str, bytes], trusted: Sequence[str]) -> None:
        self._members, self._trusted = members, trusted
        require(archive.ARRAYS in members, f"a member {archive.ARRAYS}", sorted(members))
        self._arrays = safetensors.numpy.load(members[archive.ARRAYS])
        self._found: dict[tuple[str, tuple[int, ...]], np.ndarray] = {}

    def decode(self, value: Any, path: str) -> Any:
        """Return the object of a piece of JSON."""
        if value is None or type(value) in (bool, int, float, str):
            return value
        require(isinstance(value, dict), f"{path} to be a value or an object with a kind", type(value).__name__)
        decoders: dict[str, Callable[[dict[str, Any], str], Any]] = {
            "real": lambda value, path: float(_one_of(value, "value", ("inf", "-inf", "nan"), path)),
            "list": self._items,
            "tuple": lambda value, path: tuple(self._items(value, path)),
            "dict": self._dict,
            "array": self._array,
            "scalar": lambda value, path: self._named(value, path)[()],
            "texts": _texts,
            "object": self._object,
            "choice": self._choice,
            "network": self._network,
            "random_state": self._random_state,
            **dict.fromkeys(_LIBRARIES, self._of_library),
        }
        return decoders[_one_of(value, "kind", decoders, path)](value, path)

    def _items(self, value: dict[str, Any], path: str) -> list[Any]:
        return [self.decode(item, f"{path}.{k}") for k, item in enumerate(_field(value, "items", list, path))]

    def _dict(self, value: dict[str, Any], path: str) -> dict[Any, Any]:
        pairs = _field(value, "items", list, path)
        require(all(isinstance(pair, list) and len(pair) == 2 for pair in pairs), f"{path} to have pairs", pairs)
        return {self.decode(key, path): self.decode(item, f"{path}.{key}") for key, item in pairs}

    def _named(self, value: dict[str, Any], path: str) -> np.ndarray:
        name = value.get("name")
        if not isinstance(name, str) or name not in self._arrays:
            raise refused(f"{path} to be the name of an array in {archive.ARRAYS}", repr(name))
        return self._arrays[name]

    def _array(self, value: dict[str, Any], path: str) -> np.ndarray:
        stored, axes = self._named(value, path), _field(value, "axes", list, path)
        permuted = all(type(axis) is int for axis in axes) and sorted(axes) == list(range(stored.ndim))
        require(permuted, f"{path} to have {stored.ndim} axes", axes)
        key = value["name"], tuple(axes)
        if key not in self._found:
            self._found[key] = np.array(stored).transpose(np.argsort(axes))
        return self._found[key]

    def _object(self, value: dict[str, Any], path: str) -> Any:
        kind = DATACLASSES[_one_of(value, "type", DATACLASSES, path)]
        fields, wanted = _field(value, "fields", dict, path), field_types(kind)
        require(set(fields) <= set(wanted), f"{path} to have fields among {[*wanted]}", sorted(fields))
        decoded = {name: self.decode(item, f"{path}.{name}") for name, item in fields.items()}
        for name, item in decoded.items():
            require(is_of(item, wanted[name]), f"{path}.{name} to be {wanted[name]}", type(item))
        given = [field.name for field in dataclasses.fields(kind) if field.init]
        # Settings that came after the file was written have their defaults.
        later = [name for name in LATER_SETTINGS.get(kind, ()) if name not in decoded]
        required = [name for name in given if name not in later]
        require(set(required) <= set(decoded), f"{path} to have the fields {required}", sorted(decoded))
        made = kind(**{name: decoded.pop(name) for name in required})
        for name, item in decoded.items():  # results of a fit
            setattr(made, name, item)
        return made

    def _choice(self, value: dict[str, Any], path: str) -> Enum:
        kind = ENUMS[_one_of(value, "type", ENUMS, path)]
        return kind[_one_of(value, "name", kind.__members__, path)]

    def _network(self, value: dict[str, Any], path: str) -> AnchorMoE:
        settings = self.decode(value.get("settings"), f"{path}.settings")
        require(type(settings) is ModelSettings, f"{path}.settings to be ModelSettings", type(settings))
        input_dim, temperature = _field(value, "input_dim", int, path), _field(value, "temperature", float, path)
        require(input_dim > 0 and temperature > 0, f"{path} to be of positive size", (input_dim, temperature))
        weights = _field(value, "weights", dict, path)
        arrays = {name: self._array(_field(weights, name, dict, path), f"{path}.{name}") for name in weights}
        model = _without_weights(value, settings, arrays, path)
        wanted = {name: (tuple(tensor.shape), np.dtype(np.float32)) for name, tensor in model.state_dict().items()}
        found = {name: (array.shape, array.dtype) for name, array in arrays.items()}
        wrong = sorted(name for name in {*wanted, *found} if wanted.get(name) != found.get(name))
        require(not wrong, f"{path} to have weights of the shapes that its settings state", wrong)
        state = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
        model.load_state_dict(state, assign=True)
        model.temperature = temperature
        return model.eval()

    def _random_state(self, value: dict[str, Any], path: str) -> np.random.RandomState:
        keys = self._array(_field(value, "keys", dict, path), path)
        position, has_gauss = (_field(value, name, int, path) for name in ("position", "has_gauss"))
        require(keys.shape == (624,) and keys.dtype == np.uint32, f"{path} to have 624 keys", (keys.shape, keys.dtype))
        require(0 <= position <= 624, f"{path} to have a position from 0 to 624", position)
        state = np.random.RandomState()
        state.set_state(("MT19937", keys, position, has_gauss, _field(value, "gauss", float, path)))
        return state

    def _of_library(self, value: dict[str, Any], path: str) -> Any:
        library, _ = _LIBRARIES[value["kind"]]
        member = _one_of(value, "member", self._members, path)
        content = self._members[member]
        try:
            return library.from_bytes(content, self._trusted)
        except ImportError as error:
            raise refused(f"the package {error.name} for {path}", "it is not installed", "install it") from None
        except zipfile.BadZipFile as error:
            raise refused(f"{member} to be a zip archive", error) from None


def _without_weights(
    value: dict[str, Any], settings: ModelSettings, arrays: Mapping[str, np.ndarray], path: str
) -> AnchorMoE:
    """Return the network that a file describes, on the device meta: it takes no memory, whatever sizes are stated."""
    input_dim = value["input_dim"]
    if "num_targets" in value:
        num_targets, limits = _field(value, "num_targets", int, path), arrays.get("sigma_min_T")
        require(num_targets > 1, f"{path} to have several targets", num_targets)
        stated = None if limits is None else limits.shape  # before anything of the size of its square is made
        require(stated == (num_targets,), f"{path} to have limits of the scales of {num_targets} targets", stated)
        with torch.device("meta"):
            return JointAnchorMoE(settings, input_dim=input_dim, num_targets=num_targets)
    num_experts = sum(name.startswith("experts.packed.") for name in arrays)
    require(num_experts == settings.num_experts, f"{path} to have {settings.num_experts} experts", num_experts)
    with torch.device("meta"):
        return AnchorMoE(settings, input_dim=input_dim)


def _axes(array: np.ndarray) -> list[int]:
    """Return the axes in the order of falling strides: the order in which the numbers lie in memory."""
    if array.flags.c_contiguous:
        return list(range(array.ndim))
    return sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))


def _texts(value: dict[str, Any], path: str) -> np.ndarray:
    items = _field(value, "items", list, path)
    require(all(isinstance(item, str) for item in items), f"{path} to be a list of texts", items)
    return np.array(items, dtype=object if _one_of(value, "dtype", ("O", "U"), path) == "O" else str)


def _field(value: dict[str, Any], name: str, wanted: type, path: str) -> Any:
    found = value.get(name)
    require(type(found) is wanted, f"{path}.{name} to be a {wanted.__name__}", type(found).__name__)
    return found


def _one_of(value: dict[str, Any], name: str, allowed: Any, path: str) -> str:
    found = value.get(name)
    if not isinstance(found, str) or found not in allowed:
        names = f"among {', '.join(allowed)}" if len(allowed) <= 15 else "that is known"
        raise refused(f"{path} to have a {name} {names}", repr(found))
    return found
