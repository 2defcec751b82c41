"""Where a row came from: code, configuration, libraries, machine."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import platform
import resource
import subprocess
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from anchormoe import __version__
from anchormoe.config.schema import Config, RunRules
from anchormoe.data.catalogue import is_shipped
from anchormoe.data.containers import content_sha256
from anchormoe.data.dataset import load
from anchormoe.model.anchors.regressors import own_source

_LIBRARIES = (
    *("numpy", "scipy", "numba", "scikit-learn", "torch", "xgboost"),
    *("catboost", "gpytorch", "lightgbm", "ngboost", "quantile-forest"),  # extras
)


def config_hash(config: Config) -> str:
    """Over every setting that differs from the schema's default, so that a new setting leaves old hashes alone.

    What cannot change the row's numbers does not count: where the data comes from (its content is verified), and
    Anchor-MoE's own settings where another method runs. The files of a dataset or regressor of the user's own do.
    """
    settings = _changed(config, Config())
    settings["dataset"] = _dataset_settings(config)
    own = [] if config.effective_method == "anchormoe" else ["anchor", "model", "train", "crossfit", "calibration"]
    for name in ("data", *own):
        settings.pop(name, None)
    settings.get("model", {}).pop("name", None)  # its settings are what counts
    for name in ("dataset", "model"):
        if settings.get(name) == {}:
            del settings[name]
    # Only the rules of the ablation at hand matter; what a protocol says of the others does not.
    settings["protocol"] = {"name": config.protocol.name, "rules": _changed(config.rules, RunRules())}
    target = config.anchor.target if config.effective_method == "anchormoe" else config.method.target
    source = None if target is None else own_source(target)
    if source is not None:
        settings["source"] = hashlib.sha256(source).hexdigest()
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def _dataset_settings(config: Config) -> dict[str, Any]:
    """Return what tells datasets apart: the name and the choices made, where they are not the defaults.

    A shipped dataset is known by its name. Any other may change under its name, so the values learnt from count too.
    """
    defaults = {"name": "boston", "variant": None, "subsample": None}
    settings = {name: getattr(config.dataset, name) for name in defaults}
    settings = {name: value for name, value in settings.items() if value != defaults[name]}
    if not is_shipped(config.dataset):
        source, mirror = config.data.source.value, config.data.mirror
        dataset = load(config.dataset, variant=config.effective_variant, source=source, mirror=mirror)
        settings["content"] = content_sha256(np.column_stack([dataset.X, dataset.y]))
    return settings


def _changed(value: Any, default: Any) -> Any:
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        pairs = {name: (getattr(value, name), getattr(default, name)) for name in names}
        return {name: _changed(mine, other) for name, (mine, other) in pairs.items() if mine != other}
    return value.value if isinstance(value, Enum) else value


@functools.cache
def environment() -> dict[str, Any]:
    """The same for all rows of a process; first asked for when it starts, so that it names the code that was loaded."""
    commit, dirty = _code_version()
    return {
        "code_version": commit,
        "code_dirty": dirty,
        "versions": {"python": platform.python_version(), **_library_versions()},
        "cpu": _cpu_model(),
    }


def peak_memory_mb() -> float:
    """Of this process so far; a worker that did larger datasets before reports those."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _library_versions() -> dict[str, str]:
    versions = {}
    for name in _LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):  # an extra that is not installed
            versions[name] = version(name)
    return versions


def _code_version() -> tuple[str, bool]:
    """Commit and whether tracked code differs from it; the package version where there is no checkout."""
    folder = Path(__file__).resolve().parent.parent

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # installed inside somebody else's checkout, it is not theirs
        return git("rev-parse", "--short=12", "HEAD"), bool(git("status", "--porcelain", "--", ".", "../conf"))
    except (OSError, subprocess.CalledProcessError):
        return __version__, False


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )
