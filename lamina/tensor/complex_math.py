"""Functions of a complex variable, built from real functions of its parts.

The inverse functions are those of Kahan 1987, "Branch cuts for complex elementary functions".
"""

from __future__ import annotations

import math
from collections.abc import Callable

from lamina.ir.build import select, unary
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.tensor import real_math as real

_INF = math.inf


def parts(z: Node) -> tuple[Node, Node]:
    """The real and the imaginary part."""
    return Node(Op.REAL, (z,)), Node(Op.IMAG, (z,))


def join(re: Node, im: Node) -> Node:
    """The complex number of two parts."""
    return Node(Op.COMPLEX, (re, im))


def by_parts(rule: Callable[[Node], Node], op: Op) -> Callable[[Node], Node]:
    """`op` of what `rule` makes of each part."""
    return lambda z: Node(op, tuple(map(rule, parts(z))))


def conj(z: Node) -> Node:
    re, im = parts(z)
    return join(re, -im)


def absolute(z: Node) -> Node:
    """|z|, a real number."""
    return real.hypot(*parts(z))


def sign(z: Node) -> Node:
    """z / |z|, and 0 at 0."""
    size = absolute(z)
    zero = size.eq(0)
    safe = select(zero, size.lift(1), size)
    re, im = parts(z)
    return select(zero, z.lift(0), join(re / safe, im / safe))


def _zero_keeping(factor: Node, other: Node) -> Node:
    """factor * other, but 0 where `other` is 0 even when `factor` is infinite."""
    return select(other.eq(0), other, factor * other)


def exp(z: Node) -> Node:
    re, im = parts(z)
    gone = re.eq(-_INF) & ~real.is_finite(im)
    lost = re.eq(_INF) & ~real.is_finite(im)
    size, turn = unary(Op.EXP, re), select(gone, im.lift(0), im)
    value_re = select(lost, re, _zero_keeping(size, unary(Op.COS, turn)))
    return join(value_re, select(turn.eq(0), turn, _zero_keeping(size, unary(Op.SIN, turn))))


def expm1(z: Node) -> Node:
    re, im = parts(z)
    half = unary(Op.SIN, im * 0.5)
    level = real.expm1(re)
    value = select(im.eq(0), level, level * unary(Op.COS, im) - half * half * 2)
    plain = parts(exp(z))
    value = select(re.eq(_INF), plain[0], select(re.eq(-_INF), re.lift(-1), value))
    return join(select(re.eq(0) & im.eq(0), re.lift(0), value), plain[1])


def log(z: Node) -> Node:
    """The logarithm with an angle in (-pi, pi]."""
    re, im = parts(z)
    return join(unary(Op.LOG, real.hypot(re, im)), real.atan2(im, re))


def log1p(z: Node) -> Node:
    re, im = parts(z)
    small = real.hypot(re, im) < 0.5
    near_re = select(small, re, re.lift(0))
    near_im = select(small, im, im.lift(0))
    near = real.log1p(near_re * 2 + near_re * near_re + near_im * near_im) * 0.5
    far = unary(Op.LOG, real.hypot(re + 1, im))
    return join(select(small, near, far), real.atan2(im, re + 1))


def log_base(z: Node, base: float) -> Node:
    """The logarithm to another base."""
    return by_parts(lambda part: part * (1 / math.log(base)), Op.COMPLEX)(log(z))


def sqrt(z: Node) -> Node:
    """The square root with a real part that is not negative."""
    re, im = parts(z)
    endless = real.is_inf(im)
    size = unary(Op.SQRT, real.absolute(re) * 0.5 + real.hypot(re, im) * 0.5)
    other = real.absolute(im) * 0.5 / select(size.eq(0), re.lift(1), size)
    size, other = (select(endless, re.lift(_INF), one) for one in (size, other))
    left = real.signbit(re)
    return join(select(left, other, size), real.copysign(select(left, size, other), im))


def sinh(z: Node) -> Node:
    re, im = parts(z)
    value_re = _zero_keeping(unary(Op.COS, im), real.sinh(re))
    value_im = select(im.eq(0), im, real.cosh(re) * unary(Op.SIN, im))
    endless = real.is_inf(re) & ~real.is_finite(im)
    return join(select(endless, re, value_re), value_im)


