"""Floats of 16 and 8 bits where a target has none: their bits travel as unsigned integers.

Kernels compute such values as float32 that holds them exactly. `decode` makes one of bits,
`rounded` of any float32, `encode` goes back to bits: each a few integer operations that vectorise.
Rounding is to nearest, ties to even, with subnormals.

The bits of a normal float32 and those of a small float differ by a shift and an offset of the
exponent, and a carry out of the rounded fraction increments the exponent as it should. Below,
adding a power of two whose last place is the small format's smallest number rounds by itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from lamina import dtypes
from lamina.dtypes import DType, Scalar, float32, float64, int32, int64
from lamina.ir.build import bitcast, cast, select
from lamina.ir.node import Node
from lamina.ir.ops import Op

_SIGN = -(1 << 31)
_MAGNITUDE = (1 << 31) - 1
_INFINITY = 0x7F800000
_NAN = 0x7FC00000


class _Format(NamedTuple):
    fraction: int  # in bits
    least: int  # exponent of the least normal number
    infinity: int | None  # its bits, if anything stands for it
    nan: int

    @property
    def drop(self) -> int:
        """Fraction bits that float32 has beyond this format."""
        return 23 - self.fraction

    @property
    def offset(self) -> int:
        """What separates the exponent fields, in place; 0 for bfloat16, which has float32's."""
        return _power_bits(self.least - 1)

    @property
    def beyond(self) -> int:
        """float32's bits of what would follow the largest number if the exponent had no end."""
        first = self.nan if self.infinity is None else self.infinity
        return (first << self.drop) + self.offset

    @property
    def magic(self) -> int:
        """The power of two whose last place in float32 is this format's smallest number."""
        return self.least + self.drop


_FORMATS: dict[DType, _Format] = {
    dtypes.float16: _Format(10, -14, 0x7C00, 0x7E00),
    dtypes.bfloat16: _Format(7, -126, 0x7F80, 0x7FC0),
    dtypes.float8_e5m2: _Format(2, -14, 0x7C, 0x7E),
    dtypes.float8_e4m3fn: _Format(3, -6, None, 0x7F),
}


def _power_bits(exponent: int) -> int:
    """Of the float32 ``2.0**exponent``."""
    return (exponent + 127) << 23


def is_small(dtype: DType) -> bool:
    """Is `dtype` a float that travels as bits?"""
    return dtype in _FORMATS


def carrier(dtype: DType) -> DType:
    """The unsigned integer that holds the bits of `dtype`; other dtypes hold their own."""
    return dtypes.BY_NAME[f"uint{dtype.bits}"] if is_small(dtype) else dtype


def decode(bits: Node, dtype: DType) -> Node:
    """The float32 that `bits`, of the carrier's dtype, stand for."""
    form = _FORMATS[dtype]
    word = cast(bits, int32)
    if not form.offset:
        return bitcast(word << form.drop, float32)
    sign_bit = 1 << (dtype.bits - 1)
    body = word & (sign_bit - 1)
    sign = (word & sign_bit) << (32 - dtype.bits)
    normal = (body << form.drop) + form.offset
    if form.infinity is None:
        normal = select(body.eq(form.nan), body.lift(_NAN), normal)
    else:
        special = body > form.infinity - 1
        normal = normal + select(special, body.lift(form.offset), body.lift(0))
    step = 2.0 ** (form.least - form.fraction)
    subnormal = bitcast(cast(body, float32) * step, int32)
    is_subnormal = body < (1 << form.fraction)
    return bitcast(select(is_subnormal, subnormal, normal) | sign, float32)


def encode(value: Node, dtype: DType) -> Node:
    """The bits, of the carrier's dtype, of a float32 rounded to `dtype`."""
    form = _FORMATS[dtype]
    word = bitcast(value, int32)
    magnitude = word & _MAGNITUDE
    body = (_round_fraction(magnitude, form) + -form.offset) >> form.drop
    if form.offset:
        raised = bitcast(magnitude, float32) + 2.0**form.magic
        subnormal = bitcast(raised, int32) + -_power_bits(form.magic)
        body = select(magnitude < _power_bits(form.least), subnormal, body)
    if form.infinity is not None:
        body = select(magnitude > _INFINITY, body.lift(form.nan), body)
    sign = (word >> (32 - dtype.bits)) & (1 << (dtype.bits - 1))
    return cast(body | sign, carrier(dtype))


def rounded(value: Node, dtype: DType) -> Node:
    """A float32 rounded to what `dtype` can hold: ``decode(encode(value))``, cheaper."""
    form = _FORMATS[dtype]
    word = bitcast(value, int32)
    magnitude = word & _MAGNITUDE
    body = _round_fraction(magnitude, form) & -(1 << form.drop)
    if form.offset:
        above = body > form.beyond - (1 << form.drop)
        body = select(above, body.lift(_NAN if form.infinity is None else _INFINITY), body)
        subnormal = bitcast(magnitude, float32) + 2.0**form.magic + -(2.0**form.magic)
        body = select(magnitude < _power_bits(form.least), bitcast(subnormal, int32), body)
    if form.infinity is not None:
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


def rounded_scalar(value: Scalar, dtype: DType) -> tuple[float, int]:
    """A Python number rounded to the small `dtype`, and the bits of that."""
    import numpy

    with numpy.errstate(all="ignore"):
        number: Any = numpy.array(value, dtype.numpy)
    return float(number), int(number.view(carrier(dtype).numpy))
