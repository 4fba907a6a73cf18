"""Bessel functions as formulas of graph operations, of one dtype: float32 or float64.

Near 0 they are power series or expansions in x**2; farther away expansions in 1 / x of what is left
when the exponential, or the oscillation, and a root are divided out (NIST Digital Library of
Mathematical Functions, sections 10.17, 10.25 and 10.40).
"""

import math

from lamina.core import dtypes
from lamina.frontend.functions import chebyshev as tables
from lamina.frontend.functions import real_math as rm
from lamina.frontend.functions.chebyshev import Table, chebyshev
from lamina.ir.build import select, unary
from lamina.ir.node import Node
from lamina.ir.ops import Op


def _power_series(x: Node, order: int) -> Node:
    """The sum of (x / 2)**(2 k) / (k! (k + order)!) for |x| <= 10: all terms are positive. The term
    k divided by the one before is (x / 2)**2 / (k (k + order)), so that nested products do."""
    square = x * x * 0.25
    value = x.lift(1.0)
    for k in range(30 if x.dtype is dtypes.float64 else 20, 0, -1):
        value = square * value * (1 / (k * (k + order))) + 1.0
    return value


def _scaled_i(size: Node, order: int, table: Table) -> Node:
    """exp(-x) I(x) of order 0 or 1, for x >= 0."""
    large = size > 10
    near, far = select(large, size.lift(0.0), size), select(large, size, size.lift(20.0))
    series = _power_series(near, order) * unary(Op.EXP, -near)
    if order:
        series = series * near * 0.5
    return select(large, chebyshev(table, 20.0 / far - 1.0) / unary(Op.SQRT, far), series)


def _unscaled(size: Node, scaled: Node) -> Node:
    """`scaled` times exp(size), as two factors that overflow no earlier than the product."""
    half = unary(Op.EXP, size * 0.5)
    return half * scaled * half


def _distance(x: Node) -> Node:
    """|x| with the slope 1 at 0: even functions that are smooth there have all derivatives."""
    return select(x < 0, -x, x)


def _odd(x: Node, value: Node) -> Node:
    """The odd function with this value at |x|."""
    return select(x < 0, -value, value)


def i0(x: Node) -> Node:
    """The modified Bessel function of order 0."""
    size = _distance(x)
    return _unscaled(size, _scaled_i(size, 0, tables.BESSEL_I0))


def i0e(x: Node) -> Node:
    """exp(-|x|) I0(x), which has a kink at 0."""
    return _scaled_i(rm.absolute(x), 0, tables.BESSEL_I0)


def i1(x: Node) -> Node:
    """The modified Bessel function of order 1."""
    size = _distance(x)
    return _odd(x, _unscaled(size, _scaled_i(size, 1, tables.BESSEL_I1)))


def i1e(x: Node) -> Node:
    """exp(-|x|) I1(x)."""
    return _odd(x, _scaled_i(_distance(x), 1, tables.BESSEL_I1))


def j0(x: Node) -> Node:
    """The Bessel function of order 0. With c = x - pi/4, cos(c) is (cos x + sin x) / sqrt(2)."""
    size = _distance(x)
    large = size > 8
    near, far = select(large, x.lift(0.0), size), select(large, size, x.lift(9.0))
    sine, cosine = unary(Op.SIN, far), unary(Op.COS, far)
    wave = _wave(far, cosine + sine, sine - cosine, tables.BESSEL_P0, tables.BESSEL_Q0)
    value = select(large, wave, chebyshev(tables.BESSEL_J0, near * near * (1 / 32) - 1.0))
    return select(rm.is_inf(x), x.lift(0.0), value)


def j1(x: Node) -> Node:
    """The Bessel function of order 1, odd. With c = x - 3 pi/4, cos(c) is (sin x - cos x) /
    sqrt(2)."""
    size = _distance(x)
    large = size > 8
    near, far = select(large, x.lift(0.0), size), select(large, size, x.lift(9.0))
    sine, cosine = unary(Op.SIN, far), unary(Op.COS, far)
    wave = _wave(far, sine - cosine, -sine - cosine, tables.BESSEL_P1, tables.BESSEL_Q1)
    value = select(large, wave, near * chebyshev(tables.BESSEL_J1, near * near * (1 / 32) - 1.0))
    return _odd(x, select(rm.is_inf(x), x.lift(0.0), value))


def _wave(x: Node, cosine: Node, sine: Node, p: Table, q: Table) -> Node:
    """sqrt(2 / (pi x)) (P cos(c) - Q sin(c) / x) for x >= 8, from both times sqrt(2)."""
    ratio = 8.0 / x
    place = ratio * ratio * 2.0 - 1.0
    value = chebyshev(p, place) * cosine - chebyshev(q, place) * sine / x
    return value / unary(Op.SQRT, x * math.pi)
