"""Errors against libm's float64, in C, as there are many floats."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

Vector = np.ndarray[Any, np.dtype[Any]]

COMPILER = shutil.which("gcc") or shutil.which("cc")

# Against libm in float64: the worst distance in units of the last place of the exact result,
# infinite for a wrong special value, and the bits of the argument it occurs at.
_ERRORS = """
#include <math.h>
#include <stdint.h>
#include <string.h>
static double logistic(double x) { return (x < 0 ? exp(x) : 1) / (1 + exp(x < 0 ? x : -x)); }
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
void errors(const float *x, const float *got, long count, double *worst, uint32_t *where) {
    for (long i = 0; i < count; i++) {
        double error = distance(got[i], FUNCTION((double)x[i]));
        if (error > *worst) *worst = error, memcpy(where, x + i, 4);
    }
}
"""


def compile_errors(function: str, folder: Path) -> ctypes.CDLL:
    """The C function `errors` against a function of libm."""
    assert COMPILER is not None
    text, library = folder / "errors.c", folder / "errors.so"
    text.write_text(_ERRORS)
    flags = ["-O3", "-shared", "-fPIC", "-fno-math-errno", f"-DFUNCTION={function}"]
    subprocess.run([COMPILER, *flags, str(text), "-o", str(library), "-lm"], check=True)
    return ctypes.CDLL(str(library))


def errors(measure: ctypes.CDLL, x: Vector, got: Vector) -> tuple[float, int]:
    """The worst error of `got`, and the bits of the argument it occurs at."""
    worst, where = ctypes.c_double(), ctypes.c_uint32()
    pointers = [one.ctypes.data_as(ctypes.c_void_p) for one in (x, got)]
    count = ctypes.c_long(len(x))
    measure.errors(*pointers, count, ctypes.byref(worst), ctypes.byref(where))
    return worst.value, where.value
