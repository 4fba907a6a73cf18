"""Elementwise functions of the array API standard, with PyTorch's usual additions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from lamina import dtypes
from lamina.dtypes import DType, bool_
from lamina.errors import DTypeError
from lamina.ir.build import cast, expand, full, select
from lamina.ir.build import unary as apply
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.shape import broadcast_shapes
from lamina.tensor import complex_math as cx
from lamina.tensor import real_math as rm
from lamina.tensor.core import (
    Tensor,
    as_tensor,
    common_device,
    common_dtype,
    elementwise,
    is_scalar,
    operands,
)  # fmt: skip
from lamina.tensor.inspection import finfo

__all__ = [
    "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and",
    "bitwise_invert", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor",
    "ceil", "clip", "conj", "copysign", "cos", "cosh", "divide", "equal", "erf", "exp", "exp2",
    "expm1", "floor", "floor_divide", "greater", "greater_equal", "hypot", "imag", "isfinite",
    "isinf", "isnan", "less", "less_equal", "log", "log1p", "log2", "log10", "logaddexp",
    "logical_and", "logical_not", "logical_or", "logical_xor", "masked_fill", "maximum",
    "minimum", "multiply", "nan_to_num", "negative", "nextafter", "not_equal", "positive",
    "pow", "real", "reciprocal", "remainder", "round", "rsqrt", "sign", "signbit", "sin",
    "sinh", "sqrt", "square", "subtract", "tan", "tanh", "trunc", "where",
]  # fmt: skip

Rule = Callable[..., Node]


def wide_rule(rule: Rule) -> Rule:
    """`rule` in float32 for the 16-bit floats, whose rounding would add up step by step."""

    def wide(*nodes: Node) -> Node:
        dtype = nodes[0].dtype
        if dtype.bits >= 32:
            return rule(*nodes)
        result = rule(*(cast(node, dtypes.float32) for node in nodes))
        return cast(result, dtype)

    return wide


def float_dtype(dtype: DType) -> DType:
    """The dtype that a float function computes integers and bools in."""
    return dtype if dtype.kind in ("float", "complex") else dtypes.default_float


def float_function(what: str, rule: Rule, *values: Any, of_complex: Rule | None = None) -> Tensor:
    """`rule` over floats; integers become the default float first."""
    like = next((one for one in values if isinstance(one, Tensor)), None)
    if like is None:
        like = as_tensor(values[0])
        values = (like, *values[1:])
    given = [one if is_scalar(one) else as_tensor(one, like) for one in values]
    dtype = float_dtype(common_dtype(what, *given))
    if dtype.is_complex:
        if of_complex is None:
            raise DTypeError(f"{what}: {dtype.name} is not supported; take real() or abs() first")
        return elementwise(what, of_complex, *given, dtype=dtype)
    return elementwise(what, rule, *given, dtype=dtype)


def _arithmetic(what: str, rule: Rule, *values: Any) -> Tensor:
    """`rule` over numbers; bools count as integers."""
    nodes, device = operands(what, *values)
    if nodes[0].dtype is bool_:
        nodes = [cast(node, dtypes.default_int) for node in nodes]
    return Tensor.of(rule(*nodes), device)


def _op(op: Op) -> Rule:
    return lambda *nodes: Node(op, nodes)


def _only(what: str, kinds: tuple[str, ...], *values: Any) -> None:
    for value in values:
        if isinstance(value, Tensor) and value.dtype.kind not in kinds:
            raise DTypeError(f"{what}: {value.dtype.name} is not one of {', '.join(kinds)}")


# Arithmetic.


def add(x1: Any, x2: Any) -> Tensor:
    """x1 + x2."""
    return _arithmetic("add", _op(Op.ADD), x1, x2)


def subtract(x1: Any, x2: Any) -> Tensor:
    """x1 - x2."""
    return _arithmetic("subtract", lambda a, b: a - b, x1, x2)


def multiply(x1: Any, x2: Any) -> Tensor:
    """x1 * x2."""
    return _arithmetic("multiply", _op(Op.MUL), x1, x2)


def divide(x1: Any, x2: Any) -> Tensor:
    """x1 / x2; integers become the default float."""
    return float_function("divide", _op(Op.DIV), x1, x2, of_complex=_op(Op.DIV))


def floor_divide(x1: Any, x2: Any) -> Tensor:
    """The quotient rounded towards -infinity; an integer divided by 0 gives 0."""
    return _arithmetic("floor_divide", _floor_divide, x1, x2)


def _floor_divide(a: Node, b: Node) -> Node:
    if a.dtype.is_int:
        return Node(Op.IDIV, (a, b))
    return wide_rule(rm.floor_divide)(a, b)


def remainder(x1: Any, x2: Any) -> Tensor:
    """The remainder with the sign of the divisor; an integer modulo 0 gives 0."""
    return _arithmetic("remainder", _remainder, x1, x2)


def _remainder(a: Node, b: Node) -> Node:
    value = Node(Op.MOD, (a, b))
    if a.dtype.is_int:
        return value
    return select(value.eq(0), rm.copysign(value, b), value)


def pow(x1: Any, x2: Any) -> Tensor:
    """x1 raised to the power x2."""
    return _arithmetic("pow", _power, x1, x2)


def _power(a: Node, b: Node) -> Node:
    exponent = b.src[0] if b.op is Op.EXPAND else b
    if exponent.op is Op.CONST and exponent.arg.value == 2:
        return a * a
    return cx.power(a, b) if a.dtype.is_complex else Node(Op.POW, (a, b))


def negative(x: Any) -> Tensor:
    """-x."""
    return _arithmetic("negative", _op(Op.NEG), x)


def positive(x: Any) -> Tensor:
    """x itself."""
    return _arithmetic("positive", lambda a: a, x)


def square(x: Any) -> Tensor:
    """x * x."""
    return _arithmetic("square", lambda a: a * a, x)


def abs(x: Any) -> Tensor:
    """The absolute value; the modulus, which is real, of a complex number."""
    return elementwise("abs", _abs, x)


def _abs(a: Node) -> Node:
    if a.dtype.is_complex:
        return cx.absolute(a)
    if a.dtype.kind in ("uint", "bool"):
        return a
    return rm.absolute(a) if a.dtype.is_float else select(a < 0, -a, a)


def sign(x: Any) -> Tensor:
    """-1, 0 or 1; x / |x| for complex numbers."""
    return _arithmetic("sign", lambda a: cx.sign(a) if a.dtype.is_complex else rm.sign(a), x)


def reciprocal(x: Any) -> Tensor:
    """1 / x."""
    return divide(1.0, as_tensor(x))


def maximum(x1: Any, x2: Any) -> Tensor:
    """The greater one; NaN wins."""
    return elementwise("maximum", _op(Op.MAX), x1, x2)


def minimum(x1: Any, x2: Any) -> Tensor:
    """The smaller one; NaN wins."""
    return elementwise("minimum", _op(Op.MIN), x1, x2)


def clip(x: Any, min: Any = None, max: Any = None) -> Tensor:
    """x limited to min..max, either of which may be missing, in the dtype of x."""
    result = as_tensor(x)
    dtype = result.dtype
    if min is not None:
        low = _bound(min, dtype)
        result = elementwise("clip", lambda a, b: _limit(a < b, a, b), result, low, dtype=dtype)
    if max is not None:
        high = _bound(max, dtype)
        result = elementwise("clip", lambda a, b: _limit(a > b, a, b), result, high, dtype=dtype)
    return result


def _limit(beyond: Node, a: Node, bound: Node) -> Node:  # on the bound a has its slope of 1
    return select(beyond | rm.is_nan(bound), bound, a)


def _bound(bound: Any, dtype: DType) -> Any:
    """A Python number beyond the range of an integer dtype is as good as the end of the range."""
    if not is_scalar(bound) or not dtype.is_int or bound != bound:
        return bound
    if bound <= dtype.min or bound >= dtype.max:  # type: ignore[operator]
        return dtype.min if bound <= dtype.min else dtype.max  # type: ignore[operator]
    return int(bound)  # type: ignore[arg-type]


# Rounding.


def _rounded(what: str, rule: Rule, x: Any) -> Tensor:
    def apply_rule(a: Node) -> Node:
        return rule(a) if a.dtype.is_float else a

    _only(what, ("bool", "int", "uint", "float"), x)
    return elementwise(what, apply_rule, x)


def floor(x: Any) -> Tensor:
    """Rounded towards -infinity."""
    return _rounded("floor", rm.floor, x)


def ceil(x: Any) -> Tensor:
    """Rounded towards +infinity."""
    return _rounded("ceil", rm.ceil, x)


def trunc(x: Any) -> Tensor:
    """Rounded towards zero."""
    return _rounded("trunc", _op(Op.TRUNC), x)


def round(x: Any) -> Tensor:
    """Rounded to the nearest integer, halves to the even one."""
    x = as_tensor(x)
    if x.dtype.is_complex:
        return elementwise("round", lambda z: cx.join(*map(rm.round_even, cx.parts(z))), x)
    return _rounded("round", rm.round_even, x)


# Exponentials and trigonometry.


def exp(x: Any) -> Tensor:
    """e to the power x."""
    return float_function("exp", _op(Op.EXP), x, of_complex=cx.exp)


def exp2(x: Any) -> Tensor:
    """2 to the power x."""
    return float_function("exp2", _op(Op.EXP2), x)


def expm1(x: Any) -> Tensor:
    """exp(x) - 1, accurate near 0."""
    return float_function("expm1", wide_rule(rm.expm1), x, of_complex=cx.expm1)


def log(x: Any) -> Tensor:
    """The natural logarithm."""
    return float_function("log", _op(Op.LOG), x, of_complex=cx.log)


def log2(x: Any) -> Tensor:
    """The logarithm to base 2."""
    return float_function("log2", _op(Op.LOG2), x, of_complex=lambda z: cx.log_base(z, 2))


def log10(x: Any) -> Tensor:
    """The logarithm to base 10."""
    rule = wide_rule(lambda a: apply(Op.LOG, a) / math.log(10))
    return float_function("log10", rule, x, of_complex=lambda z: cx.log_base(z, 10))


def log1p(x: Any) -> Tensor:
    """log(1 + x), accurate near 0."""
    return float_function("log1p", wide_rule(rm.log1p), x, of_complex=cx.log1p)


def logaddexp(x1: Any, x2: Any) -> Tensor:
    """log(exp(x1) + exp(x2)) without overflow."""
    return float_function("logaddexp", wide_rule(rm.logaddexp), x1, x2)


def sqrt(x: Any) -> Tensor:
    """The square root."""
    return float_function("sqrt", _op(Op.SQRT), x, of_complex=cx.sqrt)


def rsqrt(x: Any) -> Tensor:
    """1 / sqrt(x)."""
    return float_function("rsqrt", lambda a: 1 / apply(Op.SQRT, a), x)


def sin(x: Any) -> Tensor:
    """The sine of an angle in radians."""
    return float_function("sin", _op(Op.SIN), x, of_complex=cx.sin)


def cos(x: Any) -> Tensor:
    """The cosine of an angle in radians."""
    return float_function("cos", _op(Op.COS), x, of_complex=cx.cos)


def tan(x: Any) -> Tensor:
    """The tangent of an angle in radians."""
    return float_function("tan", wide_rule(rm.tan), x, of_complex=cx.tan)


def asin(x: Any) -> Tensor:
    """The inverse sine, in radians."""
    return float_function("asin", wide_rule(rm.asin), x, of_complex=cx.asin)


def acos(x: Any) -> Tensor:
    """The inverse cosine, in radians."""
    return float_function("acos", wide_rule(rm.acos), x, of_complex=cx.acos)


def atan(x: Any) -> Tensor:
    """The inverse tangent, in radians."""
    return float_function("atan", _op(Op.ATAN), x, of_complex=cx.atan)


def atan2(x1: Any, x2: Any) -> Tensor:
    """The angle of the point (x2, x1), in radians."""
    return float_function("atan2", wide_rule(rm.atan2), x1, x2)


def sinh(x: Any) -> Tensor:
    """The hyperbolic sine."""
    return float_function("sinh", wide_rule(rm.sinh), x, of_complex=cx.sinh)


def cosh(x: Any) -> Tensor:
    """The hyperbolic cosine."""
    return float_function("cosh", wide_rule(rm.cosh), x, of_complex=cx.cosh)


def tanh(x: Any) -> Tensor:
    """The hyperbolic tangent."""
    return float_function("tanh", wide_rule(rm.tanh), x, of_complex=cx.tanh)


def asinh(x: Any) -> Tensor:
    """The inverse hyperbolic sine."""
    return float_function("asinh", wide_rule(rm.asinh), x, of_complex=cx.asinh)


def acosh(x: Any) -> Tensor:
    """The inverse hyperbolic cosine."""
    return float_function("acosh", wide_rule(rm.acosh), x, of_complex=cx.acosh)


def atanh(x: Any) -> Tensor:
    """The inverse hyperbolic tangent."""
    return float_function("atanh", wide_rule(rm.atanh), x, of_complex=cx.atanh)


def hypot(x1: Any, x2: Any) -> Tensor:
    """sqrt(x1**2 + x2**2) without overflow."""
    return float_function("hypot", wide_rule(rm.hypot), x1, x2)


def erf(x: Any) -> Tensor:
    """The error function."""
    return float_function("erf", _op(Op.ERF), x)


# Signs, neighbours and parts.


def copysign(x1: Any, x2: Any) -> Tensor:
    """|x1| with the sign of x2."""
    return float_function("copysign", rm.copysign, x1, x2)


def nextafter(x1: Any, x2: Any) -> Tensor:
    """The next representable number from x1 towards x2."""
    return float_function("nextafter", rm.nextafter, x1, x2)


def signbit(x: Any) -> Tensor:
    """Whether the sign bit is set, also for -0.0."""
    return float_function("signbit", rm.signbit, x)


def real(x: Any) -> Tensor:
    """The real part."""
    return elementwise("real", lambda z: cx.parts(z)[0] if z.dtype.is_complex else z, x)


def imag(x: Any) -> Tensor:
    """The imaginary part, 0 for real numbers."""
    return elementwise("imag", lambda z: cx.parts(z)[1] if z.dtype.is_complex else z.lift(0), x)


def conj(x: Any) -> Tensor:
    """The complex conjugate."""
    return elementwise("conj", lambda z: cx.conj(z) if z.dtype.is_complex else z, x)


# Comparison and classification.


def _compare(what: str, rule: Rule, x1: Any, x2: Any, ordered: bool = True) -> Tensor:
    nodes, device = operands(what, x1, x2)
    if ordered and nodes[0].dtype.is_complex:
        raise DTypeError(f"{what}: complex numbers have no order")
    return Tensor.of(rule(*nodes), device)


def equal(x1: Any, x2: Any) -> Tensor:
    """x1 == x2."""
    return _compare("equal", _op(Op.EQ), x1, x2, ordered=False)


def not_equal(x1: Any, x2: Any) -> Tensor:
    """x1 != x2."""
    return _compare("not_equal", lambda a, b: ~a.eq(b), x1, x2, ordered=False)


def less(x1: Any, x2: Any) -> Tensor:
    """x1 < x2."""
    return _compare("less", _op(Op.LT), x1, x2)


def less_equal(x1: Any, x2: Any) -> Tensor:
    """x1 <= x2."""
    return _compare("less_equal", lambda a, b: (a < b) | a.eq(b), x1, x2)


def greater(x1: Any, x2: Any) -> Tensor:
    """x1 > x2."""
    return _compare("greater", lambda a, b: a > b, x1, x2)


def greater_equal(x1: Any, x2: Any) -> Tensor:
    """x1 >= x2."""
    return _compare("greater_equal", lambda a, b: (a > b) | a.eq(b), x1, x2)


def _classify(what: str, rule: Rule, x: Any, exact: bool, both: bool = False) -> Tensor:
    """`rule` over floats, any (or, with `both`, each) part of complex; `exact` for the rest."""

    def classify(a: Node) -> Node:
        if a.dtype.is_complex:
            re, im = map(rule, cx.parts(a))
            return re & im if both else re | im
        if a.dtype.is_float:
            return rule(a)
        return a.eq(a) if exact else ~a.eq(a)

    return elementwise(what, classify, x)


def isnan(x: Any) -> Tensor:
    """Whether it is NaN."""
    return _classify("isnan", rm.is_nan, x, exact=False)


def isinf(x: Any) -> Tensor:
    """Whether it is infinite."""
    return _classify("isinf", rm.is_inf, x, exact=False)


def isfinite(x: Any) -> Tensor:
    """Whether it is neither infinite nor NaN."""
    return _classify("isfinite", rm.is_finite, x, exact=True, both=True)


# Logic and bits.


def _truth(node: Node) -> Node:
    return node if node.dtype is bool_ else ~node.eq(0)


def _logical(what: str, op: Op, *values: Any) -> Tensor:
    return elementwise(what, lambda *nodes: Node(op, tuple(map(_truth, nodes))), *values)


def logical_and(x1: Any, x2: Any) -> Tensor:
    """Both are true; a number is true unless it is 0."""
    return _logical("logical_and", Op.AND, x1, x2)


def logical_or(x1: Any, x2: Any) -> Tensor:
    """At least one is true."""
    return _logical("logical_or", Op.OR, x1, x2)


def logical_xor(x1: Any, x2: Any) -> Tensor:
    """Exactly one is true."""
    return _logical("logical_xor", Op.XOR, x1, x2)


def logical_not(x: Any) -> Tensor:
    """Neither true."""
    return _logical("logical_not", Op.NOT, x)


def bitwise_and(x1: Any, x2: Any) -> Tensor:
    """x1 & x2, for integers and bools."""
    return elementwise("bitwise_and", _op(Op.AND), x1, x2)


def bitwise_or(x1: Any, x2: Any) -> Tensor:
    """x1 | x2, for integers and bools."""
    return elementwise("bitwise_or", _op(Op.OR), x1, x2)


def bitwise_xor(x1: Any, x2: Any) -> Tensor:
    """x1 ^ x2, for integers and bools."""
    return elementwise("bitwise_xor", _op(Op.XOR), x1, x2)


def bitwise_invert(x: Any) -> Tensor:
    """~x, for integers and bools."""
    return elementwise("bitwise_invert", _op(Op.NOT), x)


def bitwise_left_shift(x1: Any, x2: Any) -> Tensor:
    """x1 << x2; the width of the dtype or more gives 0."""
    return elementwise("bitwise_left_shift", _op(Op.SHL), x1, x2)


def bitwise_right_shift(x1: Any, x2: Any) -> Tensor:
    """x1 >> x2, keeping the sign."""
    return elementwise("bitwise_right_shift", _op(Op.SHR), x1, x2)


# Choice.


def where(condition: Any, x1: Any, x2: Any) -> Tensor:
    """x1 where `condition` is true, x2 elsewhere."""
    chooser = as_tensor(condition)
    if chooser.dtype is not bool_:
        raise DTypeError(f"where: the condition is {chooser.dtype.name}; compare to get a bool")
    if is_scalar(x1) and is_scalar(x2):
        x1 = as_tensor(x1)
    values = [one if is_scalar(one) else as_tensor(one, chooser) for one in (x1, x2)]
    dtype = common_dtype("where", *values)
    tensors = [chooser, *(one for one in values if isinstance(one, Tensor))]
    device = common_device("where", *tensors)
    shape = broadcast_shapes("where", *(one.shape for one in tensors))
    yes, no = (
        expand(cast(one.node, dtype), shape) if isinstance(one, Tensor) else full(shape, one, dtype)
        for one in values
    )
    return Tensor.of(select(expand(chooser.node, shape), yes, no), device)


def masked_fill(x: Any, mask: Any, value: Any) -> Tensor:
    """x with `value` where `mask` is true, in the dtype of x."""
    base = as_tensor(x)
    filler = value if is_scalar(value) else as_tensor(value, base).cast(base.dtype)
    return where(mask, filler, base).cast(base.dtype)


def nan_to_num(
    x: Any, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """x with NaN and the infinities replaced; an infinity defaults to the greatest number."""
    base = as_tensor(x)
    if not base.dtype.is_float:
        return base
    most = finfo(base.dtype).max
    high = most if posinf is None else posinf
    low = -most if neginf is None else neginf

    def rule(a: Node) -> Node:
        finite = select(a.eq(math.inf), a.lift(high), select(a.eq(-math.inf), a.lift(low), a))
        return select(rm.is_nan(a), a.lift(nan), finite)

    return elementwise("nan_to_num", rule, base)

