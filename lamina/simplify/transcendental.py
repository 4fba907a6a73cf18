"""Transcendental functions as graphs of elementary operations, for targets that lack them.

A vector instruction set has no exp. Written in additions, multiplications, bit operations and
selections, a function vectorises wherever those do. Everything is float32, except for the argument
reduction of SIN and COS, which uses float64 and 64-bit integers where float32 has too few bits.
Special values are IEEE 754's, subnormals included; `MAX_ULP` bounds the error.

A compiler may contract ``a * b + c`` or not, but must not reorder sums. No expansion relies on
shifts by variable amounts, on casts out of range, or on signed overflow.

The polynomials, listed from the constant term upwards, are minimax fits: a linear program
minimises the largest error, relative to the function, over Chebyshev points of the interval.
Coefficients are rounded one at a time from the lowest, the others being fitted again after each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, nan

from lamina.dtypes import DType, bfloat16, float16, float32, float64, int32, int64, uint32, uint64
from lamina.ir.build import bitcast, cast, full, select
from lamina.ir.node import Node
from lamina.ir.ops import Op

MAX_ULP: dict[Op, float] = {
    Op.EXP: 1.2, Op.EXP2: 1.2, Op.LOG: 1.0, Op.LOG2: 1.5, Op.SIN: 1.75, Op.COS: 1.75,
    Op.ATAN: 1.5, Op.ERF: 1.75,
}  # fmt: skip
"""Largest distance of a float32 result from the exact value, in units of its last place: measured
over all of float32, with a margin for other choices of what to fuse."""


def expand(node: Node) -> Node:
    """`node` in elementary operations, of the same shape and dtype; float16 and bfloat16 are
    computed in float32. What has no expansion is returned as it is, all float64 for one."""
    if node.op not in EXPANSIONS or node.dtype not in (float16, bfloat16, float32):
        return node
    return cast(EXPANSIONS[node.op](cast(node.src[0], float32)), node.dtype)


def _polynomial(x: Node, coefficients: Sequence[float]) -> Node:
    """Horner's rule; the constant term comes first."""
    *rest, highest = coefficients
    total = x.lift(highest)
    for coefficient in reversed(rest):
        total = total * x + coefficient
    return total


# Exponentials are 2**n times a polynomial of the remainder.
# Adding 1.5 * 2**23 rounds to an integer and leaves it in the low bits. With 2 * 127 on top, one
# half of those bits and the rest of them are the biased exponents of two factors of 2**n.
_ROUND = 12582912.0 + 254.0
_LOG2_E = 1.4426950408889634
_LN2_HIGH = 0.693145751953125  # 15 bits: exact times any n
_LN2_LOW = 1.42860682030941723e-6
_EXP = (0.49999994, 0.16666517, 0.04166828, 0.008369248, 0.0013820746)  # (e**r - 1 - r) / r**2
_EXP2 = (0.6931472, 0.24022648, 0.055503596, 0.009618506, 0.0013391024, 0.00015326796)


def _clamped(x: Node, low: float, high: float) -> Node:
    """`x` between two bounds; NaN stays."""
    x = select(x < low, x.lift(low), x)
    return select(x > high, x.lift(high), x)


def _scaled(value: Node, shifted: Node) -> Node:
    """`value` times 2**n, where `shifted` is n + _ROUND and -150 <= n <= 128; in two steps, since
    2**n itself may overflow or underflow where the product does not."""
    bits = bitcast(shifted, uint32)
    half = bits >> 1
    rest = bits - half
    return value * bitcast(half << 23, float32) * bitcast(rest << 23, float32)


def _exp(x: Node) -> Node:
    """Reduction by multiples of ln 2 in two parts (Cody and Waite)."""
    x = _clamped(x, -104.0, 89.0)
    shifted = x * _LOG2_E + _ROUND
    n = shifted + -_ROUND
    r = x + n * -_LN2_HIGH + n * -_LN2_LOW
    return _scaled(r * r * _polynomial(r, _EXP) + r + 1.0, shifted)


