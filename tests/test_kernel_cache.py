"""The cache of compiled kernels: damaged files are dropped, a read-only package is no obstacle, one compiles."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

KERNEL = """
import sys
from numba.core import event
from anchormoe.model.kernels.compiled import compiled

class Count(event.Listener):
    compilations = 0
    def on_start(self, event): pass
    def on_end(self, event): Count.compilations += 1

event.register("numba:compile", Count())

@compiled
def double(x):
    return 2 * x
"""


def run(folder: Path, **environment: str) -> tuple[str, int]:
    """Call the kernel in a new process; return its result and the number of compilations."""
    code = "import kernel; print(kernel.double(2.5), kernel.Count.compilations)"
    variables = {"PATH": os.environ["PATH"], "HOME": str(folder / "home"), "TMPDIR": str(folder), **environment}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder / "package", env=variables, capture_output=True, text=True, check=True)
    result, compilations = done.stdout.split()
    return result, int(compilations)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "kernel.py").write_text(KERNEL)
    return tmp_path


def cache_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.suffix in (".nbi", ".nbc")]


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("damage", [b"", b"\x80\x05garbage"])
def test_a_damaged_file_is_compiled_anew_once(folder: Path, suffix: str, damage: bytes) -> None:
    assert run(folder) == ("5.0", 1)
    (file,) = (path for path in cache_files(folder) if path.suffix == suffix)
    file.write_bytes(damage)
    assert run(folder) == ("5.0", 1)
    assert run(folder) == ("5.0", 0)


def test_a_read_only_package_without_a_home_has_a_cache_of_its_own(folder: Path) -> None:
    (folder / "package" / "__pycache__").write_text(
        "in the way: as little writable as a read-only folder, also to root"
    )
    (folder / "home").write_text("no folder")
    assert run(folder) == ("5.0", 1)
    assert run(folder) == ("5.0", 0)
    (private,) = folder.glob("anchormoe-kernels-*")
    assert private.stat().st_mode & 0o777 == 0o700
    assert len(cache_files(private)) == 2


def test_processes_that_need_a_kernel_at_once_compile_it_once(folder: Path) -> None:
    code = "import kernel; kernel.double(2.5); print(kernel.Count.compilations)"
    variables = {"PATH": os.environ["PATH"], "HOME": str(folder / "home"), "TMPDIR": str(folder)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code], cwd=folder / "package", env=variables, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    assert sum(int(process.communicate()[0]) for process in processes) == 1
