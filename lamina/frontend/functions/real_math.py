"""Real functions that are not operations of the graph, built from those that are.

Each rule takes and returns nodes of one float dtype. Branches that are not taken get harmless
inputs, so that their derivatives stay finite as well.
"""

import math
from collections.abc import Callable

from lamina.core import dtypes
from lamina.ir.build import bitcast, select, unary
from lamina.ir.node import Node
from lamina.ir.ops import Op


def is_nan(x: Node) -> Node:
    return ~x.eq(x)


def is_finite(x: Node) -> Node:
    return (x < math.inf) & (x > -math.inf)


def is_inf(x: Node) -> Node:
    return x.eq(math.inf) | x.eq(-math.inf)


def bits(x: Node) -> Node:
    """The bits of x as a signed integer."""
    return bitcast(x, dtypes.BY_NAME[f"int{x.dtype.bits}"])


def signbit(x: Node) -> Node:
    """Where the sign bit is set, -0.0 and NaN included."""
    return bits(x) < 0


def with_sign(x: Node, sign: Node) -> Node:
    """|x| with the sign of another number; the slope is 1 or -1, also where x is 0."""
    return select(signbit(x) ^ signbit(sign), -x, x)


def copysign(x: Node, sign: Node) -> Node:
    """|x| with the sign of another number; the slope at 0, where |x| has none, is 0."""
    value = with_sign(x, sign)
    return Node(Op.CUSTOM_DERIVATIVE, (value, select(x.eq(0), x.lift(0), value)))


def absolute(x: Node) -> Node:
    """|x|, whose derivative at 0 is 0."""
    return select(x < 0, -x, select(x.eq(0), x.lift(0), x))


def sign(x: Node) -> Node:
    """-1, 0 or 1; NaN stays."""
    some = select(x < 0, x.lift(-1), select(x > 0, x.lift(1), x))
    return select(x.eq(0), x.lift(0), some)


def floor(x: Node) -> Node:
    whole = unary(Op.TRUNC, x)
    return select(whole > x, whole - 1, whole)


def round_even(x: Node) -> Node:
    """The nearest integer, halves to the even one."""
    low = floor(x)
    rest = x - low
    half = low * 0.5
    up = (rest > 0.5) | (rest.eq(0.5) & ~half.eq(unary(Op.TRUNC, half)))
    return with_sign(select(up, low + 1, low), x)


def expm1(x: Node) -> Node:
    """exp(x) - 1: a Taylor polynomial where the difference would cancel."""
    small = absolute(x) < 0.35
    safe = select(small, x, x.lift(0))
    terms = 13 if x.dtype is dtypes.float64 else 8
    series = x.lift(1 / math.factorial(terms))
    for n in range(terms - 1, 0, -1):
        series = series * safe + 1 / math.factorial(n)
    return select(small, series * safe, unary(Op.EXP, x) - 1)


def log1p(x: Node) -> Node:
    """log(1 + x), corrected for what the sum 1 + x lost."""
    total = x + 1
    of_total = unary(Op.LOG, total)
    usable = (total > 0) & (total < math.inf)
    lost = (total - 1) - x
    exact = select(usable, of_total - lost / total, of_total)
    return Node(Op.CUSTOM_DERIVATIVE, (select(x.eq(0), x, exact), of_total))


def _odd(of_size: Callable[[Node], Node]) -> Callable[[Node], Node]:
    """An odd function, from what it is of |x|; zeros keep their sign, and all derivatives."""

    def rule(x: Node) -> Node:
        value = of_size(select(x < 0, -x, x))
        signed = select(x < 0, -value, value)
        return Node(Op.CUSTOM_DERIVATIVE, (select(x.eq(0), x, signed), signed))

    return rule


@_odd
def sinh(size: Node) -> Node:
    low = size < 20.0
    inner = expm1(select(low, size, size.lift(1)))
    half = unary(Op.EXP, select(low, size.lift(0), size * 0.5))
    return select(low, (inner + inner / (inner + 1)) * 0.5, half * 0.5 * half)


def cosh(x: Node) -> Node:
    """The root of exp(|x|) keeps it from overflowing early; at 0 the slope is that of x >= 0."""
    root = unary(Op.EXP, select(x < 0, -x, x) * 0.5)
    return root * 0.5 * root + 0.5 / root / root


@_odd
def asinh(size: Node) -> Node:
    """The logarithm of ``2 |x|`` where |x| is so large that it is the same."""
    low = size < (2.0**28 if size.dtype is dtypes.float64 else 2.0**12)
    near = select(low, size, size.lift(1))
    small = log1p(near + near * near / (unary(Op.SQRT, near * near + 1) + 1))
    large = unary(Op.LOG, select(low, size.lift(1), size)) + math.log(2)
    return select(low, small, large)


@_odd
def _odd_acosh(size: Node) -> Node:
    """acosh of |x| with the sign of x; ``log(2 |x|)`` where |x| is so large that it is the same."""
    far = size > (2.0**28 if size.dtype is dtypes.float64 else 2.0**12)
    near = select(far, size.lift(2), size)
    small = asinh(unary(Op.SQRT, near - 1) * unary(Op.SQRT, near + 1))
    large = unary(Op.LOG, select(far, size, size.lift(1))) + math.log(2)
    return select(far, large, small)


