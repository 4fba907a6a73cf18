"""Measures what this machine can do at most. Arguments: the number of threads, a folder.

Each line that it reads is a JSON list [kind, amount]; it answers with a list of one number, the
seconds that `amount` operations ("fma") or bytes ("read", "copy": read and written together) take
at best.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

from bench.machine import ROOT
from bench.programs.protocol import clock, emit
from lamina.core.options import current
from lamina.runtime import compiler

_SECONDS = 0.02  # of one measurement
_STEPS = 12  # multiply-adds of vectors in one step of the loop
_KINDS = {"fma": (0,), "read": (1,), "copy": (2, 3, 4)}  # as in limits.c; copies have three ways


def build(folder: Path, width: int) -> ctypes.CDLL:
    """The loops, compiled for vectors of `width` bytes."""
    output = folder / f"limits-{width}.so"
    x86 = "-march=native" in (command := compiler.find(current()).command("", output))
    command[command.index("")] = str(ROOT / "bench" / "limits.c")
    command += [f"-DVECTOR_BYTES={width}", f'-DVECTOR_REGISTER="{"v" if x86 else "w"}"']
    subprocess.run(command, check=True)
    library = ctypes.CDLL(str(output))
    pointer, long = ctypes.c_void_p, ctypes.c_long
    library.allocate.argtypes, library.allocate.restype = [long], pointer
    library.run.argtypes = [ctypes.c_int, ctypes.c_int, long, pointer, pointer, long]
    return library


threads, folder = int(sys.argv[1]), Path(sys.argv[2])
now = clock(threads)
widths = [width for width in (32, 64) if width <= compiler.find(current()).vector_bytes] or [16]
libraries = {width: build(folder, width) for width in widths}


@cache
def memory(size: int) -> tuple[int, int]:
    """Two arrays of `size` bytes."""
    allocate = libraries[widths[0]].allocate
    return allocate(size), allocate(size)


def per_repeat(width: int, kind: int, size: int) -> float:
    """Seconds of one step, or of one pass over `size` bytes, in the better half of the run."""
    blocks = memory(size) if size else (None, None)
    repeats, spent = 1, 0.0
    while spent < _SECONDS:
        repeats *= max(2, min(64, int(1.2 * _SECONDS / max(spent, 1e-6)))) if spent else 1
        started = now()
        libraries[width].run(kind, threads, repeats, *blocks, size)
        spent = now() - started
    return spent / repeats


def limit(kind: str, amount: float) -> float:
    """Seconds of `amount` operations or bytes, by the best of the ways to do it."""
    if kind == "fma":
        rate = max(2 * _STEPS * width / 4 * threads / per_repeat(width, 0, 0) for width in widths)
        return amount / rate
    size = int(amount) // (2 if kind == "copy" else 1)
    return min(per_repeat(width, way, size) for width in widths for way in _KINDS[kind])


emit(ready=True)
for line in sys.stdin:
    emit(seconds=[limit(*json.loads(line))])
