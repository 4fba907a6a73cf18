"""Special functions as formulas of graph operations.

Each rule takes and returns nodes of one dtype, float32 or float64, and chooses the number of terms
for it. Equations named by numbers such as 5.11.2 are of the NIST Digital Library of Mathematical
Functions (https://dlmf.nist.gov). Branches that are not taken get harmless inputs, so that their
derivatives stay finite as well.
"""

import math
from collections.abc import Sequence
from functools import reduce

from lamina.core import dtypes
from lamina.frontend.functions import chebyshev as tables
from lamina.frontend.functions import real_math as rm
from lamina.frontend.functions.chebyshev import chebyshev
from lamina.ir.build import select, unary
from lamina.ir.node import Node
from lamina.ir.ops import Op

# The Bernoulli numbers B(2), B(4), ..., B(18).
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798)


def _is_double(x: Node) -> bool:
    return x.dtype is dtypes.float64


def _polynomial(coefficients: Sequence[float], x: Node) -> Node:
    """c[0] + c[1] x + c[2] x**2 + ..., by Horner's rule."""
    highest, *lower = reversed(coefficients)
    return reduce(lambda value, coefficient: value * x + coefficient, lower, x.lift(highest))


def _sine_of_turns(x: Node) -> tuple[Node, Node]:
    """The sine and the cosine of pi x, from x less the nearest integer n. Both have the sign
    (-1)**n left out."""
    rest = (x - rm.round_even(x)) * math.pi
    return unary(Op.SIN, rest), unary(Op.COS, rest)


# The gamma function and its logarithmic derivatives. Negative arguments are reflected.


def lgamma(x: Node) -> Node:
    """log |gamma(x)|; infinite at 0, -1, -2, ... and at the infinities."""
    negative = x < 0
    size = _lgamma_positive(select(negative, 1.0 - x, x))
    sine, _ = _sine_of_turns(select(negative, x, x.lift(0.5)))
    # Equation 5.5.3: gamma(x) gamma(1 - x) = pi / sin(pi x).
    mirrored = math.log(math.pi) - unary(Op.LOG, select(sine < 0, -sine, sine)) - size
    return select(rm.is_inf(x), x.lift(math.inf), select(negative, mirrored, size))


def _lgamma_positive(x: Node) -> Node:
    """log gamma(x) for x >= 0."""
    small = x < 8.5
    near = _lgamma_in_steps(select(small, x, x.lift(2.0)))
    return select(small, near, _stirling(select(small, x.lift(9.0), x)))


def _lgamma_in_steps(x: Node) -> Node:
    """log gamma(x) for 0 <= x < 8.5, from gamma(2 + r), where x is n + r with |r| <= 1/2. Each
    step from 2 to n is a factor, as gamma(x + 1) = x gamma(x). An example: gamma(4.3) is
    3.3 * 2.3 * gamma(2.3), and gamma(0.3) is gamma(2.3) / (0.3 * 1.3)."""
    n = rm.floor(x + 0.5)
    rest = x - n
    factors = select(n < 1, x * (x + 1.0), select(n < 2, x, x.lift(1.0)))
    for step in range(1, 7):
        factors = select(n > step + 1, factors * (x - float(step)), factors)
    logarithm = unary(Op.LOG, factors)
    centre = rest * chebyshev(tables.LGAMMA, rest * 2.0)
    return centre + select(n < 2, -logarithm, logarithm)


def _stirling(x: Node) -> Node:
    """log gamma(x) for x > 8: equation 5.11.1, (x - 1/2) log x - x + log(2 pi) / 2 and a series in
    1 / x, with x moved into the first term, which would lose digits to the second."""
    inverse = 1.0 / x
    terms = [b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI, 1)]
    tail = inverse * _polynomial(terms, inverse * inverse)
    return (x - 0.5) * (unary(Op.LOG, x) - 1.0) + (math.log(2 * math.pi) - 1) / 2 + tail


def multigammaln(x: Node, order: int) -> Node:
    """The logarithm of the multivariate gamma function (equation 35.3.4) of that order."""
    terms = [lgamma(x - 0.5 * index) for index in range(order)]
    return reduce(Node.__add__, terms) + order * (order - 1) / 4 * math.log(math.pi)


def _steps(x: Node) -> int:
    """How far recurrences go before an asymptotic series: far enough for the dtype."""
    return 10 if _is_double(x) else 6


