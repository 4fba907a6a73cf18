"""Arithmetic on constants in plain Python, to the last bit what the interpreter computes.

Where Python cannot promise that (transcendental functions, complex and 8-bit floats, casts out
of range, the sign of max(0.0, -0.0)) nothing is folded.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from typing import Any

from lamina.dtypes import STORAGE_ONLY, DType, Scalar, bfloat16, float16, float32
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
    if dtype is float32 or dtype is bfloat16:
        value = _through("<f", value)
        return _round_bfloat16(value) if dtype is bfloat16 else value
    return _through("<e", value) if dtype is float16 else value


def _through(form: str, value: float) -> float:
    try:
        rounded: float = struct.unpack(form, struct.pack(form, value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded


def _round_bfloat16(value: float) -> float:
    """A float32 value rounded to its upper 16 bits."""
    if not math.isfinite(value):
        return value
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    rounded: float = struct.unpack("<f", struct.pack("<I", bits))[0]
    return rounded


def fold(op: Op, operands: tuple[Node, ...], arg: Any = None) -> Node | None:
    """The constant that `op` makes of constants, or None when it is not folded."""
    row = FOLD.get(op)
    dtypes = {one.dtype for one in operands}
    if row is None or any(one.is_complex or one in STORAGE_ONLY for one in dtypes):
        return None
    values = []
    for operand in operands:
        value = constant_of(operand)
        if operand.dtype.is_float:
            value = round_float(value, operand.dtype)  # type: ignore[arg-type]
        values.append(value)
    dtype, shape = INFER[op](operands, arg)
    if dtype.is_complex or dtype in STORAGE_ONLY:
        return None
    result = row(dtype, *values)
    if result is None:
        return None
    if dtype.is_float:
        result = round_float(result, dtype)
    return full(shape, const(result, dtype).arg.value, dtype)


def _divide(dtype: DType, x: float, y: float) -> float:
    if y:
        return x / y
    if x == 0 or x != x:
        return math.nan
    return math.copysign(math.inf, x) * math.copysign(1.0, y)


def _remainder(dtype: DType, x: Any, y: Any) -> Any:
    if dtype.is_float:
        return x % y if y else math.nan
    return x % y if y else 0


def _power(dtype: DType, x: Any, y: Any) -> Any:
    """Only of integers: a float power depends on the library."""
    return pow(x, y, 1 << dtype.bits) if dtype.is_int and y >= 0 else None


def _extreme(choose: Callable[..., Any]) -> Callable[..., Any]:
    def row(dtype: DType, x: Any, y: Any) -> Any:
        if x != x or y != y:
            return math.nan
        if x == y and repr(x) != repr(y):
            return None
        return choose(x, y)

    return row


def _shift_left(dtype: DType, x: int, count: int) -> int:
    return x << count if 0 <= count < dtype.bits else 0


def _shift_right(dtype: DType, x: int, count: int) -> int:
    return x >> (count if 0 <= count < dtype.bits else dtype.bits)


def _square_root(dtype: DType, x: float) -> float:
    return math.sqrt(x) if x >= 0 else math.nan if x != 0 else x


def _truncate(dtype: DType, x: float) -> float:
    return math.copysign(math.trunc(x), x) if math.isfinite(x) else x


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
    Op.NEG: _plain(operator.neg), Op.NOT: _not, Op.SQRT: _square_root, Op.TRUNC: _truncate,
    Op.ADD: _plain(operator.add), Op.MUL: _plain(operator.mul), Op.DIV: _divide,
    Op.IDIV: lambda dtype, x, y: x // y if y else 0, Op.MOD: _remainder, Op.POW: _power,
    Op.MAX: _extreme(max), Op.MIN: _extreme(min), Op.LT: _plain(operator.lt),
    Op.EQ: _plain(operator.eq), Op.AND: _plain(operator.and_), Op.OR: _plain(operator.or_),
    Op.XOR: _plain(operator.xor), Op.SHL: _shift_left, Op.SHR: _shift_right,
    Op.WHERE: lambda dtype, condition, yes, no: yes if condition else no, Op.CAST: _cast,
}  # fmt: skip
