"""Elementwise arithmetic beyond the array API standard, as in PyTorch and NumPy."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from lamina.core import dtypes
from lamina.core.dtypes import DType
from lamina.errors import DTypeError
from lamina.frontend.functions import real_math as rm
from lamina.frontend.functions import reduction
from lamina.frontend.functions.elementwise import (
    FLOATS,
    NUMBERS,
    QUOTIENTS,
    REALS,
    SAME,
    WIDE,
    Family,
    cos,
    equal,
    float_dtype,
    imag,
    pow,
    real,
    sin,
)  # fmt: skip
from lamina.frontend.functions.movement import stack
from lamina.frontend.tensor import Data, Tensor, as_tensor
from lamina.ir.build import cast, select, unary
from lamina.ir.node import Node
from lamina.ir.ops import Op

__all__ = [
    "addcdiv", "addcmul", "allclose", "angle", "array_equal", "complex", "deg2rad", "float_power",
    "fmax", "fmin", "fmod", "frac", "frexp", "heaviside", "isclose", "isneginf", "isposinf",
    "ldexp", "lerp", "logaddexp2", "polar", "rad2deg", "view_as_complex", "view_as_real",
]  # fmt: skip


class Frexp(NamedTuple):
    mantissa: Tensor
    exponent: Tensor


def addcmul(x: Data, x1: Any, x2: Any, *, value: float = 1) -> Tensor:
    """x + value x1 x2."""
    return NUMBERS("addcmul", lambda a, b, c: a + b * c * a.lift(value), x, x1, x2)


def addcdiv(x: Data, x1: Any, x2: Any, *, value: float = 1) -> Tensor:
    """x + value x1 / x2."""
    return QUOTIENTS("addcdiv", lambda a, b, c: a + b / c * value, x, x1, x2)


def _lerp(start: Node, end: Node, weight: Node) -> Node:
    """From the nearer end, so that the result is exact at both."""
    near = rm.absolute(weight) < 0.5
    gap = end - start
    return select(near, start + gap * weight, end - gap * (1.0 - weight))


def lerp(start: Data, end: Any, weight: Any) -> Tensor:
    """start + weight (end - start), exact where the weight is 0 or 1."""
    return FLOATS("lerp", _lerp, start, end, weight)


def _fmod(a: Node, b: Node) -> Node:
    """The remainder of the sizes, with the sign of the dividend."""
    if a.dtype.kind == "float":
        rest = Node(Op.MOD, (select(a < 0, -a, a), select(b < 0, -b, b)))
        return select(a < 0, -rest, rest)
    rest = Node(Op.MOD, (a, b))  # with the sign of the divisor: -7 by 3 leaves 2, of -9
    if a.dtype.kind == "int":  # without the size of a, as that of -128 is no int8
        return select(~rest.eq(0) & ((a < 0) ^ (b < 0)), rest - b, rest)
    return rest


def _ignoring_nan(op: Op) -> Callable[[Node, Node], Node]:
    def rule(a: Node, b: Node) -> Node:
        either = Node(op, (a, b))
        if not a.dtype.is_float:
            return either
        return select(rm.is_nan(a), b, select(rm.is_nan(b), a, either))

    return rule


def _logaddexp2(a: Node, b: Node) -> Node:
    scale = math.log(2.0)
    return rm.logaddexp(a * scale, b * scale) / scale


def _heaviside(a: Node, b: Node) -> Node:
    step = select(a > 0, a.lift(1), a.lift(0))
    step = select(a.eq(0), b, step)
    return select(rm.is_nan(a), a, step) if a.dtype.is_float else step


fmod = NUMBERS.binary("fmod", "The remainder with the sign of the dividend x1.", _fmod)
fmax = REALS.binary("fmax", "The greater one; a number wins over NaN.", _ignoring_nan(Op.MAX))
fmin = REALS.binary("fmin", "The smaller one; a number wins over NaN.", _ignoring_nan(Op.MIN))
heaviside = REALS.binary("heaviside", "0 where x1 is negative, x2 where it is 0, else 1.",
                         _heaviside)  # fmt: skip
logaddexp2 = WIDE.binary("logaddexp2", "log2(2**x1 + 2**x2) without overflow.", _logaddexp2)
frac = FLOATS.unary("frac", "x less its integer part, with the sign of x.",
                    lambda a: a - unary(Op.TRUNC, a))  # fmt: skip
deg2rad = FLOATS.unary("deg2rad", "An angle in degrees as radians.", lambda a: a * (math.pi / 180))
rad2deg = FLOATS.unary("rad2deg", "An angle in radians as degrees.", lambda a: a * (180 / math.pi))
isposinf = REALS.unary("isposinf", "Whether it is +infinity.", lambda a: _is(a, math.inf))
isneginf = REALS.unary("isneginf", "Whether it is -infinity.", lambda a: _is(a, -math.inf))


def _is(a: Node, value: float) -> Node:
    return a.eq(value) if a.dtype.is_float else ~a.eq(a)


def _double_dtype(dtype: DType) -> DType:
    return dtypes.complex128 if dtype.is_complex else dtypes.float64


def float_power(x1: Any, x2: Any) -> Tensor:
    """x1 to the power x2, computed in float64 or complex128."""
    wide = Family(_double_dtype, of_complex=True)
    base, exponent = (wide("float_power", lambda a: a, one) for one in (x1, x2))
    return pow(base, exponent)


# Parts of a float.


def frexp(x: Data) -> Frexp:
    """The mantissa, with 0.5 <= |mantissa| < 1, and the exponent (int32) of x = mantissa *
    2**exponent; 0, infinities and NaN have the exponent 0."""
    exponent = WIDE("frexp", _exponent, x)
    scaled = FLOATS("frexp", _scaled_down, x, exponent)
    return Frexp(scaled, exponent.cast(dtypes.int32))


def _exponent(x: Node) -> Node:
    """The exponent, as a float: the bits between sign and significand, of a number that is scaled
    by a power of 2 first if it is too small to be normal."""
    significand = x.dtype.precision - 1
    bias = 1 - x.dtype.least
    tiny = rm.absolute(x) < 2.0**x.dtype.least
    normal = select(tiny, x * 2.0 ** (significand + 1), x)
    field = (rm.bits(normal) >> significand) & (2 * bias + 1)
    shift = select(tiny, x.lift(float(-significand - 1)), x.lift(0.0))
    exponent = cast(field, x.dtype) + shift - float(bias - 1)
    return select(rm.is_finite(x) & ~x.eq(0.0), exponent, x.lift(0.0))


def _scaled_down(x: Node, exponent: Node) -> Node:
    """x / 2**exponent in two steps, as 2**exponent may be no number of the dtype."""
    half = unary(Op.TRUNC, exponent * 0.5)
    first, second = (unary(Op.EXP2, -one) for one in (half, exponent - half))
    return x * unary(Op.DETACH, first) * unary(Op.DETACH, second)


def ldexp(x1: Any, x2: Any) -> Tensor:
    """x1 times 2**x2."""
    return FLOATS("ldexp", lambda a, n: a * Node(Op.POW, (a.lift(2.0), n)), x1, x2)


# Comparison of whole arrays.


def isclose(
    x1: Any, x2: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """Whether |x1 - x2| <= atol + rtol |x2|, or both are equal infinities; with `equal_nan`, or
    both NaN."""

    def rule(a: Node, b: Node) -> Node:
        same = a.eq(b)
        if equal_nan:
            same = same | (rm.is_nan(a) & rm.is_nan(b))
        limit = rm.absolute(b) * rtol + atol
        return same | (rm.is_finite(b) & ~(limit < rm.absolute(a - b)) & ~rm.is_nan(a))

    return Family(float_dtype, wide=False)("isclose", rule, x1, x2)


def allclose(
    x1: Any, x2: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """Whether all elements are close, as `isclose` says: bool of shape ()."""
    return reduction.all(isclose(x1, x2, rtol, atol, equal_nan))


def array_equal(x1: Data, x2: Data) -> Tensor:
    """Whether the shapes and all elements are equal: bool of shape ()."""
    if x1.shape != x2.shape:
        return Tensor(False, device=x1.device)
    return reduction.all(equal(x1, x2))


# Complex numbers and their parts.

angle = SAME.unary(
    "angle", "The angle of a complex number in radians; pi for negative real numbers, else 0.",
    lambda a: _angle_of_real(a), lambda re, im: rm.atan2(im, re),
)  # fmt: skip


def _angle_of_real(a: Node) -> Node:
    x = cast(a, float_dtype(a.dtype))
    turned = select(x < 0, x.lift(math.pi), x.lift(0.0))
    return select(rm.is_nan(x), x, turned)


def complex(real: Data, imag: Any) -> Tensor:
    """The complex number of a real and an imaginary part, which broadcast."""

    def rule(re: Node, im: Node) -> Node:
        if not re.dtype.is_float or re.dtype.is_small:
            raise DTypeError(
                f"parts of {re.dtype.name}; cast them to float32 or float64", operation="complex"
            )
        return Node(Op.COMPLEX, (re, im))

    return FLOATS("complex", rule, real, imag)


def polar(abs: Data, angle: Any) -> Tensor:
    """The complex number of a modulus and an angle in radians."""
    turned = as_tensor(angle, abs)
    return complex(abs * cos(turned), abs * sin(turned))


def view_as_real(x: Data) -> Tensor:
    """Complex numbers (...) as real ones (..., 2): real and imaginary part."""
    if not x.dtype.is_complex:
        raise DTypeError(f"{x.dtype.name} is not complex", operation="view_as_real")
    return stack([real(x), imag(x)], axis=-1)


def view_as_complex(x: Data) -> Tensor:
    """Real numbers (..., 2), real and imaginary part, as complex ones (...)."""
    return complex(x[..., 0], x[..., 1])