def acosh(x: Node) -> Node:
    """NaN below 1. The slope is ``1 / sqrt(x**2 - 1)`` wherever that exists, below -1 as well, as
    in PyTorch and JAX: the odd function has this slope on both sides."""
    odd = _odd_acosh(x)
    return Node(Op.CUSTOM_DERIVATIVE, (select(x < 1, x.lift(math.nan), odd), odd))


@_odd
def atanh(size: Node) -> Node:
    """Half of ``log((1 + x) / (1 - x))``, as one log1p; the slope, ``1 / (1 - x**2)``, is that of a
    difference of logarithms, which is infinite at 1, where a ratio would have NaN."""
    value = log1p(size * 2 / (1 - size)) * 0.5
    difference = (unary(Op.LOG, size + 1) - unary(Op.LOG, 1 - size)) * 0.5
    return Node(Op.CUSTOM_DERIVATIVE, (value, difference))


def asin(x: Node) -> Node:
    """Twice the arctangent of ``x / (sqrt(1 - x**2) + 1)``; in ``(1 - x) * (1 + x)`` nothing
    cancels. The slope is that of two roots, as the root of a product has none where it is 0."""
    height = unary(Op.SQRT, (1 - x) * (x + 1))
    angle = unary(Op.ATAN, x / (height + 1)) * 2
    return Node(Op.CUSTOM_DERIVATIVE, (angle, _asin_by_two_roots(x)))


def acos(x: Node) -> Node:
    """Twice the arctangent of ``sqrt((1 - x) / (1 + x))``, which is infinite at -1, where the angle
    is pi; so the slope is that of the arcsine, whose ratio is never infinite."""
    angle = unary(Op.ATAN, unary(Op.SQRT, (1 - x) / (x + 1))) * 2
    return Node(Op.CUSTOM_DERIVATIVE, (angle, -_asin_by_two_roots(x)))


def _asin_by_two_roots(x: Node) -> Node:
    height = unary(Op.SQRT, 1 - x) * unary(Op.SQRT, x + 1)
    return unary(Op.ATAN, x / (height + 1)) * 2


def tan(x: Node) -> Node:
    return unary(Op.SIN, x) / unary(Op.COS, x)


def atan2(y: Node, x: Node) -> Node:
    """The angle of the point (x, y), signs of zeros and infinities included. Sign bits mirror the
    coordinates, and ratios stay below 1: both keep the derivatives on the axes."""
    up, right = select(signbit(y), -y, y), select(signbit(x), -x, x)
    steep = up > right
    same = up.eq(right) & (up.eq(0) | up.eq(math.inf))
    low, high = select(steep, right, up), select(steep, up, right)
    level = select(up.eq(0), x.lift(0), x.lift(1))
    angle = unary(Op.ATAN, select(same, level, low) / select(same, x.lift(1), high))
    angle = select(steep, math.pi / 2 - angle, angle)
    angle = select(signbit(x) & ~is_nan(x), math.pi - angle, angle)
    return select(signbit(y), -angle, angle)


def root(x: Node, order: float = 2.0) -> Node:
    """The root of a sum of powers. Its slope is infinite at 0, where no term has one: 0 there."""
    none = x.eq(0)
    safe = select(none, x.lift(1), x)
    power = unary(Op.SQRT, safe) if order == 2 else Node(Op.POW, (safe, x.lift(1 / order)))
    return select(none, x.lift(0), power)


def hypot(x: Node, y: Node) -> Node:
    """sqrt(x*x + y*y) without overflow: the scale, which cancels, needs no derivative."""
    high = unary(Op.DETACH, Node(Op.MAX, (absolute(x), absolute(y))))
    plain = (high > 0) & (high < math.inf)
    scale = select(plain, high, x.lift(1))
    a, b = x / scale, y / scale
    value = select(plain, unary(Op.SQRT, a * a + b * b) * scale, high)
    return select(is_inf(x) | is_inf(y), x.lift(math.inf), value)


def logaddexp(x: Node, y: Node) -> Node:
    """log(exp(x) + exp(y)) without overflow."""
    endless = x.eq(y) & is_inf(x)
    gap = select(endless, x.lift(0), x - select(endless, x.lift(0), y))
    return select(x < y, y, x) + log1p(unary(Op.EXP, select(gap < 0, gap, -gap)))


def nextafter(x: Node, y: Node) -> Node:
    """The next representable number from x towards y; the slope is 1 in x where it moves, and 0
    where x equals y."""
    pattern = bits(x)
    outwards = (x < y) ^ (x < 0)
    moved = bitcast(pattern + select(outwards, pattern.lift(1), pattern.lift(-1)), x.dtype)
    least = with_sign(bitcast(pattern.lift(1), x.dtype), y)
    stepped = select(x.eq(y), y, select(x.eq(0), least, moved))
    value = select(is_nan(x) | is_nan(y), x.lift(math.nan), stepped)
    return Node(Op.CUSTOM_DERIVATIVE, (value, select(x.eq(y), x.lift(0), x)))


def floor_divide(x: Node, y: Node) -> Node:
    """The quotient rounded down, consistent with the remainder; the plain quotient where an
    operand is infinite or the divisor is 0."""
    ratio = x / y
    quotient = (x - Node(Op.MOD, (x, y))) / y
    low = floor(quotient)
    near = select(quotient - low > 0.5, low + 1, low)
    near = select(near.eq(0), with_sign(x.lift(0), ratio), near)
    return select(is_inf(x) | is_inf(y) | y.eq(0), ratio, near)
