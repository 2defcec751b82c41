"""Configurations from command lines: Hydra composes them, sweeps are expanded, mistakes become one clear line."""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from anchormoe.config.presets import default_calibration
from anchormoe.config.schema import ABLATIONS, JobConfig
from anchormoe.data.catalogue import catalogue
from anchormoe.errors import UserError
from anchormoe.model.settings import Calibration
from anchormoe.paths import shipped

GROUPS = ("dataset", "protocol", "anchor", "model", "method", "ingredient", "ablation", "experiment", "engine")
# Keys below these are parameters of other libraries, which the schema cannot know.
_OPEN_KEYS = ("method.params.", "anchor.params.", "anchor.members.")


def choices(group: str) -> list[str]:
    """Return what can be chosen in a config group: the shipped files and those of the current folder's conf/."""
    folders = [shipped("conf") / group, Path("conf") / group]
    return sorted({path.stem for folder in folders for path in folder.glob("*.yaml")})


def jobs(overrides: Sequence[str]) -> list[JobConfig]:
    """Return the configurations a command line asks for: one, or as many as a sweep has."""
    return [to_job(config, combination) for combination, config in composed(overrides)]


def composed(overrides: Sequence[str]) -> Iterator[tuple[list[str], Any]]:
    """Compose every combination of the sweep, as OmegaConf nodes with the overrides that made them."""
    from hydra import compose, initialize_config_dir
    from hydra.core.config_store import ConfigStore

    catalogue()  # a mistake in a dataset's file is reported with its name, before Hydra meets it
    ConfigStore.instance().store(name="schema", node=JobConfig)
    with initialize_config_dir(str(shipped("conf")), version_base="1.3"):
        for chosen in itertools.product(*map(_import_paths_apart, overrides)):
            arguments = [spelled for argument in chosen for spelled in _spell_out(argument)]
            for combination in _combinations(arguments):
                with _one_line(combination):
                    config = compose("config", overrides=[*combination, *_searchpath()])
                yield combination, config


def _searchpath() -> list[str]:
    """Return the override with which Hydra also finds the user's files, those in the current folder's conf/."""
    folder = Path("conf").absolute()
    if not folder.is_dir() or folder == shipped("conf"):
        return []
    quoted = f"file://{folder}".replace("\\", "\\\\").replace("'", "\\'")
    return [f"hydra.searchpath=['{quoted}']"]


def to_job(config: Any, overrides: Sequence[str] = ()) -> JobConfig:
    """Convert to the validated dataclass; keys that slipped past the schema with `+` are refused."""
    from omegaconf import OmegaConf

    with _one_line(overrides):
        job = OmegaConf.to_object(config)
    assert isinstance(job, JobConfig)
    _refuse_unknown_keys(config, job, "")
    if job.ablation not in ABLATIONS:
        raise UserError(f"ablation must be one of {', '.join(ABLATIONS)}, received {job.ablation}")
    if not any(override.startswith("calibration=") for override in overrides):
        job.calibration = _usable(job)
    return job


def _usable(job: JobConfig) -> Calibration:
    """Return the calibration of a recipe that was not asked for another one.

    Several targets have no one distribution function to map, so that theirs maps the means.
    """
    several = len(job.dataset.choose_variant()[1].targets) > 1
    preset = default_calibration(job.method.name)
    return Calibration.weighted if several and preset is job.calibration and preset.maps_cdf else job.calibration


def _import_paths_apart(argument: str) -> list[str]:
    """Return the choices of a sweep that has import paths in it, one argument each: they are not files of a group."""
    key, _, value = argument.partition("=")
    if key in ("anchor", "method") and "." in value and "," in value:
        return [f"{key}={choice}" for choice in value.strip("[]").split(",")]
    return [argument]


def suite_datasets(name: str) -> list[str]:
    """Return the datasets of a suite, which `conf/suite/<name>.yaml` lists."""
    import yaml

    if name not in choices("suite"):
        raise UserError(_unknown_choice("suite", name, choices("suite")))
    paths = [folder / "suite" / f"{name}.yaml" for folder in (shipped("conf"), Path("conf"))]
    path = next(path for path in paths if path.is_file())
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    names = content.get("datasets") if isinstance(content, dict) else None
    if not isinstance(names, list) or not names or not all(isinstance(item, str) for item in names):
        raise UserError(f"{path}: datasets must be a list of names, received {names!r}")
    return names


def _without_suite(key: str, value: str) -> tuple[str, str]:
    """Write suite=<name> as the datasets it stands for."""
    return ("dataset", ",".join(suite_datasets(value))) if key == "suite" else (key, value)


