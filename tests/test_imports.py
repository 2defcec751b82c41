"""Imports point one way, also those inside functions, and reading rows loads nothing heavy."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "anchormoe"

# commands -> running, report -> methods, config -> model -> distributions, data
LEVELS = {
    "arithmetic": 0,
    "errors": 0,
    "rows": 0,
    "paths": 0,
    "data": 1,
    "distributions": 1,
    "model": 2,
    "config": 3,
    "estimator": 4,
    "methods": 3,
    "report": 4,
    "running": 4,
    "theory": 5,
    "commands": 6,
    "cli": 7,
    "__init__": 7,
}


def part_of(module: str) -> str:
    """Return the folder or file below anchormoe that a module belongs to."""
    names = module.split(".")
    return names[1] if len(names) > 1 else "__init__"


def imported(path: Path) -> Iterator[str]:
    """Yield the modules of this package that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "anchormoe")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "anchormoe":
            if node.module == "anchormoe":
                yield from (f"anchormoe.{alias.name}" for alias in node.names if alias.name != "__version__")
            else:
                yield str(node.module)


def upward(part: str, modules: list[str]) -> list[str]:
    """Return the imports that do not point down."""
    return [name for name in modules if part_of(name) != part and LEVELS[part_of(name)] >= LEVELS[part]]


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    part = path.relative_to(PACKAGE).with_suffix("").parts[0]
    assert upward(part, list(imported(path))) == []


def test_an_import_that_points_up_is_found() -> None:
    assert upward("model", ["anchormoe.config.schema", "anchormoe.data.splits"]) == ["anchormoe.config.schema"]
    assert upward("report", ["anchormoe.running.store"]) == ["anchormoe.running.store"]
    assert upward("data", ["anchormoe.data.catalogue", "anchormoe.errors"]) == []


@pytest.mark.parametrize(
    "module", ["report.tables", "report.check", "report.comparison", "report.summary", "report.html.page", "cli"]
)
def test_reading_rows_loads_nothing_heavy(module: str) -> None:
    heavy = ("torch", "numba", "hydra", "xgboost", "sklearn")
    code = f"import sys, anchormoe.{module}; print([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
