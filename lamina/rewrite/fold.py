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
from lamina.ir.node import Node, const, full
from lamina.ir.ops import Op


def constant_of(node: Node) -> Scalar | None:
    """The value of a constant, CONST or EXPAND of CONST, or None for any other node."""
    if node.op is Op.EXPAND:
        node = node.src[0]
    if node.op is not Op.CONST:
        return None
    value: Scalar = node.arg.value
    return value


def same_scalar(value: Scalar, literal: Scalar) -> bool:
    """Whether a constant's value is what a rule's literal stands for; 0 is not -0.0."""
    if value != literal or isinstance(value, complex):
        return False
    if isinstance(value, bool) or isinstance(literal, bool):
        return value is literal
    if isinstance(literal, float) and isinstance(value, int):
        return False
    return value != 0 or math.copysign(1, value) == math.copysign(1, literal)  # type: ignore[arg-type]


def round_float(value: float, dtype: DType) -> float:
    """`value` rounded to a float dtype, ties to even."""
    if dtype is float64 or not math.isfinite(value):
        return value
    form = "<e" if dtype is float16 else "<f"
    try:
        packed = struct.pack(form, value)
    except OverflowError:
        return math.copysign(math.inf, value)
    if dtype is bfloat16:  # the upper half of a float32
        bits = int.from_bytes(packed, "little")
        packed = ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).to_bytes(4, "little")
    rounded: float = struct.unpack(form, packed)[0]
    return rounded


def fold(op: Op, operands: tuple[Node, ...], arg: Any = None) -> Node | None:
    """The constant that `op` makes of constants, or None when it is not folded."""
    row = FOLD.get(op)
    dtypes = {one.dtype for one in operands}
    if row is None or any(one.is_complex or one in STORAGE_ONLY for one in dtypes):
        return None
    values: list[Any] = [constant_of(operand) for operand in operands]
    for i, operand in enumerate(operands):
        if operand.dtype.is_float:
            values[i] = round_float(values[i], operand.dtype)
    dtype, shape = INFER[op](operands, arg)
    if dtype.is_complex or dtype in STORAGE_ONLY:
        return None
    result = row(dtype, *values)
    if result is None:
        return None
    if dtype.is_float:
        result = round_float(result, dtype)
    return full(shape, const(result, dtype).arg.value, dtype)


def _dividing(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda dtype, x, y: function(x, y) if y else None


def _extreme(choose: Callable[..., Any]) -> Callable[..., Any]:
    return lambda dtype, x, y: choose(x, y) if x == x and y == y and (x or y) else None


def _not(dtype: DType, x: Any) -> Any:
    return not x if dtype.kind == "bool" else ~x


def _cast(dtype: DType, x: Any) -> Any:
    if dtype.kind == "bool":
        return x != 0
    if dtype.is_int:
        if not isinstance(x, float):
            return x
        low, high = dtype.min, dtype.max
        return int(x) if math.isfinite(x) and low <= int(x) <= high else None  # type: ignore[operator]
    # An integer beyond 2**53 would be rounded twice.
    return float(x) if isinstance(x, float) or abs(x) <= 1 << 53 else None


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda dtype, *values: function(*values)


FOLD: dict[Op, Callable[..., Any]] = {
    Op.NEG: _plain(operator.neg), Op.NOT: _not, Op.ADD: _plain(operator.add),
    Op.MUL: _plain(operator.mul), Op.DIV: _dividing(operator.truediv),
    Op.IDIV: _dividing(operator.floordiv), Op.MOD: _dividing(operator.mod),
    Op.MAX: _extreme(max), Op.MIN: _extreme(min), Op.LT: _plain(operator.lt),
    Op.EQ: _plain(operator.eq), Op.AND: _plain(operator.and_), Op.OR: _plain(operator.or_),
    Op.XOR: _plain(operator.xor), Op.CAST: _cast,
}  # fmt: skip
