"""Expansions as scalar C in a loop, compiled with and without contraction to fused operations."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
from pathlib import Path

import numpy as np

from lamina.dtypes import DType, bool_, float32, float64, int32, int64, uint32, uint64
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op

COMPILER = shutil.which("gcc") or shutil.which("cc")
CONTRACTION = ("off", "fast")

_TYPE = {bool_: "int", int32: "int32_t", uint32: "uint32_t", int64: "int64_t",
         uint64: "uint64_t", float32: "float", float64: "double"}  # fmt: skip
_TEXT = {
    Op.ADD: "{} + {}", Op.MUL: "{} * {}", Op.DIV: "{} / {}", Op.NEG: "-{}", Op.LT: "{} < {}",
    Op.EQ: "{} == {}", Op.AND: "{} & {}", Op.OR: "{} | {}", Op.XOR: "{} ^ {}",
    Op.SHL: "{} << {}", Op.SHR: "{} >> {}", Op.WHERE: "{} ? {} : {}",
}  # fmt: skip

# `errors` measures against libm in float64: the worst distance in units of the last place of the
# exact result, infinite for a wrong special value, and the bits of the argument it occurs at.
_SOURCE = """
#include <math.h>
#include <stdint.h>
#include <string.h>
enum { BLOCK = 4096 };
void run(const float *restrict x, const float *restrict y, float *restrict out, long count) {
    for (long i = 0; i < count; i++) {
%s
    }
}
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
void errors(uint64_t first, uint64_t end, double *worst, uint32_t *where) {
    float x[BLOCK], out[BLOCK];
    *worst = 0;
    for (; first < end; first += BLOCK) {
        for (uint32_t i = 0; i < BLOCK; i++) {
            uint32_t bits = (uint32_t)first + i;
            memcpy(x + i, &bits, 4);
        }
        run(x, x, out, BLOCK);
        for (int i = 0; i < BLOCK; i++) {
            double error = distance(out[i], %s);
            if (error > *worst) *worst = error, memcpy(where, x + i, 4);
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


def compile_expansion(node: Node, function: str, contraction: str, folder: Path) -> ctypes.CDLL:
    """`run` and `errors` for a scalar graph over HOLEs named x and y; libm has `function`.

    `errors` gives both operands of a function of two the same value.
    """
    assert COMPILER is not None
    names: dict[Node, str] = {}
    body = [_statement(one, names) for one in toposort([node])] + [f"out[i] = {names[node]};"]
    holes = sum(one.op is Op.HOLE for one in names)
    call = f"{function}({', '.join(['(double)x[i]'] * holes)})"
    source = folder / f"{function}_{contraction}.c"
    library = source.with_suffix(".so")
    source.write_text(_SOURCE % ("\n".join("        " + line for line in body), call))
    target = "-march=native" if platform.machine() in ("x86_64", "AMD64") else "-mcpu=native"
    flags = ["-O3", target, "-shared", "-fPIC", "-fno-math-errno", "-fno-trapping-math"]
    command = [COMPILER, *flags, f"-ffp-contract={contraction}", str(source), "-o", str(library)]
    subprocess.run([*command, "-lm"], check=True)
    return ctypes.CDLL(str(library))


def run(library: ctypes.CDLL, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The compiled expansion of float32 vectors."""
    out = np.empty_like(x)
    pointers = [one.ctypes.data_as(ctypes.c_void_p) for one in (x, y, out)]
    library.run(*pointers, ctypes.c_long(len(x)))
    return out


def errors(library: ctypes.CDLL, first: int, end: int) -> tuple[float, int]:
    """The worst error over bit patterns from `first` to before `end`, and where it is."""
    worst, where = ctypes.c_double(), ctypes.c_uint32()
    library.errors(
        ctypes.c_uint64(first), ctypes.c_uint64(end), ctypes.byref(worst), ctypes.byref(where)
    )
    return worst.value, where.value
