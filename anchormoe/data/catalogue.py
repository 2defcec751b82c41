"""The catalogue of datasets: their sources, their tables, and which columns are features and target.

Each is described by one file `conf/dataset/<name>.yaml`, shipped with the package or written by the user in the
current folder. A shipped dataset is one canonical float64 table with all features and all targets, in the column order
of the original file (power: the five sheets stacked).
"""

import dataclasses
import difflib
import functools
import types
import typing
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml

from anchormoe.errors import UserError
from anchormoe.paths import shipped

USER_FOLDER = Path("conf/dataset")  # in the current folder
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C is ten times as fast


@dataclass
class Variant:
    """One learning task on the table."""

    target: Any = ""  # a column, or a list of columns that are predicted together
    features: list[str] = field(default_factory=list)  # empty: all columns but the targets
    rows: list[int] | None = None  # [start, stop); None means all rows
    subsampled: bool = True  # false: the dataset's `subsample` does not apply

    def __post_init__(self) -> None:
        is_range = self.rows is None or (len(self.rows) == 2 and 0 <= self.rows[0] < self.rows[1])
        names = self.targets
        _require(len(names) > 0, "target must name the column to predict, received none")
        named = all(isinstance(name, str) and name for name in names) and len(set(names)) == len(names)
        _require(named, f"target must be a column or a list of different columns, received {self.target!r}")
        _require(not set(names) & set(self.features), f"features must not include the target, received {self.target!r}")
        _require(is_range, f"rows must be the first row and the one after the last, received {self.rows}")

    @property
    def targets(self) -> tuple[str, ...]:
        """Return the columns to predict: one, or several together."""
        if isinstance(self.target, list | tuple):
            return tuple(self.target)
        return (self.target,) if self.target else ()

    @property
    def is_joint(self) -> bool:
        """Tell whether several targets are predicted together."""
        return len(self.targets) > 1

    def feature_names(self, columns: Sequence[str]) -> list[str]:
        """Return the feature columns of a table with these columns."""
        return self.features or [column for column in columns if column not in self.targets]


@dataclass
class DatasetInfo:
    """The description of one dataset before it is read, and which part of it a run uses.

    A dataset names its `target`, or several `variants` of which the first is the default. This class is also the schema
    of the dataset in Hydra's configuration.
    """

    name: str = ""
    title: str = ""
    path: str | None = None  # the user's file, or openml:<id>; None means data/<table>.csv.xz, which ships
    table: str = ""  # name of the shipped file where datasets share one; empty: that of the dataset
    target: Any = ""  # a column, or a list of columns that are predicted together
    features: list[str] = field(default_factory=list)  # empty: all columns but the target
    variants: dict[str, Variant] = field(default_factory=dict)
    columns: list[str] = field(default_factory=list)  # empty: the names in the file's heading
    rows: int | None = None
    homepage: str = ""
    licence: str = ""
    licence_note: str = ""
    citation: str = ""
    urls: list[str] = field(default_factory=list)  # addresses of the original, tried in this order
    file_name: str = ""  # name of the original in a mirror folder
    archive_member: str = ""  # the original's name inside its home's zip archive
    content_sha256: str | None = None  # hash of the table by `formats.content_sha256`; verified when stated
    original_sha256: str = ""
    original_bytes: int = 0
    variant: str | None = None  # chosen for a run; None means the protocol's choice, else the first
    subsample: int | None = None  # rows drawn once, before the outer splits
    categorical: list[str] = field(default_factory=list)  # columns of categories that look like numbers
    groups: str | None = None  # column whose rows of one value stay on one side of a split
    time: str | None = None  # column that orders the rows: a split trains on earlier rows than it tests on

    def __post_init__(self) -> None:
        if self.target:
            standard = {"standard": Variant(self.target, self.features)}
            self.variants = self.variants or standard
            _require(self.variants == standard, "target and features must be left out where variants have theirs")
        _require(not (self.groups and self.time), "groups and time must not both be given: a split follows one of them")
        for role, column in (("groups", self.groups), ("time", self.time)):
            allowed = column is None or column not in self.targets
            _require(allowed, f"{role} must not be the target, received {column!r}")

    @property
    def default_variant(self) -> str:
        _require(bool(self.variants), f"target of dataset {self.name!r} must name the column to predict, received none")
        return next(iter(self.variants))

    @property
    def targets(self) -> tuple[str, ...]:
        """Return the columns that some variant predicts, each once."""
        return tuple(dict.fromkeys(target for variant in self.variants.values() for target in variant.targets))

    def choose_variant(self, name: str | None = None) -> tuple[str, Variant]:
        """Return the name and description of a variant: the named one, else the chosen one, else the first."""
        chosen = name or self.variant or self.default_variant
        if chosen not in self.variants:
            raise_unknown(f"variant of dataset {self.name!r}", chosen, self.variants)
        return chosen, self.variants[chosen]


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise UserError(message)


