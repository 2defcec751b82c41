"""Run the Python blocks of pages and write anew what they print: scripts/refresh_outputs.py [PAGE ...]

The blocks of a page run in their order, in one namespace and in an empty folder. A ```text block that stands right
below a Python block holds what that block prints.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from anchormoe.arithmetic import use_portable_arithmetic

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(?P<shown>\n```text\n.*?^```\n)?", re.DOTALL | re.MULTILINE)


def pages() -> list[Path]:
    """Return README.md and the pages of docs/ that have Python blocks."""
    every = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [page for page in every if BLOCK.search(page.read_text(encoding="utf-8"))]


def refreshed(text: str, name: str) -> str:
    """Run the blocks of a page in the current folder and return the page with what they print."""
    namespace: dict[str, Any] = {"__name__": "__main__"}

    def run(block: re.Match[str]) -> str:
        line = text.count("\n", 0, block.start("code"))  # so that a traceback has the page's line numbers
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * line + block["code"], name, "exec"), namespace)
        if block["shown"] is None:
            return block[0]
        lines = [line.rstrip() for line in printed.getvalue().strip("\n").splitlines()]
        return f"```python\n{block['code']}```\n\n```text\n" + "".join(f"{line}\n" for line in lines) + "```\n"

    return BLOCK.sub(run, text)


def main(paths: list[Path]) -> None:
    os.environ |= {"COLUMNS": "80", "MPLBACKEND": "Agg"}
    for page in paths:
        before = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            after = refreshed(before, page.name)
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(f"wrote {page}")


if __name__ == "__main__":
    use_portable_arithmetic()  # the pages show the same digits on all machines
    main([Path(name).resolve() for name in sys.argv[1:]] or pages())
