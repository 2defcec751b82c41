"""Parsing of key=value options, for the commands that need no Hydra."""

from __future__ import annotations

import os
from pathlib import Path

from rich.console import Console

from anchormoe.errors import UserError

_PIPE_WIDTH = 100  # rich assumes 80 columns where there is no terminal, too few for wide tables


def wide_console() -> Console:
    """Return a console that is wide enough for a table where the output goes to a file or a pipe."""
    console = Console()
    has_width = console.is_terminal or os.environ.get("COLUMNS", "").isdigit()
    return console if has_width else Console(width=_PIPE_WIDTH)


def parse_options(
    arguments: list[str], help_text: str, known: dict[str, tuple[str, ...] | None]
) -> dict[str, str] | None:
    """Read key=value arguments: a closed choice (its first value is the default) or free text (default empty).

    The result is None if help was asked for and printed.
    """
    options = {key: choices[0] if choices else "" for key, choices in known.items()}
    for argument in arguments:
        if argument in ("--help", "-h"):
            print(help_text)
            return None
        key, equals, value = argument.partition("=")
        if not equals or key not in known:
            raise UserError(f"options must be among {', '.join(f'{name}=' for name in known)}, received {argument}")
        choices = known[key]
        if choices and value not in choices:
            raise UserError(f"{key} must be one of {', '.join(choices)}, received {value}")
        options[key] = value
    return options


def write_text(path: Path, text: str) -> None:
    """Write a file that the user asked for, whole or not at all, and make its folder."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.partial")
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise UserError(f"output must be a place that can be written to, received {path}: {error.strerror}") from None
