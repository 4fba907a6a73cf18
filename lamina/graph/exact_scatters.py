"""Scatters that add float32 by sums of integers, which are the same in any order.

A scatter adds at each place in the order of the updates, so that a result is the same in each run.
Many threads add at once where the order makes no difference, as that of integers does not:

    top    = the largest exponent of the updates of a place
    total  = the sum of round(update * 2**(BITS - top)), of int64
    result = base + total * 2**(top - BITS), where there is an update

The updates of a place have one scale, by which the largest of them has as many bits as int64 has
room for, beside those that a sum of all updates needs. Sums of 2**20 updates have a last bit of
2**-40 of the largest one, where float32 has 2**-23: most updates are added exactly, and each result
is rounded to float32 once.

Updates that were float16 are multiples of 2**-24 below 2**16: with 40 bits each of them is added
exactly by the same exponent at all places, so that none has to be found. The sums are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nan

from lamina.core.dtypes import float16, float32, float64, int32, int64
from lamina.ir import build
from lamina.ir.monoids import ADD, MAX
from lamina.ir.node import Node, peel
from lamina.ir.ops import Group, Op, Scatter

MANTISSA = 23  # bits of a float32 below its exponent
NOT_FINITE = 255  # the exponent of infinities and of what is no number
LOWEST = 126  # |x| < 2**(exponent - 126), as 1.0 has the exponent 127
WIDE_MANTISSA, WIDE_BIAS = 52, 1023  # of float64, whose 1.0 has the exponent 1023
# 1.5 * 2**52, and its bits: a float64 below 2**51 added to it is rounded to a whole number, and the
# bits grow by that number.
ROUNDER, ROUNDER_BITS = 1.5 * 2.0**WIDE_MANTISSA, 0x4338000000000000
# Updates that are not finite are counted: those that are +inf from bit 0 on, those that are -inf
# from bit 31 on, and what is no number as both, as the sum of both is none.
COUNT_BITS = 31
SUM_BITS = 62  # of a sum: int64 without its sign and one more, which rounding may take
MIN_BITS = 32  # of the largest update of a place: fewer would not hold much more than a float32
# Of float16: finite ones are multiples of 2**-24 below 2**16.
HALF_BITS, HALF_TOP = 40, LOWEST + 16


@dataclass(frozen=True)
class Scale:
    """The integers that stand for updates of float32.

    bits: of the largest one. top: the exponent of that at all places, whose marks of 4 bits say
    which have an update, and which one that is not finite; 0 where each place has its own exponent,
    of int32
    """

    bits: int
    top: int = 0

    @property
    def passes(self) -> int:
        """How often updates are gone through."""
        return 1 if self.top else 2

    @property
    def itemsize(self) -> float:
        """The bytes of a sum with its exponent or its mark."""
        return 8.5 if self.top else 12

    def nbytes(self, results: int) -> int:
        """The bytes of so many sums, whose marks fill words of 8."""
        return 8 * results + (4 * -(-results // 8) if self.top else 4 * results)


def scale_of(updates: Node, count: int) -> Scale | None:
    """The integers for `updates` of float32, so many of a place at most; None where a sum of int64
    holds too few bits of each."""
    bits = update_bits(count)
    source = peel(updates, Group.MOVEMENT - {Op.PAD})
    was_half = source.op is Op.CAST and source.src[0].dtype is float16
    if was_half and bits >= HALF_BITS:
        return Scale(HALF_BITS, HALF_TOP)
    return Scale(bits) if bits >= MIN_BITS else None


def update_bits(updates: int) -> int:
    """How many bits the largest of so many updates of a place may have: 41 of 2**20 updates."""
    return min(SUM_BITS - updates.bit_length(), WIDE_MANTISSA - 1)


def scatter_of_integers(node: Node) -> Node | None:
    """A scatter that adds float32 as two of integers; None for any other node, and where a place
    may have so many updates that a sum of int64 holds too few bits of each."""
    base, index, updates = node.src
    axis, monoid = node.arg
    bits = update_bits(updates.shape[axis])
    if monoid is not ADD or node.dtype is not float32 or bits < MIN_BITS:
        return None
    exponents = _exponents(updates)
    lowest, zeros = build.full(base.shape, 0, int32), build.full(base.shape, 0, int64)
    top = Node(Op.SCATTER, (lowest, index, exponents), Scatter(axis, MAX))
    scaled = _scaled(updates, Node(Op.GATHER, (top, index), axis), bits)
    total = Node(Op.SCATTER, (zeros, index, scaled), Scatter(axis, ADD))
    results = build.cast(build.cast(base, float64) + _sums(total, top, bits), float32)
    return top.eq(0).select(base, results)  # without an update -0.0 stays what it is


def _exponents(x: Node) -> Node:
    """The exponents of float32, as int32; 1 for 0 and what is below 2**-126."""
    exponents = (build.bitcast(x, int32) >> MANTISSA) & NOT_FINITE
    return Node(Op.MAX, (exponents, exponents.lift(1)))


def _scaled(updates: Node, top: Node, bits: int) -> Node:
    """Each update as an integer of up to `bits` bits, by the largest exponent `top` of its place;
    where that is NOT_FINITE, as what is counted."""
    factors = _power_of_two(LOWEST + bits - top)
    rounded = build.cast(updates, float64) * factors + ROUNDER
    whole = build.bitcast(rounded, int64) - ROUNDER_BITS
    # What is no number is neither below infinity nor above minus infinity.
    up = ~(updates < inf)
    down = ~(updates > -inf)
    counted = build.cast(up, int64) + build.cast(down, int64) * (1 << COUNT_BITS)
    return (top < NOT_FINITE).select(whole, counted)


def _sums(total: Node, top: Node, bits: int) -> Node:
    """The sums as float64, from their integers; where something is counted, infinity, its negative,
    or no number."""
    finite = build.cast(total, float64) * _power_of_two(top - (LOWEST + bits))
    up = (total & ((1 << COUNT_BITS) - 1)) > 0
    down = (total >> COUNT_BITS) > 0
    infinity = up.select(finite.lift(inf), finite.lift(-inf))
    counted = (up & down).select(finite.lift(nan), infinity)
    return (top < NOT_FINITE).select(finite, counted)


def _power_of_two(exponents: Node) -> Node:
    """``2.0**exponents`` as float64, by its bits."""
    biased = build.cast(exponents + WIDE_BIAS, int64)
    return build.bitcast(biased << WIDE_MANTISSA, float64)
