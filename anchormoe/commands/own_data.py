"""The arguments that make a table of the user's a dataset: data=, target= and what else describes it."""

from __future__ import annotations

from collections.abc import Sequence

from anchormoe.data.catalogue import DatasetInfo
from anchormoe.data.own import described
from anchormoe.errors import UserError

KEYS = ("data", "target", "name", "groups", "time", "categorical", "features")
_LISTS = ("categorical", "features")


def own_dataset(arguments: Sequence[str]) -> tuple[DatasetInfo | None, list[str]]:
    """Return the dataset that `data=` and its companions describe, None without `data=`, and the other arguments."""
    pairs = [argument.partition("=") for argument in arguments]
    if not any(key == "data" and equals for key, equals, _ in pairs):
        return None, list(arguments)
    given: dict[str, str] = {}
    rest = []
    for argument, (key, equals, value) in zip(arguments, pairs, strict=True):
        if not equals or key not in KEYS:
            rest.append(argument)
        elif key in given:
            raise UserError(f"{key} must be given once, received {given[key]!r} and {value!r}")
        else:
            given[key] = value
    path, target = given.pop("data"), given.pop("target", "")
    lists = {key: _names(given.pop(key)) for key in _LISTS if key in given}
    return described(path, target, **lists, **given), rest  # type: ignore[arg-type]


def _names(value: str) -> list[str]:
    return [name.strip() for name in value.strip("[]").split(",") if name.strip()]


def loading_call(dataset: DatasetInfo) -> str:
    """Return the call of Python that loads the same features and target."""
    roles = {key: getattr(dataset, key) for key in ("groups", "time", *_LISTS)}
    named = "".join(f", {key}={value!r}" for key, value in {"target": dataset.target, **roles}.items() if value)
    return f"anchormoe.load_dataset({dataset.path!r}{named})"
