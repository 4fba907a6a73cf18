"""The conditions of the rules in `algebra`: of constants' values, of dtypes, of nodes."""

from __future__ import annotations

import math

from lamina.dtypes import DType, Scalar, bool_, float32, float64
from lamina.ir.node import Node
from lamina.rewrite.patterns import guard

# Bits of significand, and the least exponent of a normal number, of each float dtype's format.
_PRECISION = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
_LEAST_EXPONENT = {"float16": -14, "bfloat16": -126, "float32": -126, "float64": -1022}


@guard
def divides(b: int, a: int) -> bool:
    """Neither is 0 and a is a multiple of b."""
    return b != 0 and a != 0 and a % b == 0


@guard
def is_power_of_two(a: int) -> bool:
    return a > 0 and a & (a - 1) == 0


@guard
def product_fits(a: int, b: int, x: Node) -> bool:
    """Both are positive and a * b is a value of x's dtype."""
    return a > 0 and b > 0 and a * b <= x.dtype.max  # type: ignore[operator]


@guard
def has_exact_reciprocal(c: float, x: Node) -> bool:
    """c and 1 / c are normal powers of two in x's dtype."""
    least = _LEAST_EXPONENT.get(x.dtype.name)
    if least is None or not math.isfinite(c) or abs(math.frexp(c)[0]) != 0.5:
        return False
    return least <= math.frexp(c)[1] - 1 <= -least


@guard
def is_least(c: Scalar, x: Node) -> bool:
    return c == x.dtype.min


@guard
def is_greatest(c: Scalar, x: Node) -> bool:
    return c == x.dtype.max


@guard
def makes_own_dtype(x: Node, to: DType) -> bool:
    return x.dtype is to


@guard
def skips_cast(x: Node, through: DType, to: DType) -> bool:
    """Casting x to `through` and then to `to` is casting it to `to` at once."""
    if through.is_complex:
        return False
    if x.dtype.is_int and through.is_int and to.is_int and to.bits <= through.bits:
        return True  # both keep the low bits
    if not holds(through, x.dtype):
        return False
    # From a float to an integer, what is out of range is nobody's promise: do not change it.
    return to is x.dtype or not (through.is_float and to.is_int) or x.dtype is bool_


def holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is a value of `wide`."""
    if wide is narrow or narrow is bool_:
        return True
    if wide.is_int and narrow.is_int:
        sign = wide.kind == "int"
        return (sign or narrow.kind == "uint") and (
            wide.bits - sign >= narrow.bits - (narrow.kind == "int")
        )
    if not wide.is_float or wide.name not in _PRECISION:
        return False
    if narrow.is_int:
        return narrow.bits <= _PRECISION[wide.name] and narrow.bits <= -_LEAST_EXPONENT[wide.name]
    if narrow.name not in _PRECISION:
        return False
    return (
        _PRECISION[narrow.name] <= _PRECISION[wide.name]
        and _LEAST_EXPONENT[narrow.name] >= _LEAST_EXPONENT[wide.name]
    )


@guard
def keeps_bits(through: DType, to: DType) -> bool:
    """Bool is left out: not every byte is one."""
    return bool_ not in (through, to)


@guard
def has_complex(x: Node) -> bool:
    """A complex dtype has parts of x's dtype."""
    return x.dtype in (float32, float64)
