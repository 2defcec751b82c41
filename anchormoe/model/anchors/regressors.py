"""Other libraries' regressors, and the user's own, by their import path."""

from __future__ import annotations

import importlib
import inspect
import sysconfig
from pathlib import Path
from typing import Any

from anchormoe.errors import UserError


def import_regressor(key: str, path: str) -> Any:
    """The class that the setting `key` names."""
    module_name, _, class_name = path.rpartition(".")
    reason = "it has no fit and predict"
    try:
        found = getattr(importlib.import_module(module_name), class_name)
        if inspect.isclass(found) and hasattr(found, "fit") and hasattr(found, "predict"):
            return found
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        reason = str(error)
    raise UserError(f"{key} must be the import path of a scikit-learn regressor, received {path}: {reason}")


def own_source(path: str) -> bytes | None:
    """The file of a class that is no installed library's: what it computes may change under the same name."""
    file = getattr(importlib.import_module(path.rpartition(".")[0]), "__file__", None)
    installed = [Path(sysconfig.get_path(name)) for name in ("purelib", "platlib", "stdlib")]
    if file is None or any(Path(file).is_relative_to(folder) for folder in installed):
        return None
    return Path(file).read_bytes()


def parameters_of(regressor_class: Any) -> set[str] | None:
    """Names of the keyword arguments; None if it takes any."""
    parameters = inspect.signature(regressor_class).parameters.values()
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    return None if takes_any else {parameter.name for parameter in parameters}


def with_seed(regressor_class: Any, parameters: dict[str, Any], seed: int) -> Any:
    """An instance, seeded if it takes a seed and was not given one."""
    if "random_state" in (parameters_of(regressor_class) or ()):
        parameters = {"random_state": seed, **parameters}
    return regressor_class(**parameters)
