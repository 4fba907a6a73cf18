"""Functions of a complex variable, built from real functions of its parts.

The inverse functions are those of Kahan 1987, "Branch cuts for complex elementary functions".
"""

from __future__ import annotations

import math

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


def _zero_keeping(factor: Node, other: Node) -> Node:
    """factor * other, but 0 where `other` is 0 even when `factor` is infinite."""
    return select(other.eq(0), other, factor * other)


def _times_i(z: Node) -> Node:
    re, im = parts(z)
    return join(-im, re)


def _divided_by_i(z: Node) -> Node:
    re, im = parts(z)
    return join(im, -re)


def conj(z: Node) -> Node:
    """The complex conjugate."""
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


def exp(z: Node) -> Node:
    """Exponential."""
    re, im = parts(z)
    size = unary(Op.EXP, re)
    gone = re.eq(-_INF) & ~real.is_finite(im)
    zero = re.lift(0)
    lost = re.eq(_INF) & ~real.is_finite(im)
    value_re = select(lost, re, _zero_keeping(size, unary(Op.COS, im)))
    value_im = select(im.eq(0), im, _zero_keeping(size, unary(Op.SIN, im)))
    return join(select(gone, zero, value_re), select(gone, zero, value_im))


def expm1(z: Node) -> Node:
    """exp(z) - 1."""
    re, im = parts(z)
    half = unary(Op.SIN, im * 0.5)
    drop = half * half * 2
    level = re.eq(_INF)
    value = select(
        im.eq(0), real.expm1(re), real.expm1(re) * unary(Op.COS, im) - drop
    )
    plain = parts(exp(z))
    value = select(level, plain[0], select(re.eq(-_INF), re.lift(-1), value))
    return join(select(re.eq(0) & im.eq(0), re.lift(0), value), plain[1])


def log(z: Node) -> Node:
    """The logarithm with an angle in (-pi, pi]."""
    re, im = parts(z)
    return join(unary(Op.LOG, real.hypot(re, im)), real.atan2(im, re))


def log1p(z: Node) -> Node:
    """log(1 + z)."""
    re, im = parts(z)
    small = real.hypot(re, im) < 0.5
    near_re = select(small, re, re.lift(0))
    near_im = select(small, im, im.lift(0))
    near = real.log1p(near_re * 2 + near_re * near_re + near_im * near_im) * 0.5
    far = unary(Op.LOG, real.hypot(re + 1, im))
    return join(select(small, near, far), real.atan2(im, re + 1))


def log_base(z: Node, base: float) -> Node:
    """The logarithm to another base."""
    re, im = parts(log(z))
    return join(re * (1 / math.log(base)), im * (1 / math.log(base)))


def sqrt(z: Node) -> Node:
    """The square root with a real part that is not negative."""
    re, im = parts(z)
    root = unary(Op.SQRT, (real.absolute(re) * 0.5) + real.hypot(re, im) * 0.5)
    zero = root.eq(0)
    other = real.absolute(im) * 0.5 / select(zero, re.lift(1), root)
    left = real.signbit(re)
    value_re, value_im = select(left, other, root), select(left, root, other)
    endless = real.is_inf(im)
    nan = real.is_nan(im)
    value_re = select(endless, re.lift(_INF), select(zero, re.lift(0), value_re))
    value_im = select(endless, re.lift(_INF), select(zero, re.lift(0), value_im))
    value_re = select(nan & re.eq(_INF), re, value_re)
    value_im = select(re.eq(-_INF) & ~endless & ~nan, re.lift(_INF), value_im)
    value_re = select(re.eq(-_INF) & ~endless & ~nan, re.lift(0), value_re)
    value_im = select(re.eq(_INF) & ~endless & ~nan, re.lift(0), value_im)
    value_im = select(re.eq(-_INF) & nan, re.lift(_INF), value_im)
    return join(value_re, real.copysign(value_im, im))