def digamma(x: Node) -> Node:
    """The derivative of log gamma: equation 5.5.2 upwards, then the series 5.11.2. Infinite with
    the sign of -x at 0, and NaN at -1, -2, ..."""
    negative = x < 0
    start = select(negative, 1.0 - x, x)
    far = start + float(_steps(x))
    inverse = 1.0 / far
    square = inverse * inverse
    terms = [-b / (2 * k) for k, b in enumerate(_BERNOULLI, 1)]
    value = unary(Op.LOG, far) - inverse * 0.5 + square * _polynomial(terms, square)
    value = value - 1.0 / start
    for step in range(1, _steps(x)):
        value = value - 1.0 / (start + float(step))
    sine, cosine = _sine_of_turns(select(negative, x, x.lift(0.5)))
    pole = sine.eq(0.0)
    mirrored = value - cosine / select(pole, sine.lift(math.nan), sine) * math.pi
    return select(negative, mirrored, value)


def polygamma(x: Node, order: int) -> Node:
    """The derivative of that order of digamma: equations 5.15.1 and 5.15.6."""
    if order == 0:
        return digamma(x)
    negative = x < 0
    start = select(negative, 1.0 - x, x)
    sign = (-1.0) ** (order + 1)
    value = zeta(x.lift(float(order + 1)), start) * (sign * math.gamma(order + 1))
    sine, cosine = _sine_of_turns(select(negative, x, x.lift(0.5)))
    cotangent = cosine / sine
    derivative = _polynomial(_derivative_of_cotangent(order), cotangent)
    return select(negative, value * -sign - derivative * math.pi, value)


def _derivative_of_cotangent(order: int) -> list[float]:
    """The polynomial of c = cot(pi x) that is its derivative of that order by x. As c' is
    -pi (1 + c**2), a term a c**k becomes -pi a k (c**(k - 1) + c**(k + 1))."""
    polynomial = [0.0, 1.0]
    for _ in range(order):
        following = [0.0] * (len(polynomial) + 1)
        for power, factor in enumerate(polynomial):
            if power:
                following[power - 1] -= math.pi * factor * power
                following[power + 1] -= math.pi * factor * power
        polynomial = following
    return polynomial


def zeta(s: Node, q: Node) -> Node:
    """The sum of (q + k)**-s over k >= 0, the zeta function of Hurwitz, for s > 1 and q > 0: some
    terms, and the Euler-Maclaurin formula for the others (equation 25.11.28)."""
    inside = (q > 0) & (s > 1)
    power, start = select(inside, s, s.lift(2.0)), select(inside, q, q.lift(1.0))
    total = start**-power
    for step in range(1, _steps(q)):
        total = total + (start + float(step)) ** -power
    far = start + float(_steps(q))
    last = far**-power
    total = total + far * last / (power - 1.0) + last * 0.5
    inverse = 1.0 / far
    term = last * power * inverse
    for k, bernoulli in enumerate(_BERNOULLI, 1):
        total = total + term * (bernoulli / math.factorial(2 * k))
        grown = power + float(2 * k)
        term = term * (grown - 1.0) * grown * (inverse * inverse)
    pole = s.eq(1.0) | (q.eq(rm.floor(q)) & ~(q > 0))
    return select(inside, total, select(pole & ~(s < 1), s.lift(math.inf), s.lift(math.nan)))


# The error function's relatives, and the normal distribution.


def _exp_of_square(x: Node, sign: float) -> Node:
    """exp(sign * x**2), with x = a + b, a a multiple of 1/16: a**2 is exact, and b (a + x) small,
    where the rounding of x**2 would be multiplied by x**2."""
    limited = Node(Op.MAX, (Node(Op.MIN, (x, x.lift(40.0))), x.lift(-40.0)))
    coarse = unary(Op.TRUNC, limited * 16.0) * 0.0625
    rest = (limited - coarse) * (limited + coarse)
    return unary(Op.EXP, coarse * coarse * sign) * unary(Op.EXP, rest * sign)


def _erfcx_positive(x: Node) -> Node:
    """exp(x**2) erfc(x) for x >= 0."""
    return chebyshev(tables.ERFCX, 1.0 - 6.0 / (x + 3.0)) / (x * 2.0 + 1.0)


def erfcx(x: Node) -> Node:
    """exp(x**2) erfc(x), which falls like 1 / x."""
    negative = x < 0
    value = _erfcx_positive(select(negative, -x, x))
    power = _exp_of_square(select(negative, x, x.lift(0.0)), 1.0)
    return select(negative, power * 2.0 - value, value)


def erfc(x: Node) -> Node:
    """1 - erf(x), with all digits where that is small."""
    plain = 1.0 - unary(Op.ERF, x)
    beyond = x > 0.5
    far = select(beyond, x, x.lift(1.0))
    value = select(beyond, _exp_of_square(far, -1.0) * _erfcx_positive(far), plain)
    return Node(Op.CUSTOM_DERIVATIVE, (value, plain))


def ndtr(x: Node) -> Node:
    """The normal distribution function."""
    return erfc(x * -math.sqrt(0.5)) * 0.5


