"""Runs programs for CUDA on the processor, thread after thread, if threads exchange nothing.

A compiler of C++ takes the same text as NVRTC, with CUDA's words defined away. An access that is
not aligned as its type asks ends the process.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lamina.compiled import Planned

Array = np.ndarray[Any, Any]

_OPENING = """
#include <math.h>
#include <utility>
#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_assume(holds) do { if (!(holds)) __builtin_trap(); } while (0)
struct Place { unsigned x; };
static Place blockIdx, threadIdx;
"""
_ENDING = """
extern "C" void *__nv_associate_access_property(const void *array, unsigned long long) {
    return (void *)array;
}
template <class... A, std::size_t... I>
static void call_with(void (*kernel)(A...), void **arrays, std::index_sequence<I...>) {
    kernel((A)arrays[I]...);
}
template <class... A>
static void run(void (*kernel)(A...), void **arrays, unsigned blocks, unsigned threads) {
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++)
            call_with(kernel, arrays, std::index_sequence_for<A...>());
}
"""
_FLAGS = (
    "-std=c++17", "-O1", "-w", "-shared", "-fPIC",
    "-fsanitize=alignment", "-fsanitize-undefined-trap-on-error",
)  # fmt: skip


def run_on_host(
    planned: Planned,
    inputs: Sequence[Array],
    folder: Path,
    opening: str = _OPENING,
    ending: str = _ENDING,
) -> list[Array]:
    """The results of a program on `inputs`, flat. folder: for what the compiler makes. opening,
    ending: what stands for CUDA's words, and runs a kernel"""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    program = planned.program
    results = [aligned(np.zeros(view.size, view.dtype.numpy)) for view in program.outputs]
    table = [aligned(np.zeros(program.arena, np.uint8)), *results, *map(aligned, inputs)]
    text = planned.text.replace("extern __shared__", "extern")
    lines = [opening, text, ending]
    for number, launch in enumerate(planned.launches):
        call = f"run({launch.name}, arrays, {launch.blocks}, {launch.threads});"
        lines.append(f'extern "C" void launch_{number}(void **arrays) {{ {call} }}')
    source, library = folder / "program.cpp", folder / "program.so"
    source.write_text("\n".join(lines), encoding="utf-8")
    command = [compiler, *_FLAGS, "-o", os.fspath(library), os.fspath(source)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    loaded = ctypes.CDLL(os.fspath(library))
    for number, launch in enumerate(planned.launches):
        places = [table[buffer].ctypes.data + offset for buffer, offset in launch.arguments]
        loaded[f"launch_{number}"]((ctypes.c_void_p * len(places))(*places))
    return results


def aligned(array: Array) -> Array:
    """A copy that begins at a multiple of 64 bytes, as memory of a device does."""
    room = np.zeros(array.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
