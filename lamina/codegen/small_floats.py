"""Floats of 16 and 8 bits where a target has none: their bits travel as unsigned integers.

Kernels compute such values as float32 that holds them exactly. `decode` makes one of bits,
`rounded` of any float32, `encode` goes back to bits: each a few integer operations that vectorise.
Rounding is to nearest, ties to even, with subnormals.

The bits of a normal float32 and those of a small float differ by a shift and an offset of the
exponent, and a carry out of the rounded fraction increments the exponent as it should. Below,
adding a power of two whose last place is the small format's smallest number rounds by itself.
"""

from __future__ import annotations

from functools import cache

from lamina.dtypes import BY_NAME, DType, float8_e4m3fn, float32, float64, int32, int64
from lamina.ir.build import bitcast, cast, select
from lamina.ir.node import Node
from lamina.ir.ops import Op

_SIGN = -(1 << 31)
_MAGNITUDE = (1 << 31) - 1
_INFINITY = 0x7F800000
_NAN = 0x7FC00000


class _Format:
    """What the bits of a small float mean."""

    def __init__(self, dtype: DType) -> None:
        self.fraction = dtype.precision - 1  # in bits
        self.least = dtype.least
        strange = 1 if dtype is float8_e4m3fn else 1 << self.fraction  # the last are not finite
        self.first_strange = (1 << (dtype.bits - 1)) - strange  # infinity where there is one
        self.nan = self.first_strange | (1 << self.fraction >> 1)
        self.drop = 23 - self.fraction  # fraction bits that float32 has beyond this format
        # What separates the exponent fields, in place; 0 for bfloat16, which has float32's.
        self.offset = _power_bits(self.least - 1)
        # float32's bits of what would follow the largest number if the exponent had no end.
        self.beyond = (self.first_strange << self.drop) + self.offset
        # The power of two whose last place in float32 is this format's smallest number.
        self.magic = self.least + self.drop


_format = cache(_Format)


def _power_bits(exponent: int) -> int:
    """Of the float32 ``2.0**exponent``."""
    return (exponent + 127) << 23


def carrier(dtype: DType) -> DType:
    """The unsigned integer that holds the bits of `dtype`; other dtypes hold their own."""
    return BY_NAME[f"uint{dtype.bits}"] if dtype.is_small else dtype


def decode(bits: Node, dtype: DType) -> Node:
    """The float32 that `bits`, of the carrier's dtype, stand for."""
    form = _format(dtype)
    word = cast(bits, int32)
    if not form.offset:
        return bitcast(word << form.drop, float32)
    sign_bit = 1 << (dtype.bits - 1)
    body = word & (sign_bit - 1)
    sign = (word & sign_bit) << (32 - dtype.bits)
    normal = (body << form.drop) + form.offset
    strange = body > form.first_strange - 1
    normal = normal | select(strange, body.lift(_INFINITY), body.lift(0))
    step = 2.0 ** (form.least - form.fraction)
    subnormal = bitcast(cast(body, float32) * step, int32)
    is_subnormal = body < (1 << form.fraction)
    return bitcast(select(is_subnormal, subnormal, normal) | sign, float32)


def encode(value: Node, dtype: DType) -> Node:
    """The bits, of the carrier's dtype, of a float32 rounded to `dtype`."""
    form = _format(dtype)
    word = bitcast(value, int32)
    magnitude = word & _MAGNITUDE
    body = (_round_fraction(magnitude, form) + -form.offset) >> form.drop
    if form.offset:
        raised = bitcast(magnitude, float32) + 2.0**form.magic
        subnormal = bitcast(raised, int32) + -_power_bits(form.magic)
        body = select(magnitude < _power_bits(form.least), subnormal, body)
    body = select(magnitude > _INFINITY, body.lift(form.nan), body)
    sign = (word >> (32 - dtype.bits)) & (1 << (dtype.bits - 1))
    return cast(body | sign, carrier(dtype))


def rounded(value: Node, dtype: DType) -> Node:
    """A float32 rounded to what `dtype` can hold: ``decode(encode(value))``, cheaper."""
    form = _format(dtype)
    word = bitcast(value, int32)
    magnitude = word & _MAGNITUDE
    body = _round_fraction(magnitude, form) & -(1 << form.drop)
    if form.offset:
        above = body > form.beyond - (1 << form.drop)
        body = body | select(above, body.lift(_INFINITY), body.lift(0))
        subnormal = bitcast(magnitude, float32) + 2.0**form.magic + -(2.0**form.magic)
        body = select(magnitude < _power_bits(form.least), bitcast(subnormal, int32), body)
    body = select(magnitude > _INFINITY, body.lift(_NAN), body)
    return bitcast(body | (word & _SIGN), float32)


def _round_fraction(magnitude: Node, form: _Format) -> Node:
    """Add half of the last place that is kept, less one where that place is even. Numbers above
    the format's range are brought to the first beyond it, so that no exponent is too large."""
    if form.offset:
        magnitude = Node(Op.MIN, (magnitude, magnitude.lift(form.beyond)))
    odd = (magnitude >> form.drop) & 1
    return magnitude + odd + ((1 << (form.drop - 1)) - 1)


def narrowed(value: Node) -> Node:
    """A float64 as float32, rounded to odd, so that rounding once more rounds correctly.

    Boldo and Melquiond 2008, "Emulation of a FMA and correctly rounded sums: proved algorithms
    using rounding to odd", theorem 1.
    """
    near = cast(value, float32)
    back = cast(near, float64)
    inexact = ~back.eq(value)
    above = _magnitude64(back) > _magnitude64(value)
    word = bitcast(near, int32)
    word = word + select(above, word.lift(-1), word.lift(0))
    return bitcast(word | select(inexact, word.lift(1), word.lift(0)), float32)


def _magnitude64(value: Node) -> Node:
    return bitcast(value, int64) & ((1 << 63) - 1)
