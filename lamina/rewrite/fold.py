"""Arithmetic on constants in plain Python, to the last bit what the interpreter computes.

Where Python cannot promise that (powers and transcendental functions, complex and 8-bit floats,
casts out of range) and where it is not worth a line (division by zero, the maximum of NaN or of
two zeros, whose signs may differ) nothing is folded.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from typing import Any

from lamina.dtypes import STORAGE_ONLY, DType, Scalar, bfloat16, float16, float64
from lamina.ir.infer import INFER
from lamina.ir.node import Node, full
from lamina.ir.ops import Op


def constant_of(node: Node) -> Scalar | None:
    """The value of a constant, CONST or EXPAND of CONST, or None for any other node."""
    if node.op is Op.EXPAND:
        node = node.src[0]
    return node.arg.value if node.op is Op.CONST else None


def fold(op: Op, operands: tuple[Node, ...], arg: Any = None) -> Node | None:
    """The constant that `op` makes of constants, or None when it is not folded."""
    dtype, shape = INFER[op](operands, arg)
    dtypes = (dtype, *(one.dtype for one in operands))
    if op not in FOLD or any(one.is_complex or one in STORAGE_ONLY for one in dtypes):
        return None
    values: list[Any] = [_rounded(constant_of(one), one.dtype) for one in operands]
    try:
        result = _cast(dtype, *values) if op is Op.CAST else FOLD[op](*values)
    except ZeroDivisionError:
        return None
    return None if result is None else full(shape, _rounded(result, dtype), dtype)


def _rounded(value: Any, dtype: DType) -> Any:
    """`value` as a number of a float dtype, ties to even; of another dtype as it is."""
    if not dtype.is_float or dtype is float64 or not math.isfinite(value):
        return value
    form = "<e" if dtype is float16 else "<f"
    try:
        packed = struct.pack(form, value)
    except OverflowError:
        return math.copysign(math.inf, value)
    if dtype is bfloat16:  # the upper half of a float32
        bits = int.from_bytes(packed, "little")
        packed = ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).to_bytes(4, "little")
    return struct.unpack(form, packed)[0]


def _extreme(choose: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y: choose(x, y) if x == x and y == y and (x or y) else None


def _cast(dtype: DType, x: Any) -> Any:
    if dtype.is_float:  # an integer beyond 2**53 would be rounded twice
        return float(x) if isinstance(x, float) or abs(x) <= 1 << 53 else None
    if dtype.is_int and isinstance(x, float):
        low: Any = dtype.min
        high: Any = dtype.max
        return int(x) if math.isfinite(x) and low <= int(x) <= high else None
    return x


# From Python values to a Python value.
FOLD: dict[Op, Callable[..., Any]] = {
    Op.NEG: operator.neg, Op.NOT: lambda x: not x if isinstance(x, bool) else ~x,
    Op.ADD: operator.add, Op.MUL: operator.mul, Op.DIV: operator.truediv,
    Op.IDIV: operator.floordiv, Op.MOD: operator.mod, Op.MAX: _extreme(max),
    Op.MIN: _extreme(min), Op.LT: operator.lt, Op.EQ: operator.eq, Op.AND: operator.and_,
    Op.OR: operator.or_, Op.XOR: operator.xor, Op.CAST: _cast,
}  # fmt: skip
