"""Comparing what a compiled kernel wrote with what the reference writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lamina import dtypes
from lamina.dtypes import DType
from lamina.ir.interpreter import Array
from lamina.ir.kernel import AnyKernel, Kernel, SortKernel
from lamina.ir.kernel_interpreter import run_kernel
from lamina.ir.node import toposort
from lamina.ir.ops import Group, Op

# How far floats may be apart, as a share of the largest number that the kernel reads or writes.
TOLERANCE: dict[DType, float] = {
    dtypes.float8_e4m3fn: 0.13, dtypes.float8_e5m2: 0.26, dtypes.float16: 2e-3,
    dtypes.bfloat16: 2e-2, dtypes.float32: 1e-5, dtypes.float64: 1e-13,
    dtypes.complex64: 1e-5, dtypes.complex128: 1e-13,
}  # fmt: skip
ROUNDED = 0.01  # the share of integers or bools made from rounded floats that may differ
EXACT = frozenset({Op.NEG, Op.MAX, Op.MIN, Op.WHERE, Op.LOAD, Op.CONST, Op.TRUNC, Op.BITCAST})


def check_kernel(
    kernel: AnyKernel, before: Sequence[Array], after: Sequence[Array]
) -> str | None:
    """What the parameters `after` a compiled kernel have otherwise than the reference makes of
    those `before`, which are overwritten; or None. All are flat arrays."""
    import numpy as np

    with np.errstate(all="ignore"):
        return _difference(kernel, before, after)


def _difference(
    kernel: AnyKernel, before: Sequence[Array], after: Sequence[Array]
) -> str | None:
    import numpy as np

    scale = _scale(before)
    run_kernel(kernel, before)
    for number, parameter in enumerate(kernel.parameters):
        if not parameter.written or (isinstance(kernel, SortKernel) and number == 2):
            continue
        want, got = before[number], after[number]
        same = _agree(parameter.dtype, got, want, scale)
        differing = np.flatnonzero(~same)
        allowed = 0
        if isinstance(kernel, Kernel) and not parameter.dtype.is_float and _rounds(kernel, number):
            allowed = max(1, int(ROUNDED * want.size))
        if len(differing) > allowed:
            at = int(differing[0])
            return (
                f"parameter {number} at {at}: {got[at]}, and the reference has {want[at]}; "
                f"{len(differing)} of {want.size} elements differ"
            )
    return None


def _scale(arrays: Sequence[Array]) -> float:
    """The largest finite magnitude among floats."""
    import numpy as np

    found = [np.abs(one.astype(np.complex128)) for one in arrays if one.dtype.kind not in "biu"]
    return max((float(one[np.isfinite(one)].max(initial=0)) for one in found), default=0.0)


def _agree(dtype: DType, got: Array, want: Array, scale: float) -> Any:
    """Elementwise; a NaN agrees with a NaN."""
    import numpy as np

    tolerance = TOLERANCE.get(dtype)
    if tolerance is None:
        return got == want
    wide = np.complex128 if dtype.is_complex else np.float64
    got, want = got.astype(wide), want.astype(wide)
    reach = max(scale, _scale([want]))
    return np.isclose(got, want, rtol=10 * tolerance, atol=tolerance * reach, equal_nan=True)


def _rounds(kernel: Kernel, parameter: int) -> bool:
    """Do rounded floats decide what is written to a parameter of integers or bools?"""
    values = [store.value for store in kernel.stores if store.parameter == parameter]
    inexact = (Group.ELEMENTWISE | {Op.FOLD, Op.PREFIX}) - EXACT
    return any(node.dtype.is_float and node.op in inexact for node in toposort(values))
