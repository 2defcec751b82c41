"""Regressors of other libraries and of the user's, named by their import path."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from anchormoe.errors import UserError
from anchormoe.model.settings import AnchorKind, AnchorSettings


def import_regressor(key: str, path: str) -> Any:
    """Return the class, or the instance, that the setting `key` names."""
    module_name, _, name = path.rpartition(".")
    reason = "it has no fit and predict"
    try:
        found = getattr(_import_module(module_name), name)
        if hasattr(found, "fit") and (hasattr(found, "predict") or hasattr(found, "predict_dist")):
            return found
    except (Exception, SystemExit) as error:  # whatever a module of the user's raises while it is imported
        reason = str(error) or type(error).__name__
    raise UserError(f"{key} must be the import path of a regressor, received {path}: {reason}")


def _import_module(name: str) -> ModuleType:
    """Import a module of an installed package, or of a file in the current folder.

    The folder is on the path meanwhile only, and stays there if the module was found in it. So a command that names no
    class runs no code of the folder that it is started in.
    """
    folder = os.getcwd()
    if folder in sys.path:
        return importlib.import_module(name)
    sys.path.append(folder)
    file = None
    try:
        module = importlib.import_module(name)
        file = getattr(module, "__file__", None)
        return module
    finally:
        if file is None or not Path(file).is_relative_to(folder):
            sys.path.remove(folder)


def own_source(path: str) -> bytes | None:
    """Return the source of a class outside installed libraries, which may change under the same name; else None."""
    file = getattr(_import_module(path.rpartition(".")[0]), "__file__", None)
    installed = [Path(sysconfig.get_path(name)) for name in ("purelib", "platlib", "stdlib")]
    if file is None or any(Path(file).is_relative_to(folder) for folder in installed):
        return None
    return Path(file).read_bytes()


def parameters_of(regressor: Any) -> set[str] | None:
    """Return the names of a regressor's parameters, None if it takes any."""
    if not inspect.isclass(regressor):
        return set(regressor.get_params()) if hasattr(regressor, "get_params") else set()
    parameters = inspect.signature(regressor).parameters.values()
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    return None if takes_any else {parameter.name for parameter in parameters}


def new_regressor(regressor: Any, parameters: dict[str, Any], seed: int) -> Any:
    """Make an unfitted regressor of a class or an instance, seeded if it takes a seed and was not given one."""
    if "random_state" in (parameters_of(regressor) or ()):
        parameters = {"random_state": seed, **parameters}
    if inspect.isclass(regressor):
        return regressor(**parameters)
    from sklearn.base import clone

    copy = clone(regressor, safe=False)
    return copy.set_params(**parameters) if parameters else copy


def fit_regressor(
    name: str, regressor: Any, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None, **parameters: Any
) -> None:
    """Fit a regressor to rows that count by their weights; one that knows no weights gets only rows without."""
    if weight is not None:
        if "sample_weight" not in inspect.signature(regressor.fit).parameters:
            raise ValueError(f"sample_weight needs anchors that take it, received the anchor {name}, which does not")
        parameters["sample_weight"] = weight
    regressor.fit(X, y, **parameters)


def make_regressor(settings: AnchorSettings, seed: int) -> Any:
    """Make the unfitted regressor of an anchor that is not boosted."""
    if settings.kind is AnchorKind.quadratic:
        from anchormoe.model.anchors.quadratic import QuadraticRidge

        return QuadraticRidge(**{"random_state": seed, **settings.params})
    if settings.kind is AnchorKind.kernel:
        from anchormoe.model.anchors.kernel_machine import KernelMachine

        return KernelMachine(**{"random_state": seed, **settings.params})
    return new_regressor(regressor_of(settings), settings.params, seed)


def regressor_of(settings: AnchorSettings) -> Any:
    """Return the class or the instance that an anchor of kind sklearn is made from."""
    if settings.regressor is not None:
        return settings.regressor
    assert settings.target is not None
    return import_regressor("anchor.target", settings.target)
