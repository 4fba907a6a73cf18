"""Floats of 16 and 8 bits where a target has none: their bits travel as unsigned integers.

Kernels compute such values as float32 that holds a representable value exactly. `decode` makes
one of bits, `rounded` of any float32, `encode` goes back to bits; all three are a few integer
operations that vectorise. Rounding is to nearest, ties to even, with subnormals.

Where the exponent is that of a normal number, the bits of a float32 and those of a small float
differ by a shift and an offset of the exponent, and a carry out of the rounded fraction increments
the exponent as it should. Below, adding a power of two whose last place is the small format's
smallest number lets the addition itself round.
"""

from __future__ import annotations

import math
import struct
from typing import NamedTuple

from lamina.dtypes import (
    DType,
    Scalar,
    bfloat16,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    float64,
    int32,
    int64,
    uint8,
    uint16,
)  # fmt: skip
from lamina.ir.build import bitcast, cast, select
from lamina.ir.node import Node
from lamina.ir.ops import Op

_SIGN = -(1 << 31)
_MAGNITUDE = (1 << 31) - 1
_INFINITY = 0x7F800000
_NAN = 0x7FC00000
_FRACTION = 23  # bits of float32's
_BIAS = 127


class Format(NamedTuple):
    """Bits of the fraction, exponent of the least normal number, the largest finite number, and
    the bits that stand for infinity (None if nothing does) and for NaN."""

    fraction: int
    least: int
    largest: float
    infinity: int | None
    nan: int

    @property
    def drop(self) -> int:
        """Fraction bits that float32 has beyond this format."""
        return _FRACTION - self.fraction

    @property
    def offset(self) -> int:
        """What separates the exponent fields, in place."""
        return (_BIAS - 1 + self.least) << _FRACTION

    @property
    def beyond(self) -> float:
        """What would come after `largest` if the exponent had no end."""
        return self.largest + math.ulp(self.largest) * 2.0 ** (52 - self.fraction)

    @property
    def step(self) -> float:
        """The smallest positive number."""
        return 2.0 ** (self.least - self.fraction)

    @property
    def magic(self) -> float:
        """A number whose last place in float32 is `step`."""
        return self.step * 2.0**_FRACTION

    @property
    def has_subnormals_of_its_own(self) -> bool:
        """Is the least normal number above that of float32?"""
        return self.least > 1 - _BIAS


FORMATS: dict[DType, Format] = {
    float16: Format(10, -14, 65504.0, 0x7C00, 0x7E00),
    bfloat16: Format(7, -126, (2 - 2.0**-7) * 2.0**127, 0x7F80, 0x7FC0),
    float8_e5m2: Format(2, -14, 57344.0, 0x7C, 0x7E),
    float8_e4m3fn: Format(3, -6, 448.0, None, 0x7F),
}


def is_small(dtype: DType) -> bool:
    """Is `dtype` a float that travels as bits?"""
    return dtype in FORMATS


def carrier(dtype: DType) -> DType:
    """The unsigned integer that holds the bits of `dtype`; other dtypes hold their own."""
    return dtype if dtype not in FORMATS else uint8 if dtype.bits == 8 else uint16


def holds(dtype: DType, source: DType) -> bool:
    """Has the small `dtype` every value of `source`?"""
    if source.kind == "bool" or source is dtype:
        return True
    if source not in FORMATS:
        return False
    wide, narrow = FORMATS[dtype], FORMATS[source]
    infinite = wide.infinity is not None or narrow.infinity is None
    covers = wide.largest >= narrow.largest and wide.step <= narrow.step
    return infinite and covers and wide.fraction >= narrow.fraction


def decode(bits: Node, dtype: DType) -> Node:
    """The float32 that `bits`, of the carrier's dtype, stand for."""
    form = FORMATS[dtype]
    word = cast(bits, int32)
    if not form.has_subnormals_of_its_own:
        return bitcast(word << form.drop, float32)
    sign_bit = 1 << (dtype.bits - 1)
    body = word & (sign_bit - 1)
    sign = (word & sign_bit) << (32 - dtype.bits)
    shifted = (body << form.drop) + form.offset
    if form.infinity is None:
        normal = select(body.eq(form.nan), body.lift(_NAN), shifted)
    else:
        special = body > body.lift(form.infinity - 1)
        normal = shifted + select(special, body.lift(form.offset), body.lift(0))
    subnormal = bitcast(cast(body, float32) * form.step, int32)
    is_subnormal = body < (1 << form.fraction)
    return bitcast(select(is_subnormal, subnormal, normal) | sign, float32)


