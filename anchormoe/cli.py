"""anchormoe-bench: run (the default), rank, tables, check, data. Users' mistakes: one line on stderr, exit code 2."""

from __future__ import annotations

import difflib
import os
import signal
import sys
from collections.abc import Callable, Sequence

from anchormoe import __version__
from anchormoe.errors import UserError


def _run(arguments: list[str]) -> int:
    from anchormoe.commands.run import main as bench

    return bench(arguments)


def _rank(arguments: list[str]) -> int:
    from anchormoe.commands.rank import main as rank

    return rank(arguments)


def _data(arguments: list[str]) -> int:
    from anchormoe.commands.data import main as data

    return data(arguments)


def _tables(arguments: list[str]) -> int:
    from anchormoe.commands.tables import main_tables

    return main_tables(arguments)


def _check(arguments: list[str]) -> int:
    from anchormoe.commands.tables import main_check

    return main_check(arguments)


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "run": _run,
    "rank": _rank,
    "tables": _tables,
    "check": _check,
    "data": _data,
}


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    command = COMMANDS.get(words[0]) if words else None
    sys.path.append(os.getcwd())  # a class in a file at hand can be named, as it could under python -m
    if words == ["--version"]:
        print(f"anchormoe {__version__}")
        return 0
    try:
        if words and words[0].isidentifier() and command is None:
            near = difflib.get_close_matches(words[0], COMMANDS, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UserError(f"commands are {', '.join(COMMANDS)}, settings key=value; received {words[0]}{hint}")
        return command(words[1:]) if command else _run(words)
    except UserError as error:
        print(f"anchormoe-bench: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("anchormoe-bench: interrupted; finished splits are stored, the same command goes on", file=sys.stderr)
        return 130


def program() -> int:
    """What the console script starts: main, with a polite kill (a batch system's, say) as good as Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return main()


if __name__ == "__main__":
    sys.exit(program())