def _spell_out(argument: str) -> list[str]:
    """Write the short forms of the command line as Hydra's.

    anchor=package.Class means anchor=sklearn anchor.target=package.Class, method=package.Class likewise, and target= is
    method.target=; suite=name is a sweep over its datasets; splits=1,3 is a list, not a sweep; a list of choices is a
    sweep; parameters need no `+`.
    """
    key, equals, value = argument.partition("=")
    if not equals or not key:
        raise UserError(f"arguments must look like key=value, received {argument!r}")
    if key in ("anchor", "method") and "." in value:
        return [f"{key}=sklearn", f"{key}.target={value}"]
    if key == "target":
        key = "method.target"
    key, value = _without_suite(key, value)
    if key in GROUPS and value[:1] == "[" and value[-1:] == "]":
        value = value[1:-1]
    quoted = value[:1] in ("'", '"')
    if not quoted and ((key == "splits" and "," in value) or not value.isascii()):
        value = "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if key.startswith(_OPEN_KEYS):
        key = f"++{key}"
    return [f"{key}={value}"]


def _combinations(arguments: Sequence[str]) -> Iterator[list[str]]:
    """Expand sweeps, those of the command line and those of the experiment it names."""
    parsed = _parsed(arguments)
    named = {override.key_or_group for override in parsed}
    experiment = next((str(override.value()) for override in parsed if override.key_or_group == "experiment"), None)
    if experiment is not None:
        sweep = _sweep_of(experiment)
        parsed = [*_parsed([f"{key}={value}" for key, value in sweep.items() if key not in named]), *parsed]
    lists = [
        [f"{override.input_line.partition('=')[0]}={value}" for value in override.sweep_string_iterator()]
        if override.is_sweep_override()
        else [override.input_line]
        for override in parsed
    ]
    for combination in itertools.product(*lists):
        yield list(combination)


def _sweep_of(experiment: str) -> dict[str, str]:
    from omegaconf import OmegaConf

    paths = [folder / "experiment" / f"{experiment}.yaml" for folder in (shipped("conf"), Path("conf"))]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise UserError(_unknown_choice("experiment", experiment, choices("experiment")))
    content: Any = OmegaConf.to_container(OmegaConf.load(path))
    return dict(_without_suite(key, str(value)) for key, value in content.get("sweep", {}).items())


def _parsed(arguments: Sequence[str]) -> list[Any]:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    with _one_line(arguments):
        return OverridesParser.create().parse_overrides(list(arguments))


class _one_line:
    """A context that turns exceptions of Hydra and OmegaConf into a UserError."""

    def __init__(self, overrides: Sequence[str]) -> None:
        self.overrides = overrides

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from hydra.errors import HydraException
        from omegaconf.errors import OmegaConfBaseException

        if isinstance(error, HydraException | OmegaConfBaseException | ValueError):
            raise UserError(explain(error, self.overrides)) from None


def _refuse_unknown_keys(config: Any, instance: Any, prefix: str) -> None:
    if not dataclasses.is_dataclass(instance):
        return
    names = [field.name for field in dataclasses.fields(instance)]
    for key in config:
        if key not in names:
            raise UserError(_unknown(f"{prefix}{key}", [prefix + name for name in names]))
        _refuse_unknown_keys(config[key], getattr(instance, key), f"{prefix}{key}.")


def explain(error: Exception, overrides: Sequence[str]) -> str:
    """Describe an error in one line: the key, what was required, what was received, the nearest valid name."""
    from hydra.errors import MissingConfigException, OverrideParseException

    if isinstance(error, MissingConfigException):
        group, _, choice = (error.missing_cfg_file or "").rpartition("/")
        return _unknown_choice(group or "config", choice, choices(group) or error.options or [])
    if isinstance(error, OverrideParseException):
        return f"arguments must look like key=value, received {error.override!r}"
    if "Config group override must be a string" in str(error):
        argument = next((item for item in overrides if item.partition("=")[0] in GROUPS), "")
        return f"{argument.partition('=')[0]} must be a name, received {argument.partition('=')[2]}"
    text = " ".join(str(error.__cause__ or error).split())
    override = next((item for item in overrides if "=" in item and item.split("=")[0].lstrip("+~") in str(error)), "")
    key, _, value = override.lstrip("+~").partition("=")
    if "not in" in text or "Could not override" in text:
        return _unknown(key or _quoted(text), [*schema_keys(JobConfig), *GROUPS])
    full_key = re.search(r"full_key: (\S+)", text)
    message = re.split(r" full_key: | object_type=", text)[0]
    return f"{(full_key.group(1) if full_key else key) or 'configuration'}: {message}" + (
        f" (received {value})" if value and value not in message else ""
    )


def _quoted(text: str) -> str:
    match = re.search(r"'([^']+)'", text)
    return match.group(1) if match else text


def _unknown(key: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(key, list(known), n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else "; --cfg job shows all keys"
    return f"the key {key} does not exist{hint}"


def _unknown_choice(group: str, choice: str, options: Sequence[str]) -> str:
    near = difflib.get_close_matches(choice, options, n=1, cutoff=0.4)
    hint = f"; did you mean {group}={near[0]}?" if near else ""
    return f"{group} must be one of {', '.join(sorted(options))}, received {choice}{hint}"


def schema_keys(schema: type, prefix: str = "") -> Iterator[str]:
    """List the keys of a configuration, nested ones with dots."""
    for field in dataclasses.fields(schema):
        yield prefix + field.name
        nested = field.default_factory
        if dataclasses.is_dataclass(nested):
            yield from schema_keys(nested, f"{prefix}{field.name}.")  # type: ignore[arg-type]