def _exp2(x: Node) -> Node:
    x = _clamped(x, -150.0, 128.0)
    shifted = x + _ROUND
    r = x - (shifted + -_ROUND)
    return _scaled(r * _polynomial(r, _EXP2) + 1.0, shifted)


# Logarithms are the exponent plus a polynomial of the mantissa around 1.
_SQRT_HALF_BITS = 0x3F3504F3
_LOG = (0.33333313, -0.2500001, 0.20002073, -0.16667992, 0.14220312, -0.12406119, 0.11883859,
        -0.11671118, 0.06749812)  # fmt: skip
_LOG2 = (0.44269505, -0.7213475, 0.4808965, -0.3606826, 0.28861883, -0.23995101, 0.20415494,
         -0.18826424, 0.18688554, -0.116394795)  # fmt: skip


def _split(x: Node) -> tuple[Node, Node]:
    """(n, f) with x = 2**n * (1 + f) for finite x > 0, and 1 + f between sqrt(1/2) and sqrt(2)."""
    tiny = x < 2.0**-126
    bits = bitcast(select(tiny, x * 2.0**23, x), uint32) + -_SQRT_HALF_BITS
    exponent = cast(bitcast(bits, int32) >> 23, float32) + select(tiny, x.lift(-23.0), x.lift(0.0))
    mantissa = bitcast((bits & 0x7FFFFF) + _SQRT_HALF_BITS, float32)
    return exponent, mantissa + -1.0


def _with_poles(x: Node, logarithm: Node) -> Node:
    """`logarithm`, right for finite x > 0, with its values at 0, below 0, at inf and NaN."""
    outside = select(x.eq(0.0), x.lift(-inf), x.lift(nan))
    return select(x > 0.0, select(x < inf, logarithm, x), outside)


def _log(x: Node) -> Node:
    n, f = _split(x)
    square = f * f
    tail = square * f * _polynomial(f, _LOG) + square * -0.5
    return _with_poles(x, tail + n * _LN2_LOW + f + n * _LN2_HIGH)


def _log2(x: Node) -> Node:
    n, f = _split(x)
    return _with_poles(x, f * _polynomial(f, _LOG2) + f + n)


_SIN = (-0.16666651, 0.008331925, -0.00019484147)  # (sin r / r - 1) / r**2, in powers of r**2
_COS = (0.04166664, -0.0013887112, 2.4408575e-05)  # (cos r - 1 + r**2 / 2) / r**4
_QUADRANT = 8.515303950216386e-20  # pi / 2 * 2**-64
# |x| below a limit is an integer of at most 56 bits after multiplication by a scale 2**k. The
# digits of 2**(64 - k) / (2 pi) above 2**64 make whole turns of it; the next 64 are an integer
# here, and four times those after the point a float64.
_BANDS = (
    (2.0**32, 2.0**24, 0x28BE60DB93, 2.265947937069853),
    (2.0**65, 2.0**-9, 0x7CC1B727220A94FE, 0.3073675582215696),
    (2.0**98, 2.0**-42, 0x441529FC2757D1F5, 0.8260347502167292),
    (inf, 2.0**-75, 0x4EAFA3EA69BB81B6, 3.080761544898003),
)


def _by_band(magnitude: Node, values: Sequence[float], dtype: DType) -> Node:
    """The entry of `values` for the band of _BANDS that `magnitude` lies in."""
    chosen = full(magnitude.shape, values[-1], dtype)
    for (limit, *_), value in reversed(list(zip(_BANDS, values, strict=True))[:-1]):
        chosen = select(magnitude < limit, full(magnitude.shape, value, dtype), chosen)
    return chosen


