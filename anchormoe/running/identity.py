"""The identity of a row: its labels and the hash of its configuration."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from enum import Enum
from typing import Any

from anchormoe.config.presets import default_calibration
from anchormoe.config.schema import Config, MethodConfig, RunRules
from anchormoe.data.catalogue import is_shipped
from anchormoe.methods import METHODS
from anchormoe.model.settings import AnchorSettings, Calibration
from anchormoe.rows import Row

# Settings that only Anchor-MoE has: another method's rows do not depend on them.
_NETWORK_SETTINGS = ("anchor", "model", "train", "crossfit", "calibration")


def method_name(config: Config) -> str:
    """Return the method to run; the published protocol puts another one in Anchor-MoE's place on Kin8nm."""
    if config.method.name == "anchormoe":
        return config.rules.methods.get(config.dataset.name, config.method.name)
    return config.method.name


def variant_of(config: Config) -> str | None:
    """Return the variant that the user or the protocol asks for; None means the first variant."""
    return config.dataset.variant or config.rules.variants.get(config.dataset.name)


def has_network(config: Config) -> bool:
    """Tell whether the method is a recipe of Anchor-MoE: only these have settings of an anchor and a network."""
    name = method_name(config)
    return name in METHODS and METHODS[name].is_recipe


def method_label(config: Config) -> str:
    """Return the name of the method in rows, with the calibration of its whole distribution, as in `ngboost+pit`.

    The name of a recipe stands for its own calibration; if that maps the whole distribution, any other is stated too.
    """
    name = config.method.target or method_name(config)
    own = config.calibration if has_network(config) else Calibration.none
    default = default_calibration(name) or Calibration.none
    stated = [own] if own is not default and (own.maps_cdf or default.maps_cdf) else []
    stated += [config.method.calibration] if config.method.calibration.maps_cdf else []
    return "+".join([name, *(one.value for one in stated)])


def row_identity(config: Config, split: int) -> Row:
    """Return the labels of a split's row."""
    return {
        "dataset": config.dataset.name,
        "method": method_label(config),
        "ablation": config.ablation,
        "protocol": config.protocol.name,
        "anchor": config.anchor.name if has_network(config) else "none",
        "seed": config.seed,
        "split": split,
        "config_hash": config_hash(config),
    }


def config_hash(config: Config) -> str:
    """Hash every setting that differs from the schema's default, so that a new setting leaves old hashes alone.

    Settings that cannot change the row's numbers are left out: the source of the data (its content is verified) and,
    for another method, the settings of Anchor-MoE. The files of a user's dataset or regressor are included.
    """
    settings = _changed(config, Config())
    settings["dataset"] = _dataset_settings(config)
    for name in ("data", *(() if has_network(config) else _NETWORK_SETTINGS)):
        settings.pop(name, None)
    settings.get("model", {}).pop("name", None)  # its settings count, not its name
    for name in ("dataset", "model"):
        if settings.get(name) == {}:
            del settings[name]
    # Only the rules of this ablation count, not those that the protocol has for others.
    settings["protocol"] = {"name": config.protocol.name, "rules": _changed(config.rules, RunRules())}
    sources = _own_sources(config.anchor if has_network(config) else config.method)
    if sources:
        settings["source"] = hashlib.sha256(b"".join(sources)).hexdigest()
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def _dataset_settings(config: Config) -> dict[str, Any]:
    """Return what identifies a dataset: its name, and the choices that are not the defaults.

    A shipped dataset is identified by its name. Any other may change under its name, so its values are hashed too.
    """
    defaults = {"name": "boston", "variant": None, "subsample": None}
    settings = {name: getattr(config.dataset, name) for name in defaults}
    settings = {name: value for name, value in settings.items() if value != defaults[name]}
    if not is_shipped(config.dataset):
        import numpy as np

        from anchormoe.data.dataset import load
        from anchormoe.data.table import content_sha256

        source, mirror = config.data.source.value, config.data.mirror
        dataset = load(config.dataset, variant=variant_of(config), source=source, mirror=mirror)
        settings["content"] = content_sha256(np.column_stack([dataset.X, dataset.y]))
        if dataset.categorical:
            settings["categorical"] = list(dataset.categorical)
        if dataset.split_key is not None:
            settings[dataset.scheme.value] = content_sha256(dataset.split_key[:, None])
    return settings


def _own_sources(settings: AnchorSettings | MethodConfig) -> list[bytes]:
    """Return the files of the user's that a regressor and the regressors among its parameters come from."""
    if settings.target is None:
        return []
    from anchormoe.model.anchors.imported import import_paths, own_source

    sources = [own_source(path) for path in (settings.target, *import_paths(settings.params))]
    return [source for source in sources if source is not None]


def _changed(value: Any, default: Any) -> Any:
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        pairs = {name: (getattr(value, name), getattr(default, name)) for name in names}
        return {name: _changed(mine, other) for name, (mine, other) in pairs.items() if mine != other}
    return value.value if isinstance(value, Enum) else value
