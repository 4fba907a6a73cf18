"""Functions of a complex variable: real functions from its two parts to those of the result.

The inverse functions are those of Kahan 1987, "Branch cuts for complex elementary functions".
"""

import math
from collections.abc import Callable

from lamina.frontend.functions import real_math as real
from lamina.ir.build import select, unary
from lamina.ir.node import Node
from lamina.ir.ops import Op

Parts = tuple[Node, Node]


def parts(z: Node) -> Parts:
    """The real and the imaginary part."""
    return unary(Op.REAL, z), unary(Op.IMAG, z)


def sign(re: Node, im: Node) -> Parts:
    """z / |z|, and 0 at 0."""
    size = real.hypot(re, im)
    zero = size.eq(0)
    safe = select(zero, size.lift(1), size)
    return select(zero, re.lift(0), re / safe), select(zero, im.lift(0), im / safe)


def _zero_keeping(factor: Node, other: Node) -> Node:
    """factor * other, but 0 where `other` is 0 even when `factor` is infinite."""
    return select(other.eq(0), other, factor * other)


def exp(re: Node, im: Node) -> Parts:
    gone = re.eq(-math.inf) & ~real.is_finite(im)
    lost = re.eq(math.inf) & ~real.is_finite(im)
    size, turn = unary(Op.EXP, re), select(gone, im.lift(0), im)
    value_re = select(lost, re, _zero_keeping(size, unary(Op.COS, turn)))
    return value_re, select(turn.eq(0), turn, _zero_keeping(size, unary(Op.SIN, turn)))


def expm1(re: Node, im: Node) -> Parts:
    half = unary(Op.SIN, im * 0.5)
    level = real.expm1(re)
    value = select(im.eq(0), level, level * unary(Op.COS, im) - half * half * 2)
    plain_re, plain_im = exp(re, im)
    value = select(re.eq(math.inf), plain_re, select(re.eq(-math.inf), re.lift(-1), value))
    return select(re.eq(0) & im.eq(0), re.lift(0), value), plain_im


def log(re: Node, im: Node, base: float = math.e) -> Parts:
    """The logarithm with an angle in (-pi, pi] / log(base)."""
    scale = 1 / math.log(base)
    return unary(Op.LOG, real.hypot(re, im)) * scale, real.atan2(im, re) * scale


def log1p(re: Node, im: Node) -> Parts:
    near = real.log1p(re * 2 + re * re + im * im) * 0.5
    far = unary(Op.LOG, real.hypot(re + 1, im))
    return select(real.hypot(re, im) < 0.5, near, far), real.atan2(im, re + 1)


def sqrt(re: Node, im: Node) -> Parts:
    """The square root with a real part that is not negative."""
    endless = real.is_inf(im)
    size = unary(Op.SQRT, real.absolute(re) * 0.5 + real.hypot(re, im) * 0.5)
    other = real.absolute(im) * 0.5 / select(size.eq(0), re.lift(1), size)
    size, other = (select(endless, re.lift(math.inf), one) for one in (size, other))
    left = real.signbit(re)
    return select(left, other, size), real.with_sign(select(left, size, other), im)


def sinh(re: Node, im: Node) -> Parts:
    value_re = _zero_keeping(unary(Op.COS, im), real.sinh(re))
    endless = real.is_inf(re) & ~real.is_finite(im)
    value_im = real.cosh(re) * unary(Op.SIN, im)
    return select(endless, re, value_re), select(im.eq(0), im, value_im)


def cosh(re: Node, im: Node) -> Parts:
    endless = real.is_inf(re) & ~real.is_finite(im)
    value_re = real.cosh(re) * unary(Op.COS, im)
    flat = real.with_sign(re.lift(0), re) * real.with_sign(re.lift(1), im)
    value_im = select(re.eq(0) | im.eq(0), flat, real.sinh(re) * unary(Op.SIN, im))
    return select(endless, re.lift(math.inf), value_re), value_im


def tanh(re: Node, im: Node) -> Parts:
    """Far from 0 it is +-1 with a vanishing imaginary part."""
    far = (real.absolute(re) > 20.0) & (real.is_finite(im) | real.is_inf(re))
    level, root, slope = unary(Op.TANH, re), real.cosh(re), real.tan(im)
    below = level * level * (slope * slope) + 1
    value_re = select(re.eq(0), re, level * (slope * slope + 1) / below)
    value_re = select(far, real.with_sign(re.lift(1), re), value_re)
    small = unary(Op.EXP, real.absolute(re) * -2) * 4 * (unary(Op.SIN, im) * unary(Op.COS, im))
    small = select(real.is_inf(re), real.with_sign(re.lift(0), im), small)
    value_im = select(far, small, slope / (root * root) / below)
    return value_re, select(im.eq(0), im, value_im)


def acos(re: Node, im: Node) -> Parts:
    (a, _), (c, _) = sqrt(1 - re, -im), sqrt(re + 1, im)
    endless = real.is_inf(re) | real.is_inf(im)
    angle = select(endless, real.atan2(real.absolute(im), re), real.atan2(a, c) * 2)
    angle = select(re.eq(0) & real.is_nan(im), re.lift(math.pi / 2), angle)
    return angle, asinh(-im, re)[0]


def acosh(re: Node, im: Node) -> Parts:
    """The inverse cosine, turned by 90 degrees into the right half of the plane."""
    angle, height = acos(re, im)
    return real.absolute(height), real.with_sign(angle, im)


def asinh(re: Node, im: Node) -> Parts:
    (a, b), (c, d) = sqrt(im + 1, -re), sqrt(1 - im, re)
    endless = real.is_inf(re) | real.is_inf(im)
    size = select(endless, real.with_sign(re.lift(math.inf), re), real.asinh(a * d - b * c))
    far = real.atan2(im, real.absolute(re))
    angle = select(endless, far, real.atan2(im, a * c - b * d))
    return size, select(im.eq(0), im, angle)


def atanh(re: Node, im: Node) -> Parts:
    size = real.absolute(re)
    away = (1 - size) * (1 - size) + im * im
    endless = real.is_inf(re) | real.is_inf(im)
    value = select(endless, re.lift(0), real.log1p(size * 4 / away) * 0.25)
    angle = real.atan2(im * 2, (1 - size) * (size + 1) - im * im) * 0.5
    right = real.with_sign(re.lift(math.pi / 2), im)
    value = select(re.eq(0), re, real.with_sign(value, re))
    return value, select(endless & ~real.is_nan(im), right, angle)


def cos(re: Node, im: Node) -> Parts:
    return cosh(-im, re)


def _turned(hyperbolic: Callable[[Node, Node], Parts]) -> Callable[[Node, Node], Parts]:
    """The circular function f(z) of the hyperbolic function of i z, which is i f(z)."""

    def circular(re: Node, im: Node) -> Parts:
        value_re, value_im = hyperbolic(-im, re)
        return value_im, -value_re

    return circular


sin, tan, asin, atan = map(_turned, (sinh, tanh, asinh, atanh))


def power(x: Node, y: Node) -> Node:
    """exp(y log x); 0 to the power 0 is 1, and to one with a positive real part 0."""
    zero = x.eq(0)
    exponent = y * Node(Op.COMPLEX, log(*parts(select(zero, x.lift(1), x))))
    at_zero = select(parts(y)[0] > 0, x.lift(0), select(y.eq(0), x.lift(1), x.lift(math.nan)))
    return select(zero, at_zero, Node(Op.COMPLEX, exp(*parts(exponent))))
