"""Regressors of other libraries and of the user's, named by their import path."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from anchormoe.errors import UserError
from anchormoe.model.settings import AnchorKind, AnchorSettings

_FITS = ("fit", "fit_conformalize")
_PREDICTS = ("predict", "predict_dist", "pred_dist", "predict_proba", "predict_quantiles", "sample", "predict_interval")


def import_regressor(key: str, path: str) -> Any:
    """Return the class, the instance, or the function that makes one, that the setting `key` names."""
    module_name, _, name = path.rpartition(".")
    reason, cause = "it has no fit and predict", None
    try:
        found = getattr(_import_module(module_name), name)
        if _is_regressor(found) or inspect.isfunction(found) or inspect.ismethod(found):
            return found
    except (Exception, SystemExit) as error:  # whatever a module of the user's raises while it is imported
        reason, cause = str(error) or type(error).__name__, error
    raise UserError(f"{key} must be the import path of a regressor, received {path}: {reason}") from cause


def _is_regressor(found: Any) -> bool:
    return all(any(hasattr(found, name) for name in names) for names in (_FITS, _PREDICTS))


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
    if not _is_called(regressor):
        return set(regressor.get_params()) if hasattr(regressor, "get_params") else set()
    parameters = signature_of(regressor).values()
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    return None if takes_any else {parameter.name for parameter in parameters}


def signature_of(regressor: Any) -> dict[str, inspect.Parameter]:
    """Return the parameters of the class or the function that makes a regressor."""
    made_by = regressor if _is_called(regressor) else type(regressor)
    return dict(inspect.signature(made_by).parameters)


def _is_called(regressor: Any) -> bool:
    """Tell whether regressors are made by a call: of a class or a function, not by a copy of an instance."""
    return inspect.isclass(regressor) or inspect.isroutine(regressor)


def new_regressor(regressor: Any, parameters: dict[str, Any], seed: int) -> Any:
    """Make an unfitted regressor of a class, a function or an instance; it is seeded unless it was given a seed."""
    if "random_state" in (parameters_of(regressor) or ()):
        parameters = {"random_state": seed, **parameters}
    if _is_called(regressor):
        made = regressor(**parameters)
        if not _is_regressor(made):
            name = getattr(regressor, "__qualname__", regressor)
            raise TypeError(f"{name} must return a regressor with fit and predict, received {type(made).__name__}")
        return made
    from sklearn.base import clone

    copy = clone(regressor, safe=False)
    return copy.set_params(**parameters) if parameters else copy


_IMPORT_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


def import_paths(value: Any) -> list[str]:
    """Return the import paths in parameters: texts that begin with the name of a module that can be found."""
    if isinstance(value, Mapping):
        return [path for item in value.values() for path in import_paths(item)]
    if isinstance(value, list | tuple):
        return [path for item in value for path in import_paths(item)]
    if not isinstance(value, str) or not _IMPORT_PATH.fullmatch(value):
        return []
    module = value.partition(".")[0]
    at_hand = Path(f"{module}.py").is_file() or Path(module, "__init__.py").is_file()
    return [value] if at_hand or importlib.util.find_spec(module) is not None else []


def with_estimators(key: str, value: Any) -> Any:
    """Return parameters in which import paths of regressors have become regressors.

    A path makes one without arguments; `{target: path, alpha: 3}` makes one with arguments.
    """
    if isinstance(value, Mapping):
        inner = {name: with_estimators(f"{key}.{name}", item) for name, item in value.items() if name != "target"}
        if not import_paths(value.get("target")):
            return {**inner, **({"target": value["target"]} if "target" in value else {})}
        return _made(key, value["target"], inner)
    if isinstance(value, list | tuple):
        return [with_estimators(key, item) for item in value]
    return _made(key, value, {}) if import_paths(value) else value


def _made(key: str, path: str, parameters: dict[str, Any]) -> Any:
    regressor = import_regressor(key, path)
    try:
        return new_regressor(regressor, parameters, 0)
    except Exception as error:  # whatever a class of the user's raises while it is made
        raise UserError(f"{key} must name a regressor that can be made, received {path}: {error}") from None


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