def _reduced(x: Node) -> tuple[Node, Node]:
    """(quadrant, r) with ``|x| = quadrant * pi/2 + r`` up to whole turns and abs(r) < 0.82, by
    multiplying exactly by the digits of 1 / (2 pi) that matter (Payne and Hanek): the product with
    the leading 64 of them is an integer, whose overflow drops whole turns."""
    magnitude = bitcast(bitcast(x, uint32) & 0x7FFFFFFF, float32)
    finite = magnitude < inf
    safe = select(finite, magnitude, x.lift(0.0))
    _, scales, integers, fractions = zip(*_BANDS, strict=True)
    scaled = cast(safe * _by_band(safe, scales, float32), float64)
    turns = bitcast(cast(scaled, int64), uint64) * _by_band(safe, integers, uint64)
    quadrant = cast((turns + (1 << 61)) >> 62, uint32)
    angle = cast(bitcast(turns << 2, int64), float64) + scaled * _by_band(safe, fractions, float64)
    small = magnitude < 0.5
    r = select(finite, cast(angle * _QUADRANT, float32), x.lift(nan))
    return select(small, quadrant.lift(0), quadrant), select(small, magnitude, r)


def _wave(quadrant: Node, r: Node, sign: Node) -> Node:
    """Sine of ``quadrant * pi/2 + r``, its sign bit changed by `sign`."""
    square = r * r
    sine = r * square * _polynomial(square, _SIN) + r
    cosine = square * square * _polynomial(square, _COS) + (square * -0.5 + 1.0)
    value = select((quadrant & 1).eq(0), sine, cosine)
    return bitcast(bitcast(value, uint32) ^ ((quadrant & 2) << 30) ^ sign, float32)


def _sin(x: Node) -> Node:
    quadrant, r = _reduced(x)
    return _wave(quadrant, r, bitcast(x, uint32) & 0x80000000)


def _cos(x: Node) -> Node:
    quadrant, r = _reduced(x)
    return _wave(quadrant + 1, r, quadrant.lift(0))


_ATAN = (-0.333333, 0.1999853, -0.14264016, 0.109508805, -0.08399305, 0.057881273, -0.031096688,
         0.010868369, -0.0017827011)  # fmt: skip
_HALF_PI = 1.57079637
_HALF_PI_REST = -4.37113883e-08
# erf(x) / x - 1 in powers of x**2, below 1
_ERF_SMALL = (0.12837917, -0.37612626, 0.11283579, -0.026853347, 0.005187162, -0.0007997853,
              7.806904e-05)  # fmt: skip
_ERF_CENTRE = 2.375
# erf(x) in powers of x - 2.375, from 1 to 3.84; from there on it rounds to 1
_ERF_LARGE = (0.9992171, 0.0040065073, -0.009516574, 0.013729464, -0.013123842, 0.008362362,
              -0.003142305, 0.00011576943, 0.00063502893, -0.00033491533, 2.3902756e-05,
              3.484488e-05, -9.179982e-06)  # fmt: skip


def _odd(function: Callable[[Node], Node]) -> Callable[[Node], Node]:
    """`function` of the magnitude of its argument, with the sign of the argument."""

    def expansion(x: Node) -> Node:
        bits = bitcast(x, uint32)
        sign = bits & 0x80000000
        value = function(bitcast(bits ^ sign, float32))
        return bitcast(bitcast(value, uint32) | sign, float32)

    return expansion


@_odd
def _atan(x: Node) -> Node:
    """Above 1 it is pi/2 less the angle of the reciprocal."""
    large = x > 1.0
    z = select(large, -1.0 / x, x)
    square = z * z
    rest = z * square * _polynomial(square, _ATAN)
    return select(large, rest + _HALF_PI_REST + z + _HALF_PI, rest + z)


@_odd
def _erf(x: Node) -> Node:
    small = x * _polynomial(x * x, _ERF_SMALL) + x
    large = _polynomial(x + -_ERF_CENTRE, _ERF_LARGE)
    return select(x < 1.0, small, select(x > 3.84, x.lift(1.0), large))


EXPANSIONS: dict[Op, Callable[[Node], Node]] = {
    Op.EXP: _exp, Op.EXP2: _exp2, Op.LOG: _log, Op.LOG2: _log2, Op.SIN: _sin, Op.COS: _cos,
    Op.ATAN: _atan, Op.ERF: _erf,
}  # fmt: skip
