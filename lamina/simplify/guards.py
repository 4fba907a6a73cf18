"""The conditions of the rules in `algebra`: of constants' values, of dtypes, of nodes."""

from __future__ import annotations

import math

from lamina.dtypes import DType, bool_
from lamina.ir.node import Node
from lamina.rewrite.rules import guard

# Bits of significand, and the least exponent of a normal number, of each float dtype's format.
_FORMAT = {
    "float16": (11, -14), "bfloat16": (8, -126), "float32": (24, -126), "float64": (53, -1022),
}  # fmt: skip


@guard
def has_exact_reciprocal(c: float, x: Node) -> bool:
    """c and 1 / c are normal powers of two in x's dtype."""
    significand, exponent = math.frexp(c)
    _, least = _FORMAT.get(x.dtype.name, (0, 0))
    return abs(significand) == 0.5 and least <= exponent - 1 <= -least


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
    if wide.is_int:
        return narrow.is_int and wide.min <= narrow.min and narrow.max <= wide.max  # type: ignore[operator]
    if wide.name not in _FORMAT:
        return False
    bits, least = _FORMAT[wide.name]
    # An integer of n bits, or a float so small, needs n bits and exponents up to n.
    narrow_bits, narrow_least = _FORMAT.get(narrow.name, (narrow.bits, -narrow.bits))
    return narrow_bits <= bits and narrow_least >= least


@guard
def keeps_bits(through: DType, to: DType) -> bool:
    """Bool is left out: not every byte is one."""
    return bool_ not in (through, to)
