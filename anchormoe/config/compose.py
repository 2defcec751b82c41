"""Hydra to plain objects: compose, validate, convert; every mistake of the user's becomes one clear line."""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from anchormoe.config.schema import ABLATIONS, JobConfig
from anchormoe.data.catalogue import catalogue
from anchormoe.errors import UserError
from anchormoe.paths import shipped

GROUPS = ("dataset", "method", "protocol", "anchor", "model", "ablation", "experiment")


def jobs(overrides: Sequence[str]) -> list[JobConfig]:
    """The configurations a command line asks for: one, or as many as a sweep has.

    Hydra calls the function it decorates once per job; ours only collects, so that all jobs can be run together.
    """
    catalogue()  # a mistake in a dataset's file is reported with its name, before Hydra meets it
    collected: list[DictConfig] = []
    ConfigStore.instance().store(name="schema", node=JobConfig)

    @hydra.main(version_base="1.3", config_path=str(shipped("conf")), config_name="config")
    def collect(config: DictConfig) -> None:
        collected.append(config)

    with tempfile.TemporaryDirectory() as scratch:  # Hydra insists on writing a sweep's multirun.yaml somewhere
        os.environ["ANCHORMOE_SCRATCH"] = scratch
        os.environ["HYDRA_FULL_ERROR"] = "1"  # raise, so that we may say it in one line
        try:
            with _arguments(_with_own_folder(overrides)):
                collect()
            # Converted only now: Hydra's task runner would add a line of its own to an error.
            return [to_job(config) for config in collected]
        except (HydraException, OmegaConfBaseException, ValueError) as error:  # Hydra checks some values by ValueError
            raise UserError(explain(error, overrides)) from error
        except SystemExit as exit:  # Hydra has answered by itself, --help for instance
            if exit.code:
                raise
            return []


def _with_own_folder(overrides: Sequence[str]) -> list[str]:
    """Add the override with which Hydra also finds the user's files, those in the current folder's `conf`."""
    folder = Path("conf").absolute()
    if not folder.is_dir():
        return list(overrides)
    quoted = f"file://{folder}".replace("\\", "\\\\").replace("'", "\\'")
    first = next((k for k, argument in enumerate(overrides) if "=" in argument), len(overrides))
    return [*overrides[:first], f"hydra.searchpath=['{quoted}']", *overrides[first:]]


def to_job(config: DictConfig) -> JobConfig:
    """The validated dataclass; keys that slipped past the schema with `+` are refused."""
    job = OmegaConf.to_object(config)
    assert isinstance(job, JobConfig)
    _refuse_unknown_keys(config, job, "")
    if job.ablation not in ABLATIONS:
        raise UserError(f"ablation must be one of {', '.join(ABLATIONS)}, received {job.ablation}")
    return job


def _refuse_unknown_keys(config: Any, instance: Any, prefix: str) -> None:
    if not dataclasses.is_dataclass(instance):
        return
    names = [field.name for field in dataclasses.fields(instance)]
    for key in config:
        if key not in names:
            raise UserError(_unknown(f"{prefix}{key}", [prefix + name for name in names]))
        _refuse_unknown_keys(config[key], getattr(instance, key), f"{prefix}{key}.")


def explain(error: Exception, overrides: Sequence[str]) -> str:
    """One line: the key, what was required, what was received, the nearest valid name."""
    if isinstance(error, MissingConfigException):
        group, _, choice = (error.missing_cfg_file or "").rpartition("/")
        return _unknown_choice(group or "config", choice, error.options or [])
    if isinstance(error, OverrideParseException):
        return f"arguments must look like key=value, received {error.override!r}"
    malformed = next((item for item in overrides if item.startswith("=")), None)
    if malformed:
        return f"arguments must look like key=value, received {malformed!r}"
    if "Config group override must be a string" in str(error):
        argument = next((item for item in overrides if item.partition("=")[0] in GROUPS), "")
        return f"{argument.partition('=')[0]} must be a name, received {argument.partition('=')[2]}"
    if "Ambiguous value" in str(error):
        argument = next((item for item in overrides if "," in item), "")
        return f"one value per key, received {argument}; add -m to run every combination"
    cause = error.__cause__ or error
    text = " ".join(str(cause).split())
    override = next((item for item in overrides if "=" in item and item.split("=")[0].lstrip("+~") in str(error)), "")
    key, _, value = override.lstrip("+~").partition("=")
    if "not in" in text or "not in struct" in text or "Could not override" in text:
        return _unknown(key or _quoted(text), list(_schema_keys(JobConfig)) + list(GROUPS))
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


def _schema_keys(schema: type, prefix: str = "") -> Iterator[str]:
    for field in dataclasses.fields(schema):
        yield prefix + field.name
        nested = field.default_factory
        if dataclasses.is_dataclass(nested):
            yield from _schema_keys(nested, f"{prefix}{field.name}.")  # type: ignore[arg-type]


class _arguments:
    """Hydra reads sys.argv; give it ours for as long as it runs."""

    def __init__(self, overrides: Sequence[str]) -> None:
        # Between key=value arguments Hydra's parser does not take a flag; where it stands makes no difference.
        self.overrides = sorted(overrides, key=lambda argument: argument not in ("-m", "--multirun"))

    def __enter__(self) -> None:
        self.saved = sys.argv
        sys.argv = ["anchormoe-bench", *self.overrides]

    def __exit__(self, *exception: object) -> None:
        sys.argv = self.saved
