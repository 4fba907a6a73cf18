"""Expansions as scalar C in a loop, compiled with and without contraction to fused operations."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lamina.dtypes import DType, bool_, float32, float64, int32, int64, uint32, uint64
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op

Vector = np.ndarray[Any, np.dtype[Any]]

COMPILER = shutil.which("gcc") or shutil.which("cc")
CONTRACTION = ("off", "fast")

_TYPE = {bool_: "int", int32: "int32_t", uint32: "uint32_t", int64: "int64_t",
         uint64: "uint64_t", float32: "float", float64: "double"}  # fmt: skip
_TEXT = {
    Op.ADD: "{} + {}", Op.MUL: "{} * {}", Op.DIV: "{} / {}", Op.NEG: "-{}", Op.LT: "{} < {}",
    Op.EQ: "{} == {}", Op.AND: "{} & {}", Op.OR: "{} | {}", Op.XOR: "{} ^ {}",
    Op.SHL: "{} << {}", Op.SHR: "{} >> {}", Op.WHERE: "{} ? {} : {}",
}  # fmt: skip

_LOOP = """
#include <math.h>
#include <stdint.h>
#include <string.h>
void run(const float *restrict x, const float *restrict y, float *restrict out, long count) {
    for (long i = 0; i < count; i++) {
%s
    }
}
"""

# Against libm in float64: the worst distance in units of the last place of the exact result,
# infinite for a wrong special value, and the bits of the argument it occurs at.
_ERRORS = """
#include <math.h>
#include <stdint.h>
#include <string.h>
enum { BLOCK = 4096 };
typedef void run(const float *, const float *, float *, long);
static double distance(float got, double exact) {
    float rounded = (float)exact;
    if (isnan(exact)) return isnan(got) ? 0 : INFINITY;
    if (got == rounded && signbit(got) == signbit(rounded) && !isfinite(got)) return 0;
    if (signbit(got) != signbit(rounded) || isnan(got) || isinf(exact)) return INFINITY;
    if (isinf(got)) got = copysignf(0x1p127f, got), exact /= 2;
    uint64_t bits;
    memcpy(&bits, &exact, 8);
    bits &= 0x7ff0000000000000;
    double place;
    memcpy(&place, &bits, 8);
    return fabs(got - exact) / fmax(place * 0x1p-23, 0x1p-149);
}
void errors(run **runs, int count, uint64_t first, uint64_t end, double *worst, uint32_t *where) {
    float x[BLOCK], out[BLOCK];
    double exact[BLOCK];
    for (; first < end; first += BLOCK) {
        for (uint32_t i = 0; i < BLOCK; i++) {
            uint32_t bits = (uint32_t)first + i;
            memcpy(x + i, &bits, 4);
            exact[i] = FUNCTION;
        }
        for (int k = 0; k < count; k++) {
            runs[k](x, x, out, BLOCK);
            for (int i = 0; i < BLOCK; i++) {
                double error = distance(out[i], exact[i]);
                if (error > worst[k]) worst[k] = error, memcpy(where + k, x + i, 4);
            }
        }
    }
}
"""


def _constant(value: bool | int | float, dtype: DType) -> str:
    if not dtype.is_float:
        return f"{int(value)}{'ull' if dtype is uint64 else ''}"
    if value != value or abs(value) == float("inf"):
        return "NAN" if value != value else "-INFINITY" if value < 0 else "INFINITY"
    return f"{np.float32(value)!s}f" if dtype is float32 else repr(float(value))


def _statement(node: Node, names: dict[Node, str]) -> str:
    kind = _TYPE[node.dtype]
    operands = [names[one] for one in node.src]
    name = names[node] = f"t{len(names)}"
    if node.op is Op.HOLE:
        return f"{kind} {name} = {node.arg.name}[i];"
    if node.op is Op.CONST:
        return f"const {kind} {name} = {_constant(node.arg.value, node.dtype)};"
    if node.op is Op.BITCAST:
        return f"{kind} {name}; memcpy(&{name}, &{operands[0]}, sizeof {name});"
    if node.op is Op.CAST:
        return f"{kind} {name} = ({kind}){operands[0]};"
    if node.op is Op.NOT:
        return f"{kind} {name} = {'!' if node.dtype is bool_ else '~'}{operands[0]};"
    if node.op is Op.TRUNC:
        return f"{kind} {name} = trunc{'f' if node.dtype is float32 else ''}({operands[0]});"
    return f"{kind} {name} = {_TEXT[node.op].format(*operands)};"


def _compiled(source: str, stem: Path, *flags: str) -> ctypes.CDLL:
    assert COMPILER is not None
    text, library = stem.with_suffix(".c"), stem.with_suffix(".so")
    text.write_text(source)
    target = "-march=native" if platform.machine() in ("x86_64", "AMD64") else "-mcpu=native"
    common = ["-O3", target, "-shared", "-fPIC", "-fno-math-errno", "-fno-trapping-math"]
    subprocess.run([COMPILER, *common, *flags, str(text), "-o", str(library), "-lm"], check=True)
    return ctypes.CDLL(str(library))


def compile_expansion(node: Node, contraction: str, folder: Path) -> ctypes.CDLL:
    """The function `run` of a scalar graph over HOLEs named x and y."""
    names: dict[Node, str] = {}
    body = [_statement(one, names) for one in toposort([node])] + [f"out[i] = {names[node]};"]
    source = _LOOP % "\n".join("        " + line for line in body)
    return _compiled(source, folder / f"run_{contraction}", f"-ffp-contract={contraction}")


def compile_errors(exact: str, folder: Path) -> ctypes.CDLL:
    """The function `errors` against a C expression of ``(double)x[i]``."""
    return _compiled(_ERRORS, folder / "errors", f"-DFUNCTION={exact}")


def run(library: ctypes.CDLL, x: Vector, y: Vector) -> Vector:
    """The compiled expansion of float32 vectors."""
    out = np.empty_like(x)
    pointers = [one.ctypes.data_as(ctypes.c_void_p) for one in (x, y, out)]
    library.run(*pointers, ctypes.c_long(len(x)))
    return out


def errors(
    measure: ctypes.CDLL, libraries: Sequence[ctypes.CDLL], first: int, end: int
) -> list[tuple[float, int]]:
    """The worst error of each library over the bit patterns from `first` to before `end`, and
    the pattern it occurs at. A function of two operands gets the same value for both."""
    count = len(libraries)
    runs = (ctypes.c_void_p * count)(
        *(ctypes.cast(one.run, ctypes.c_void_p).value for one in libraries)
    )
    worst, where = (ctypes.c_double * count)(), (ctypes.c_uint32 * count)()
    measure.errors(runs, count, ctypes.c_uint64(first), ctypes.c_uint64(end), worst, where)
    return list(zip(worst, where, strict=True))