def log_ndtr(x: Node) -> Node:
    """log(ndtr(x)), finite in the lower tail."""
    lower = x < -1
    scaled = x * -math.sqrt(0.5)
    tail = _erfcx_positive(select(lower, scaled, x.lift(1.0))) * 0.5
    below = unary(Op.LOG, tail) - select(lower, x * x * 0.5, x.lift(0.0))
    above = rm.log1p(erfc(select(lower, x.lift(0.0), -scaled)) * -0.5)
    return select(lower, below, above)


def _erfinv_ratio(w: Node) -> Node:
    """erfinv(x) / x, from w = -log(1 - x**2). It grows like the root of w, in which three
    expansions follow each other (as in Giles 2010, "Approximating the erfinv function")."""
    middle, tail = w > 6.25, w > 16
    root = unary(Op.SQRT, select(middle, w, w.lift(9.0)))
    centre = chebyshev(tables.ERFINV_CENTRE, select(middle, w.lift(1.0), w) / 3.125 - 1.0)
    between = chebyshev(tables.ERFINV_MIDDLE, select(tail, w.lift(3.0), root) / 0.75 - 3.25 / 0.75)
    far = select(tail, root, w.lift(5.0))
    near, end = 1 / 4, 1 / 27.5
    place = (1.0 / far - end) * (2 / (near - end)) - 1.0
    beyond = chebyshev(tables.ERFINV_TAIL, place) * far
    return select(tail, beyond, select(middle, between, centre))


def erfinv(x: Node) -> Node:
    """The inverse of erf, infinite at -1 and 1 and NaN beyond."""
    end = x.eq(1.0) | x.eq(-1.0)
    inside = select(end, x.lift(0.0), x)
    value = inside * _erfinv_ratio(-unary(Op.LOG, (1.0 - inside) * (inside + 1.0)))
    return select(end, x * math.inf, value)


def ndtri(p: Node) -> Node:
    """The inverse of ndtr, infinite at 0 and 1 and NaN beyond. With x = 2 p - 1, 1 - x**2 is
    4 p (1 - p), which keeps the digits of a small p."""
    end = p.eq(0.0) | p.eq(1.0)
    inside = select(end, p.lift(0.5), p)
    ratio = _erfinv_ratio(-(unary(Op.LOG, inside) + unary(Op.LOG, (1.0 - inside) * 4.0)))
    value = (inside - 0.5) * ratio * math.sqrt(8)
    return select(end, select(p.eq(0.0), p.lift(-math.inf), p.lift(math.inf)), value)


# Products that are 0 where the first factor is, whatever the other is.


def xlogy(x: Node, y: Node) -> Node:
    """x log(y); 0 where x is 0, unless y is NaN."""
    none = x.eq(0.0) & ~rm.is_nan(y)
    return select(none, x.lift(0.0), x * unary(Op.LOG, select(none, y.lift(1.0), y)))


def xlog1py(x: Node, y: Node) -> Node:
    """x log(1 + y); 0 where x is 0, unless y is NaN."""
    none = x.eq(0.0) & ~rm.is_nan(y)
    return select(none, x.lift(0.0), x * rm.log1p(select(none, y.lift(0.0), y)))


def entr(x: Node) -> Node:
    """-x log(x), 0 at 0, -inf below."""
    positive = x > 0
    value = -x * unary(Op.LOG, select(positive, x, x.lift(1.0)))
    outside = select(x < 0, x.lift(-math.inf), x * 0.0)
    return select(positive, value, outside)


def logit(x: Node) -> Node:
    """log(x / (1 - x)), the inverse of sigmoid."""
    return unary(Op.LOG, x / (1.0 - x))


def sinc(x: Node) -> Node:
    """sin(pi x) / (pi x), 1 at 0."""
    half = rm.round_even(x) * 0.5
    odd = ~half.eq(unary(Op.TRUNC, half))
    small = rm.absolute(x) < 0.25
    away = select(small, x.lift(1.0), x)
    sine, _ = _sine_of_turns(away)
    plain = select(odd, -sine, sine) / (away * math.pi)
    return select(small, _sinc_series(select(small, x * math.pi, x.lift(0.0))), plain)


def spherical_bessel_j0(x: Node) -> Node:
    """sin(x) / x, 1 at 0."""
    small = rm.absolute(x) < 0.75
    away = select(small, x.lift(1.0), x)
    plain = select(rm.is_inf(x), x.lift(0.0), unary(Op.SIN, away) / away)
    return select(small, _sinc_series(select(small, x, x.lift(0.0))), plain)


def _sinc_series(x: Node) -> Node:
    """sin(x) / x for |x| < 0.8, by its Taylor series."""
    count = 10 if _is_double(x) else 6
    terms = [(-1.0) ** k / math.factorial(2 * k + 1) for k in range(count)]
    return _polynomial(terms, x * x)