def raise_unknown(kind: str, received: str, existing: Iterable[str]) -> NoReturn:
    """Raise one line that names what exists and, where there is one, the nearest name."""
    names = list(existing)
    hint = _hint(received, names)
    raise UserError(f"unknown {kind}: expected one of {', '.join(names)}, received {received!r}{hint}")


def catalogue() -> dict[str, DatasetInfo]:
    """Return all datasets by name: the shipped ones, then those described in `conf/dataset` of the current folder."""
    datasets = dict(_shipped_datasets())
    for path in sorted(USER_FOLDER.glob("*.yaml")):
        if path.stem not in datasets:
            datasets[path.stem] = _read(path)
        elif _text(path) != _text(_shipped_path(path.stem)):
            raise UserError(f"{path}: a dataset {path.stem!r} ships with the package; rename the file and its name")
    return datasets


def info(name: str) -> DatasetInfo:
    """Return the description of the dataset of this name."""
    datasets = catalogue()
    if name not in datasets:
        raise_unknown("dataset", name, datasets)
    return datasets[name]


def is_shipped(dataset: DatasetInfo) -> bool:
    """Tell whether this is the description of a shipped dataset; the chosen variant and the subsample may differ."""

    def description(entry: DatasetInfo) -> DatasetInfo:
        return dataclasses.replace(entry, variant=None, subsample=None)

    found = _shipped_datasets().get(dataset.name)
    return found is not None and description(found) == description(dataset)


def _shipped_path(name: str) -> Path:
    return shipped("conf") / "dataset" / f"{name}.yaml"


@functools.cache
def _shipped_datasets() -> dict[str, DatasetInfo]:
    return {path.stem: _read(path) for path in sorted(_shipped_path("").parent.glob("*.yaml"))}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise UserError(f"{path}: must be a readable text file, received: {error}") from None


def _read(path: Path) -> DatasetInfo:
    """Read the description in one file; a mistake in it is one line that names the file and the key."""
    try:
        content = yaml.load(_text(path), Loader=_LOADER)
    except yaml.YAMLError as error:
        raise UserError(f"{path}: must be YAML, received: {' '.join(str(error).split())}") from None
    dataset = _build(DatasetInfo, content, f"{path}: ")
    verifiable = dataset.content_sha256 is not None and dataset.rows is not None and bool(dataset.columns)
    file_or_facts = "path must name the file with the table (or content_sha256, columns and rows must be stated)"
    _require(dataset.name == path.stem, f"{path}: name must be {path.stem!r} like the file, received {dataset.name!r}")
    _require(bool(dataset.variants), f"{path}: target must name the column to predict, received none")
    _require(dataset.path is not None or verifiable, f"{path}: {file_or_facts}, received none")
    return dataset


Described = TypeVar("Described", DatasetInfo, Variant)


def _build(kind: type[Described], content: Any, where: str) -> Described:
    """Fill a dataclass from a YAML mapping, whose keys and types must be those of its fields."""
    if not isinstance(content, dict):
        raise UserError(f"{where}must be keys with values, received {content!r}")
    fields = typing.get_type_hints(kind)
    values = {}
    for key, value in content.items():
        if key not in fields:
            raise UserError(f"{where}the key {key} does not exist{_hint(str(key), fields)}")
        if fields[key] == dict[str, Variant] and isinstance(value, dict):
            value = {str(name): _build(Variant, entry, f"{where}{key}.{name}: ") for name, entry in value.items()}
        elif not _fits(value, fields[key]):
            raise UserError(f"{where}{key} must be {_required(fields[key])}, received {value!r}")
        values[key] = value
    try:
        return kind(**values)
    except UserError as error:
        raise UserError(f"{where}{error}") from None


def _fits(value: Any, kind: Any) -> bool:
    """Tell whether a value read from YAML is of a field's type."""
    if kind is Any:  # a union that OmegaConf cannot state
        return _fits(value, str | list[str])
    if isinstance(kind, types.UnionType):
        return any(_fits(value, option) for option in typing.get_args(kind))
    if typing.get_origin(kind) is list:
        return isinstance(value, list) and all(_fits(item, typing.get_args(kind)[0]) for item in value)
    return type(value) is (typing.get_origin(kind) or kind)


def _required(kind: Any) -> str:
    """Say in words what a field's type requires."""
    words: dict[Any, str] = {
        **{str: "text", int: "a whole number", types.NoneType: "null"},
        **{
            list[str]: "a list of texts",
            list[int]: "a list of two whole numbers",
            bool: "true or false",
            dict[str, Variant]: "named variants",
        },
    }
    kind = str | list[str] if kind is Any else kind
    options = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    return " or ".join(words[option] for option in options)


def _hint(received: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(received, list(names), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""