def encode(value: Node, dtype: DType) -> Node:
    """The bits, of the carrier's dtype, of a float32 rounded to `dtype`."""
    form = FORMATS[dtype]
    word = bitcast(value, int32)
    magnitude = word & _MAGNITUDE
    body = (_round_fraction(magnitude, form) + -form.offset) >> form.drop
    if form.has_subnormals_of_its_own:
        subnormal = bitcast(_shifted_up(magnitude, form), int32) + -_bits(form.magic)
        body = select(_is_subnormal(magnitude, form), subnormal, body)
    if form.infinity is not None:
        body = select(magnitude > magnitude.lift(_INFINITY), body.lift(form.nan), body)
    sign = (word >> (32 - dtype.bits)) & (1 << (dtype.bits - 1))
    return cast(body | sign, carrier(dtype))


def rounded(value: Node, dtype: DType) -> Node:
    """A float32 rounded to what `dtype` can hold: ``decode(encode(value))``, cheaper."""
    form = FORMATS[dtype]
    word = bitcast(value, int32)
    magnitude = word & _MAGNITUDE
    body = _round_fraction(magnitude, form) & -(1 << form.drop)
    if form.has_subnormals_of_its_own:
        above = body > body.lift(_bits(form.largest))
        body = select(above, body.lift(_NAN if form.infinity is None else _INFINITY), body)
        subnormal = bitcast(_shifted_up(magnitude, form) + -form.magic, int32)
        body = select(_is_subnormal(magnitude, form), subnormal, body)
    if form.infinity is not None:
        body = select(magnitude > magnitude.lift(_INFINITY), body.lift(_NAN), body)
    return bitcast(body | (word & _SIGN), float32)


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


def round_scalar(value: Scalar, dtype: DType) -> float:
    """A Python number rounded to what the small `dtype` can hold."""
    form = FORMATS[dtype]
    number = float(value)  # type: ignore[arg-type]
    if math.isfinite(number) and number:
        exponent = max(math.frexp(number)[1] - 1, form.least) - form.fraction
        whole = math.ldexp(round(math.ldexp(abs(number), -exponent)), exponent)
        number = math.copysign(math.inf if whole > form.largest else whole, number)
    return math.nan if math.isinf(number) and form.infinity is None else number


def scalar_bits(value: Scalar, dtype: DType) -> int:
    """The bits of a Python number rounded to the small `dtype`."""
    form, number = FORMATS[dtype], round_scalar(value, dtype)
    sign = 1 << (dtype.bits - 1) if math.copysign(1.0, number) < 0 else 0
    if math.isnan(number):
        return form.nan
    if math.isinf(number) and form.infinity is not None:
        return sign | form.infinity
    if abs(number) < 2.0**form.least:
        return sign | int(abs(number) / form.step)
    return sign | (_bits(abs(number)) - form.offset) >> form.drop


def _bits(number: float) -> int:
    return int(struct.unpack("<i", struct.pack("<f", number))[0])


def _round_fraction(magnitude: Node, form: Format) -> Node:
    """Add half of the last place that is kept, less one where that place is even. Numbers above
    the format's range are brought to the first beyond it, so that no exponent is too large."""
    if form.has_subnormals_of_its_own:
        magnitude = Node(Op.MIN, (magnitude, magnitude.lift(_bits(form.beyond))))
    odd = (magnitude >> form.drop) & 1
    return magnitude + odd + ((1 << (form.drop - 1)) - 1)


def _shifted_up(magnitude: Node, form: Format) -> Node:
    return bitcast(magnitude, float32) + form.magic


def _is_subnormal(magnitude: Node, form: Format) -> Node:
    return magnitude < _bits(2.0**form.least)


def _magnitude64(value: Node) -> Node:
    return bitcast(value, int64) & ((1 << 63) - 1)
