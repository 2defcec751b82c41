"""Portable arithmetic: what the environment of a process must say, and that children get it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from anchormoe import arithmetic

INTEL = {"avx2", "fma", "avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"}


def on(monkeypatch: pytest.MonkeyPatch, flags: set[str], machine: str = "x86_64") -> None:
    monkeypatch.setattr(arithmetic, "_processor_flags", lambda: flags)
    monkeypatch.setattr(arithmetic.platform, "machine", lambda: machine)


def test_only_what_a_processor_has_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, INTEL)
    assert arithmetic.portable_variables() == {
        "OPENBLAS_CORETYPE": "Haswell",
        "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX",
    }
    on(monkeypatch, {"avx2", "fma"})
    assert arithmetic.portable_variables() == {"OPENBLAS_CORETYPE": "Haswell"}
    on(monkeypatch, {"avx2"})  # OpenBLAS's code for Haswell would not run
    assert arithmetic.portable_variables() == {}
    on(monkeypatch, INTEL, machine="aarch64")
    assert arithmetic.portable_variables() == {}


def test_children_are_portable_and_the_environment_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Zen")
    before = dict(os.environ)
    wanted = arithmetic.portable_variables()
    assert arithmetic.is_portable() == (wanted == {})
    with arithmetic.portable_children():
        assert arithmetic.is_portable()
        code = f"import os; print(all(os.environ[name] == value for name, value in {wanted}.items()))"
        child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert child.stdout.strip() == "True"
    assert dict(os.environ) == before


def test_numpy_does_what_the_variables_say() -> None:
    """In a process like those of the harness, NumPy uses nothing beyond AVX2, and says nothing about it."""
    code = """
from anchormoe.arithmetic import use_portable_arithmetic
use_portable_arithmetic()
from numpy._core._multiarray_umath import __cpu_dispatch__ as choices, __cpu_features__ as has
print([name for name in choices if name.startswith("AVX512") and has[name]])
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("NPY_", "OPENBLAS_"))}
    command = [sys.executable, "-W", "error", "-c", code]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_a_shell_can_ask_for_it() -> None:
    lines = arithmetic.shell_lines().splitlines()
    assert lines == [f"export {name}='{value}'" for name, value in arithmetic.portable_variables().items()]