def sinh(z: Node) -> Node:
    """Hyperbolic sine."""
    re, im = parts(z)
    value_re = _zero_keeping(unary(Op.COS, im), real.sinh(re))
    value_im = select(im.eq(0), im, real.cosh(re) * unary(Op.SIN, im))
    endless = real.is_inf(re) & ~real.is_finite(im)
    return join(select(endless, re, value_re), value_im)


def cosh(z: Node) -> Node:
    """Hyperbolic cosine."""
    re, im = parts(z)
    value_re = real.cosh(re) * unary(Op.COS, im)
    zero = re.eq(0) | im.eq(0)
    value_im = select(zero, re * 0 + im * 0, real.sinh(re) * unary(Op.SIN, im))
    flat = real.copysign(re.lift(0), re) * real.copysign(re.lift(1), im)
    value_im = select(zero & ~real.is_nan(re) & ~real.is_nan(im), flat, value_im)
    value_im = select(im.eq(0) & real.is_nan(re), im, value_im)
    value_im = select(re.eq(0) & ~real.is_finite(im), re.lift(0), value_im)
    endless = real.is_inf(re) & ~real.is_finite(im)
    return join(select(endless, re.lift(_INF), value_re), value_im)


def tanh(z: Node) -> Node:
    """Hyperbolic tangent; far from 0 it is +-1 with a vanishing imaginary part."""
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


def sin(z: Node) -> Node:
    """Sine."""
    return _divided_by_i(sinh(_times_i(z)))


def cos(z: Node) -> Node:
    """Cosine."""
    return cosh(_times_i(z))


def tan(z: Node) -> Node:
    """Tangent."""
    return _divided_by_i(tanh(_times_i(z)))


def asin(z: Node) -> Node:
    """Inverse sine."""
    return _divided_by_i(asinh(_times_i(z)))


def acos(z: Node) -> Node:
    """Inverse cosine."""
    re, im = parts(z)
    (a, b), (c, d) = parts(sqrt(join(1 - re, -im))), parts(sqrt(join(re + 1, im)))
    endless = real.is_inf(re) | real.is_inf(im)
    angle = select(endless, real.atan2(real.absolute(im), re), real.atan2(a, c) * 2)
    angle = select(re.eq(0) & real.is_nan(im), re.lift(math.pi / 2), angle)
    height = real.asinh(c * b - d * a)
    return join(angle, select(endless, real.copysign(re.lift(_INF), -im), height))


def asinh(z: Node) -> Node:
    """Inverse hyperbolic sine."""
    re, im = parts(z)
    (a, b), (c, d) = parts(sqrt(join(im + 1, -re))), parts(sqrt(join(1 - im, re)))
    endless = real.is_inf(re) | real.is_inf(im)
    size = select(endless, real.copysign(re.lift(_INF), re), real.asinh(a * d - b * c))
    far = real.atan2(im, real.absolute(re))
    angle = select(endless, far, real.atan2(im, a * c - b * d))
    return join(size, select(im.eq(0), im, angle))


def acosh(z: Node) -> Node:
    """Inverse hyperbolic cosine."""
    re, im = parts(z)
    (a, b), (c, d) = parts(sqrt(join(re - 1, im))), parts(sqrt(join(re + 1, im)))
    endless = real.is_inf(re) | real.is_inf(im)
    size = select(endless, re.lift(_INF), real.asinh(a * c + b * d))
    angle = select(endless, real.atan2(im, re), real.atan2(b, c) * 2)
    angle = select(re.eq(0) & real.is_nan(im), re.lift(math.pi / 2), angle)
    return join(size, angle)


def atanh(z: Node) -> Node:
    """Inverse hyperbolic tangent."""
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


def atan(z: Node) -> Node:
    """Inverse tangent."""
    return _divided_by_i(atanh(_times_i(z)))


def power(x: Node, y: Node) -> Node:
    """exp(y log x); 0 to any power but 0 is 0."""
    zero = x.eq(0)
    value = exp(y * log(select(zero, x.lift(1), x)))
    at_zero = select(y.eq(0), x.lift(1), x.lift(0))
    return select(zero, at_zero, value)
