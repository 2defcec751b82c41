"""Portable arithmetic: the same bits on every x86-64 processor that has AVX2.

NumPy and OpenBLAS choose their code by the processor, and code for AVX-512 adds in another order than code for AVX2.
Training amplifies such differences in the last digit, up to a few thousandths of a split's score. So the harness asks
both libraries for their AVX2 code. They read these variables when they are loaded, hence they must be set before NumPy
is imported, or for a process that is about to start:

    eval "$(python -m anchormoe.arithmetic)"        # in a shell, before the workers of a cluster

numba's and XGBoost's results did not depend on the processor in any comparison; torch's may, which concerns the
methods that train with torch.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# NumPy's names of what it can use beyond AVX2, and the processor's flags that each of them needs.
_BEYOND_AVX2 = {
    "AVX512F": {"avx512f"},
    "AVX512CD": {"avx512cd"},
    "AVX512_SKX": {"avx512bw", "avx512dq", "avx512vl"},
    "AVX512_CLX": {"avx512_vnni"},
    "AVX512_CNL": {"avx512ifma", "avx512vbmi"},
    "AVX512_ICL": {"avx512_vbmi2", "avx512_bitalg", "avx512_vpopcntdq"},
    "AVX512_SPR": {"avx512_fp16"},
}


def portable_variables() -> dict[str, str]:
    """Return the environment of a process with portable arithmetic; empty where the processor cannot be asked."""
    flags = _processor_flags()
    if platform.machine() != "x86_64" or not {"avx2", "fma"} <= flags:
        return {}
    variables = {"OPENBLAS_CORETYPE": "Haswell"}
    beyond = [name for name, needed in _BEYOND_AVX2.items() if needed <= flags]
    return {**variables, "NPY_DISABLE_CPU_FEATURES": " ".join(beyond)} if beyond else variables


def use_portable_arithmetic() -> None:
    """Choose portable arithmetic for this process, which must not have loaded NumPy yet, and for those it starts."""
    if "numpy" not in sys.modules:
        for name, value in portable_variables().items():
            os.environ.setdefault(name, value)


def is_portable() -> bool:
    """Tell whether the environment of this process asks for portable arithmetic, or for more than that."""
    return all(
        set(value.split()) <= set(os.environ.get(name, "").split()) for name, value in portable_variables().items()
    )


@contextmanager
def portable_children() -> Iterator[None]:
    """Give processes that are started meanwhile portable arithmetic."""
    wanted = portable_variables()
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def shell_lines() -> str:
    """Return the lines with which a shell gives portable arithmetic to the programs it starts."""
    return "\n".join(f"export {name}='{value}'" for name, value in portable_variables().items())


def _processor_flags() -> set[str]:
    try:
        with open("/proc/cpuinfo") as file:
            line = next((line for line in file if line.startswith("flags")), "")
    except OSError:
        return set()
    return set(line.partition(":")[2].split())


if __name__ == "__main__":
    print(shell_lines())
