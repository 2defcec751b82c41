"""The entry point of anchormoe-bench: it runs a command; a mistake of the user's is one line and exit code 2."""

from __future__ import annotations

import difflib
import importlib
import os
import select
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import TextIO

from anchormoe import __version__
from anchormoe.arithmetic import use_portable_arithmetic
from anchormoe.errors import UserError

_DEBUG = {"debug=on", "debug=true", "debug=True"}
COMMANDS = ("run", "rank", "tables", "figures", "report", "check", "theory", "data")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words == ["--version"]:
        print(f"anchormoe {__version__}")
        return 0
    try:
        if words and words[0] == "completion":
            return _completion(words[1:])
        name = words.pop(0) if words and words[0].isidentifier() else "run"
        if name not in COMMANDS:
            near = difflib.get_close_matches(name, COMMANDS, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UserError(f"commands are {', '.join(COMMANDS)}, settings key=value; received {name}{hint}")
        return importlib.import_module(f"anchormoe.commands.{name}").main(words)
    except UserError as error:
        if _DEBUG & set(words):  # where the mistake came from, such as the import of a class of the user's
            traceback.print_exception(error.__cause__ or error.__context__ or error)
        print(f"anchormoe-bench: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("anchormoe-bench: interrupted; finished splits are stored, the same command goes on", file=sys.stderr)
        return 130
    except BrokenPipeError:
        if _has_reader(sys.stdout):  # it was another pipe, such as a worker's
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains when it flushes
        return 1  # whoever read the output, such as `head`, has enough; rich does the same


def _has_reader(output: TextIO) -> bool:
    """Tell whether the other end of a pipe is open."""
    poll = select.poll()
    poll.register(output.fileno(), 0)
    return not any(event & select.POLLERR for _, event in poll.poll(0))


def _completion(words: list[str]) -> int:
    """Print the script that completes command lines, or the completions of a given one."""
    from anchormoe.commands.help import COMPLETION_SCRIPT, completions

    options = {
        "tables": ["format=", "form=", "output=", "results_dir="],
        "figures": ["only=", "output=", "results_dir="],
        "report": ["output=", "results_dir="],
        "check": ["missing=", "live=", "show=", "output=", "results_dir="],
        "theory": ["study=", "size=", "results_dir=", "workers=", "engine="],
        "data": ["list", "add", "check", "fetch"],
    }
    print("\n".join(completions(words, list(COMMANDS), options)) if words else COMPLETION_SCRIPT)
    return 0


def program() -> int:
    """Run as the console script; SIGTERM, for example from a batch system, is treated like Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    use_portable_arithmetic()
    return main()


if __name__ == "__main__":
    sys.exit(program())