def cosh(z: Node) -> Node:
    re, im = parts(z)
    endless = real.is_inf(re) & ~real.is_finite(im)
    value_re = select(endless, re.lift(_INF), real.cosh(re) * unary(Op.COS, im))
    flat = real.copysign(re.lift(0), re) * real.copysign(re.lift(1), im)
    value_im = real.sinh(re) * unary(Op.SIN, im)
    return join(value_re, select(re.eq(0) | im.eq(0), flat, value_im))


def tanh(z: Node) -> Node:
    """Far from 0 it is +-1 with a vanishing imaginary part."""
    re, im = parts(z)
    far = (real.absolute(re) > 20.0) & (real.is_finite(im) | real.is_inf(re))
    level, slope = real.tanh(re), real.tan(im)
    root = real.cosh(select(far, re.lift(0), re))
    below = level * level * (slope * slope) + 1
    pole = real.absolute(slope) > 1e15
    at_pole = 1 / select(level.eq(0), re.lift(_INF), level)
    value_re = select(pole, at_pole, level * (slope * slope + 1) / below)
    value_re = select(far, real.copysign(re.lift(1), re), select(re.eq(0), re, value_re))
    turn = select(real.is_finite(im), im, im.lift(0))
    shrunk = unary(Op.EXP, real.absolute(re) * -2) * 4
    small = shrunk * (unary(Op.SIN, turn) * unary(Op.COS, turn))
    small = select(real.is_inf(re), real.copysign(re.lift(0), im), small)
    value_im = select(far, small, slope / (root * root) / below)
    return join(value_re, select(im.eq(0), im, value_im))


def acos(z: Node) -> Node:
    re, im = parts(z)
    (a, b), (c, d) = parts(sqrt(join(1 - re, -im))), parts(sqrt(join(re + 1, im)))
    endless = real.is_inf(re) | real.is_inf(im)
    angle = select(endless, real.atan2(real.absolute(im), re), real.atan2(a, c) * 2)
    angle = select(re.eq(0) & real.is_nan(im), re.lift(math.pi / 2), angle)
    height = real.asinh(c * b - d * a)
    return join(angle, select(endless, real.copysign(re.lift(_INF), -im), height))


def acosh(z: Node) -> Node:
    """The inverse cosine, turned by 90 degrees into the right half of the plane."""
    angle, height = parts(acos(z))
    return join(real.absolute(height), real.copysign(angle, parts(z)[1]))


def asinh(z: Node) -> Node:
    re, im = parts(z)
    (a, b), (c, d) = parts(sqrt(join(im + 1, -re))), parts(sqrt(join(1 - im, re)))
    endless = real.is_inf(re) | real.is_inf(im)
    size = select(endless, real.copysign(re.lift(_INF), re), real.asinh(a * d - b * c))
    far = real.atan2(im, real.absolute(re))
    angle = select(endless, far, real.atan2(im, a * c - b * d))
    return join(size, select(im.eq(0), im, angle))


def atanh(z: Node) -> Node:
    re, im = parts(z)
    size = real.absolute(re)
    away = (1 - size) * (1 - size) + im * im
    value = real.log1p(size * 4 / away) * 0.25
    endless = real.is_inf(re) | real.is_inf(im)
    value = select(endless, re.lift(0), value)
    angle = real.atan2(im * 2, (1 - size) * (size + 1) - im * im) * 0.5
    right = real.copysign(re.lift(math.pi / 2), im)
    value = select(re.eq(0), re, real.copysign(value, re))
    return join(value, select(endless & ~real.is_nan(im), right, angle))


def _turned(hyperbolic: Callable[[Node], Node]) -> Callable[[Node], Node]:
    """The circular function f(z) of the hyperbolic function of i z, which is i f(z)."""

    def circular(z: Node) -> Node:
        re, im = parts(z)
        value_re, value_im = parts(hyperbolic(join(-im, re)))
        return join(value_im, -value_re)

    return circular


sin, tan, asin, atan = map(_turned, (sinh, tanh, asinh, atanh))


def cos(z: Node) -> Node:
    re, im = parts(z)
    return cosh(join(-im, re))


def power(x: Node, y: Node) -> Node:
    """exp(y log x); 0 to any power but 0 is 0."""
    zero = x.eq(0)
    value = exp(y * log(select(zero, x.lift(1), x)))
    at_zero = select(y.eq(0), x.lift(1), x.lift(0))
    return select(zero, at_zero, value)
