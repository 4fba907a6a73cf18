"""Elementwise functions of the array API standard, with PyTorch's usual additions.

Most are rows: a family prepares the operands, and a rule makes a node of theirs.
"""

import builtins
import math
import operator
from collections.abc import Callable, Sequence
from functools import partial
from types import FunctionType
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from lamina.core.dtypes import DType, bool_, default_float, default_int, float32
from lamina.errors import ArgumentError, DTypeError
from lamina.frontend.arguments import broadcast_shapes, fitting
from lamina.frontend.functions import complex_math as cx
from lamina.frontend.functions import real_math as rm
from lamina.frontend.functions.inspection import finfo
from lamina.frontend.tensor import (
    Data,
    Tensor,
    as_tensor,
    common_device,
    common_dtype,
    is_scalar,
    once,
)
from lamina.ir.build import cast, expand, full, select, unary
from lamina.ir.node import Node, constant_of
from lamina.ir.ops import Op

__all__ = [
    "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and",
    "bitwise_invert", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor",
    "ceil", "clip", "conj", "copysign", "cos", "cosh", "divide", "elu", "equal", "erf", "exp",
    "exp2", "expm1", "floor", "floor_divide", "gelu", "greater", "greater_equal", "hardsigmoid",
    "hardswish", "hypot", "imag", "isfinite", "isinf", "isnan", "leaky_relu", "less", "less_equal",
    "log", "log1p", "log2", "log10", "logaddexp", "logical_and", "logical_not", "logical_or",
    "logical_xor", "logsigmoid", "masked_fill", "maximum", "minimum", "mish", "multiply",
    "nan_to_num", "negative", "nextafter", "not_equal", "positive", "pow", "real", "reciprocal",
    "relu", "relu6", "remainder", "round", "rsqrt", "sigmoid", "sign", "signbit", "silu", "sin",
    "sinh", "softplus", "softsign", "sqrt", "square", "subtract", "tan", "tanh", "trunc", "where",
]  # fmt: skip

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
Rule = Callable[..., Node]
ComplexRule = Callable[[Node, Node], Node | cx.Parts]


def public(function: F, name: str, doc: str | None) -> F:
    """`function` as the namespace shows it."""
    function.__name__ = function.__qualname__ = name
    function.__module__ = "lamina"
    function.__doc__ = doc
    return function


def variant(
    name: str, doc: str | None, function: Callable[Concatenate[str, T, P], R], which: T
) -> Callable[P, R]:
    """The public function `name`: `function` of its name and of `which`."""
    source: Any = function  # called by its public name, which messages of TypeError have
    named = FunctionType(source.__code__, source.__globals__, name, source.__defaults__)
    named.__kwdefaults__ = source.__kwdefaults__
    named.__annotations__ = source.__annotations__
    return public(partial(public(named, name, doc), name, which), name, doc)


def named(
    name: str, doc: str | None, function: Callable[Concatenate[str, T, P], Tensor], which: T
) -> Callable[P, Tensor]:
    """`variant` of a function that returns one tensor; equal calls build their graph once."""
    return public(once(variant(name, doc, function, which)), name, doc)


def operands(
    what: str, values: Sequence[Any], dtype: Callable[[DType], DType], beside: Tensor | None = None
) -> tuple[list[Node], str]:
    """`values` as nodes of one shape, `beside`'s included, and one dtype, what `dtype` makes of the
    promoted one; and their device. Python scalars are constants without a buffer; anything else
    that is not a tensor goes through `asarray`."""
    like = [beside, *(value for value in values if isinstance(value, Tensor))][-1]
    scalars_and_tensors: list[Any] = []
    for value in values:
        if isinstance(value, Tensor) or (like is not None and is_scalar(value)):
            scalars_and_tensors.append(value)
        else:
            like = as_tensor(value, like)
            scalars_and_tensors.append(like)
    tensors = [value for value in (beside, *scalars_and_tensors) if isinstance(value, Tensor)]
    shape = broadcast_shapes(what, *(tensor.shape for tensor in tensors))
    target = dtype(common_dtype(what, *scalars_and_tensors))
    nodes = []
    for value in scalars_and_tensors:
        if is_scalar(value):
            nodes.append(full(shape, fitting(what, value, target), target))
        else:
            nodes.append(expand(cast(value.node, target), shape))
    return nodes, common_device(what, *tensors)


class Family(NamedTuple):
    """How functions prepare their operands. dtype: what the promoted dtype becomes. of_complex:
    whether the rules are for complex numbers as well. wide: the 16-bit floats, whose rounding would
    add up, are computed in float32."""

    dtype: Callable[[DType], DType]
    of_complex: bool = False
    wide: bool = False

    def __call__(
        self, what: str, rule: Op | Rule, *values: Any, of_complex: ComplexRule | None = None
    ) -> Tensor:
        """`rule` of `values`, or `of_complex` of the parts of a complex one."""
        nodes, device = operands(what, values, self.dtype)
        dtype = nodes[0].dtype
        if dtype.is_complex and of_complex is not None:
            computed = of_complex(*cx.parts(*nodes))  # a node, or its real and imaginary part
            if not isinstance(computed, Node):
                computed = Node(Op.COMPLEX, computed)
            return Tensor.of(computed, device)
        if dtype.is_complex and not self.of_complex:
            raise DTypeError(f"{dtype.name} is not supported; take real() or abs()", operation=what)
        narrow = self.wide and dtype.is_small
        if narrow:
            nodes = [cast(node, float32) for node in nodes]
        result = Node(rule, tuple(nodes)) if isinstance(rule, Op) else rule(*nodes)
        return Tensor.of(cast(result, dtype) if narrow else result, device)

    def unary(
        self, name: str, doc: str, rule: Op | Rule, of_complex: ComplexRule | None = None
    ) -> Callable[[Any], Tensor]:
        """A public function of one tensor, array or number."""
        return once(public(lambda x: self(name, rule, x, of_complex=of_complex), name, doc))

    def binary(self, name: str, doc: str, rule: Op | Rule) -> Callable[[Any, Any], Tensor]:
        """A public function of two tensors, arrays or numbers, which broadcast."""
        return once(public(lambda x1, x2: self(name, rule, x1, x2), name, doc))


def float_dtype(dtype: DType) -> DType:
    """The dtype that a float function computes integers and bools in."""
    return dtype if dtype.kind in ("float", "complex") else default_float


def _same(x: T) -> T:
    return x


def _number_dtype(dtype: DType) -> DType:
    return default_int if dtype is bool_ else dtype


SAME = Family(_same, of_complex=True)
REALS = Family(_same)
NUMBERS = Family(_number_dtype, of_complex=True)
QUOTIENTS = Family(float_dtype, of_complex=True)
FLOATS = Family(float_dtype)
WIDE = Family(float_dtype, wide=True)


def _of_floats(rule: Rule, other: Rule = _same) -> Rule:
    """`rule` for floats, `other` for integers and bools."""
    return lambda a: rule(a) if a.dtype.is_float else other(a)


def _of_truth(op: Op) -> Rule:
    """`op` of whether numbers are not 0."""
    return lambda *nodes: Node(op, tuple(n if n.dtype is bool_ else ~n.eq(0) for n in nodes))


def _of_bools(op: Op, of_numbers: Op) -> Rule:
    """`op` of two bools, `of_numbers` of two numbers."""
    return lambda a, b: Node(op if a.dtype is bool_ else of_numbers, (a, b))


def _difference(a: Node, b: Node) -> Node:
    if a.dtype is bool_:
        raise DTypeError(
            "bools have no difference; use x1 ^ x2 (logical_xor)", operation="subtract"
        )
    return a - b


def _negated(a: Node) -> Node:
    if a.dtype is bool_:
        raise DTypeError("bools have no sign; use ~x (logical_not)", operation="negative")
    return -a


def _has_known(test: Callable[[Any], Any], operand: Any) -> bool:
    """Whether `test` holds for an element of `operand` that is known: of a Python number, a list or
    an array of NumPy. The elements of a tensor are not looked at."""
    if isinstance(operand, Tensor):
        return False
    if is_scalar(operand):
        return bool(test(operand))
    import numpy as np

    return bool(np.any(test(np.asarray(operand))))


def _refusing(
    function: Callable[[Any, Any], Tensor], refused: Callable[[Any], Any], why: str
) -> Callable[[Any, Any], Tensor]:
    """The public `function` of two operands, which raises ArgumentError for integers if a known
    element of the second one is `refused`."""

    def careful(x1: Any, x2: Any) -> Tensor:
        result = function(x1, x2)
        if result.dtype.is_int and _has_known(refused, x2):
            shown = " ".join(repr(x2).split())
            raise ArgumentError(f"integers and x2={shown}: {why}", operation=function.__name__)
        return result

    return public(careful, function.__name__, function.__doc__)


def _remainder(a: Node, b: Node) -> Node:
    value = Node(Op.MOD, (a, b))
    return value if a.dtype.is_int else select(value.eq(0), rm.with_sign(value, b), value)


def _power(a: Node, b: Node) -> Node:
    if constant_of(b) == 2:
        return a * a
    return cx.power(a, b) if a.dtype.is_complex else Node(Op.POW, (a, b))


# Arithmetic.
add = SAME.binary("add", "x1 + x2; of bools, whether one of them is true.",
                  _of_bools(Op.OR, Op.ADD))  # fmt: skip
subtract = SAME.binary("subtract", "x1 - x2, for numbers.", _difference)
multiply = SAME.binary("multiply", "x1 * x2; of bools, whether both are true.",
                       _of_bools(Op.AND, Op.MUL))  # fmt: skip
divide = QUOTIENTS.binary("divide", "x1 / x2; integers become the default float.", Op.DIV)
floor_divide = _refusing(
    Family(_number_dtype, wide=True).binary(
        "floor_divide",
        """The quotient rounded towards -infinity. An integer divided by 0 is refused where the
        divisor is a number, a list or an array of NumPy, and gives 0 where it is a tensor.""",
        lambda a, b: Node(Op.IDIV, (a, b)) if a.dtype.is_int else rm.floor_divide(a, b),
    ),
    lambda x2: x2 == 0, "an integer has no quotient by 0",
)  # fmt: skip
remainder = _refusing(
    Family(_number_dtype).binary(
        "remainder",
        """The remainder with the sign of the divisor. An integer modulo 0 is refused where the
        divisor is a number, a list or an array of NumPy, and gives 0 where it is a tensor.""",
        _remainder,
    ),
    lambda x2: x2 == 0, "an integer has no remainder by 0",
)  # fmt: skip
pow = _refusing(
    NUMBERS.binary(
        "pow",
        """x1 raised to the power x2. A negative power of integers is refused where it is a number,
        a list or an array of NumPy; where it is a tensor, the result is rounded towards 0.""",
        _power,
    ),
    lambda x2: x2 < 0, "a negative power is no integer; cast x1 to a float",
)  # fmt: skip
negative = SAME.unary("negative", "-x, for numbers.", _negated)
positive = NUMBERS.unary("positive", "x itself.", _same)
square = NUMBERS.unary("square", "x * x.", lambda a: a * a)
abs = SAME.unary(
    "abs", "The absolute value; the modulus, which is real, of a complex number.",
    _of_floats(rm.absolute, lambda a: select(a < 0, -a, a) if a.dtype.kind == "int" else a),
    rm.hypot,
)  # fmt: skip
sign = NUMBERS.unary("sign", "-1, 0 or 1; x / |x| for complex numbers.", rm.sign, cx.sign)
reciprocal = QUOTIENTS.unary("reciprocal", "1 / x.", lambda a: 1 / a)
maximum = REALS.binary("maximum", "The greater one; NaN wins.", Op.MAX)
minimum = REALS.binary("minimum", "The smaller one; NaN wins.", Op.MIN)

# Rounding.
floor = REALS.unary("floor", "Rounded towards -infinity.", _of_floats(rm.floor))
ceil = REALS.unary("ceil", "Rounded towards +infinity.", _of_floats(lambda a: -rm.floor(-a)))
trunc = REALS.unary("trunc", "Rounded towards zero.", _of_floats(lambda a: Node(Op.TRUNC, (a,))))
_round = REALS.unary(
    "round", "Rounded to the nearest integer, halves to the even one.",
    _of_floats(rm.round_even), lambda re, im: (rm.round_even(re), rm.round_even(im)),
)  # fmt: skip


def round(x: Data, decimals: int = 0) -> Tensor:
    """Rounded to the nearest integer, halves to the even one; or to a multiple of
    ``10 ** -decimals``, by scaling, which rounds itself, as NumPy and PyTorch do."""
    if decimals == 0:
        return _round(x)
    if x.dtype.is_int or x.dtype is bool_:
        raise DTypeError(
            f"decimals={decimals} of {x.dtype.name}; cast it to a float", operation="round"
        )
    scale = 10.0 ** builtins.abs(decimals)
    if decimals > 0:
        return divide(_round(multiply(x, scale)), scale)
    return multiply(_round(divide(x, scale)), scale)


# Exponentials and trigonometry.
exp = FLOATS.unary("exp", "e to the power x.", Op.EXP, cx.exp)
exp2 = FLOATS.unary("exp2", "2 to the power x.", Op.EXP2)
expm1 = WIDE.unary("expm1", "exp(x) - 1, accurate near 0.", rm.expm1, cx.expm1)
log = FLOATS.unary("log", "The natural logarithm.", Op.LOG, cx.log)
log2 = FLOATS.unary("log2", "The logarithm to base 2.", Op.LOG2, partial(cx.log, base=2))
log10 = WIDE.unary("log10", "The logarithm to base 10.",
                   lambda a: unary(Op.LOG, a) / math.log(10), partial(cx.log, base=10))  # fmt: skip
log1p = WIDE.unary("log1p", "log(1 + x), accurate near 0.", rm.log1p, cx.log1p)
logaddexp = WIDE.binary("logaddexp", "log(exp(x1) + exp(x2)) without overflow.", rm.logaddexp)
sqrt = FLOATS.unary("sqrt", "The square root.", Op.SQRT, cx.sqrt)
rsqrt = FLOATS.unary("rsqrt", "1 / sqrt(x).", lambda a: 1 / Node(Op.SQRT, (a,)))
sin = FLOATS.unary("sin", "The sine of an angle in radians.", Op.SIN, cx.sin)
cos = FLOATS.unary("cos", "The cosine of an angle in radians.", Op.COS, cx.cos)
tan = WIDE.unary("tan", "The tangent of an angle in radians.", rm.tan, cx.tan)
# Two roots, as that of a product has no slope where it is 0.
asin = WIDE.unary("asin", "The inverse sine, in radians.", rm.asin, cx.asin)
acos = WIDE.unary("acos", "The inverse cosine, in radians.", rm.acos, cx.acos)
atan = FLOATS.unary("atan", "The inverse tangent, in radians.", Op.ATAN, cx.atan)
atan2 = WIDE.binary("atan2", "The angle of the point (x2, x1), in radians.", rm.atan2)
sinh = WIDE.unary("sinh", "The hyperbolic sine.", rm.sinh, cx.sinh)
cosh = WIDE.unary("cosh", "The hyperbolic cosine.", rm.cosh, cx.cosh)
tanh = FLOATS.unary("tanh", "The hyperbolic tangent.", Op.TANH, cx.tanh)
asinh = WIDE.unary("asinh", "The inverse hyperbolic sine.", rm.asinh, cx.asinh)
acosh = WIDE.unary("acosh", "The inverse hyperbolic cosine.", rm.acosh, cx.acosh)
atanh = WIDE.unary("atanh", "The inverse hyperbolic tangent.", rm.atanh, cx.atanh)
hypot = WIDE.binary("hypot", "sqrt(x1**2 + x2**2) without overflow.", rm.hypot)
erf = FLOATS.unary("erf", "The error function.", Op.ERF)

# Signs, neighbours and parts.
copysign = FLOATS.binary("copysign", "|x1| with the sign of x2.", rm.copysign)
nextafter = FLOATS.binary("nextafter", "The next number from x1 towards x2.", rm.nextafter)
signbit = FLOATS.unary("signbit", "Whether the sign bit is set, also for -0.0.", rm.signbit)
real = SAME.unary("real", "The real part.", _same, lambda re, im: re)
imag = SAME.unary("imag", "The imaginary part, 0 for real numbers.",
                  lambda a: a.lift(0), lambda re, im: im)  # fmt: skip
conj = SAME.unary("conj", "The complex conjugate.", _same, lambda re, im: (re, -im))

# Comparison and classification.
equal = SAME.binary("equal", "x1 == x2.", Op.EQ)
not_equal = SAME.binary("not_equal", "x1 != x2.", lambda a, b: ~a.eq(b))
less = REALS.binary("less", "x1 < x2.", Op.LT)
less_equal = REALS.binary("less_equal", "x1 <= x2.", lambda a, b: (a < b) | a.eq(b))
greater = REALS.binary("greater", "x1 > x2.", operator.gt)
greater_equal = REALS.binary("greater_equal", "x1 >= x2.", lambda a, b: (a > b) | a.eq(b))
isnan = SAME.unary("isnan", "Whether it is NaN.", rm.is_nan,
                   lambda re, im: rm.is_nan(re) | rm.is_nan(im))  # fmt: skip
isinf = SAME.unary("isinf", "Whether it is infinite.",
                   _of_floats(rm.is_inf, rm.is_nan),
                   lambda re, im: rm.is_inf(re) | rm.is_inf(im))  # fmt: skip
isfinite = SAME.unary(
    "isfinite", "Whether it is neither infinite nor NaN.",
    _of_floats(rm.is_finite, lambda a: a.eq(a)),
    lambda re, im: rm.is_finite(re) & rm.is_finite(im),
)  # fmt: skip

# Logic and bits.
logical_and = SAME.binary("logical_and", "Both are true, as numbers but 0 are.", _of_truth(Op.AND))
logical_or = SAME.binary("logical_or", "At least one is true.", _of_truth(Op.OR))
logical_xor = SAME.binary("logical_xor", "Exactly one is true.", _of_truth(Op.XOR))
logical_not = SAME.unary("logical_not", "Neither true.", _of_truth(Op.NOT))
bitwise_and = SAME.binary("bitwise_and", "x1 & x2, for integers and bools.", Op.AND)
bitwise_or = SAME.binary("bitwise_or", "x1 | x2, for integers and bools.", Op.OR)
bitwise_xor = SAME.binary("bitwise_xor", "x1 ^ x2, for integers and bools.", Op.XOR)
bitwise_invert = SAME.unary("bitwise_invert", "~x, for integers and bools.", Op.NOT)
bitwise_left_shift = SAME.binary("bitwise_left_shift", "x1 << x2; 0 from the width on.", Op.SHL)
bitwise_right_shift = SAME.binary("bitwise_right_shift", "x1 >> x2, keeping the sign.", Op.SHR)


@once
def where(condition: Any, x1: Any, x2: Any) -> Tensor:
    """x1 where `condition` is true, x2 elsewhere."""
    chooser = as_tensor(condition)
    if chooser.dtype is not bool_:
        raise DTypeError(
            f"the condition is {chooser.dtype.name}; compare to get a bool", operation="where"
        )
    (yes, no), device = operands("where", (x1, x2), _same, beside=chooser)
    return Tensor.of(select(expand(chooser.node, yes.shape), yes, no), device)


def masked_fill(x: Data, mask: Any, value: Any) -> Tensor:
    """x with `value` where `mask` is true, in the dtype of x."""
    return where(mask, as_tensor(value, x, "masked_fill").cast(x.dtype), x)


def clip(x: Data, min: Any = None, max: Any = None) -> Tensor:
    """x limited to min..max, either of which may be missing, in the dtype of x."""
    result, dtype = Tensor.of(x.node, x.device), x.dtype
    family = Family(lambda _: dtype)
    for bound, beyond in ((min, operator.lt), (max, operator.gt)):
        if is_scalar(bound) and dtype.is_int and bound == bound:
            # A Python number beyond the range is as good as the end of the range.
            bound = int(sorted((dtype.min, bound, dtype.max))[1])
        if bound is not None:
            result = family("clip", partial(_limit, beyond), result, bound)
    return result


def _limit(beyond: Callable[[Node, Node], Node], a: Node, bound: Node) -> Node:
    """`bound` where `a` is beyond it; on the bound `a` has its slope of 1."""
    return select(beyond(a, bound) | rm.is_nan(bound), bound, a)


def nan_to_num(
    x: Data, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """x with NaN and the infinities replaced; an infinity defaults to the greatest number."""
    if not x.dtype.is_float:
        return REALS("nan_to_num", _same, x)
    largest = finfo(x.dtype).max
    low = masked_fill(x, equal(x, -math.inf), -largest if neginf is None else neginf)
    both = masked_fill(low, equal(x, math.inf), largest if posinf is None else posinf)
    return masked_fill(both, isnan(x), nan)


# Activation functions of neural networks, named as in PyTorch.


def _relu6(x: Node) -> Node:
    """Constant on both bounds too, where PyTorch has no slope."""
    low = select((x < 0) | x.eq(0), x.lift(0), x)
    return select((low > 6) | low.eq(6), x.lift(6), low)


def _softplus(x: Node) -> Node:
    """At 0 exp(-|x|) has the derivative from the right."""
    return select(x < 0, x.lift(0), x) + rm.log1p(unary(Op.EXP, select(x < 0, x, -x)))


def _mish(x: Node) -> Node:
    """The hyperbolic tangent of log(1 + e^x) is ``t / (t + 2)`` for ``t = e^x (e^x + 2)``: an
    exponential and a quotient, in place of two of each and a logarithm.

    From 20 on it is 1 in every dtype, as t is 2e17, and below -1000 it is 0. There x has no slope
    in it, as x times that would be infinity times 0."""
    bounded = select(x > 20, x.lift(20), select(x < -1000, x.lift(-1000), x))
    power = unary(Op.EXP, bounded)
    t = power * (power + 2)
    return x * (t / (t + 2))


relu = REALS.unary("relu", "max(x, 0), whose derivative at 0 is 0; NaN stays.",
                   lambda a: select(a < 0, a.lift(0), select(a.eq(0), a.lift(0), a)))  # fmt: skip
relu6 = FLOATS.unary("relu6", "x limited to 0..6.", _relu6)
sigmoid = WIDE.unary("sigmoid", "1 / (1 + exp(-x)), without overflow.", Op.LOGISTIC)
logsigmoid = WIDE.unary("logsigmoid", "log(sigmoid(x)) without overflow.", lambda a: -_softplus(-a))
hardsigmoid = WIDE.unary("hardsigmoid", "``relu6(x + 3) / 6``.", lambda a: _relu6(a + 3) / 6)
silu = WIDE.unary("silu", "x sigmoid(x), also called swish.", lambda a: a * unary(Op.LOGISTIC, a))
hardswish = WIDE.unary("hardswish", "``x relu6(x + 3) / 6``.", lambda a: a * (_relu6(a + 3) / 6))
mish = WIDE.unary("mish", "x tanh(softplus(x)).", _mish)
softsign = FLOATS.unary("softsign", "x / (1 + |x|).", lambda a: a / (rm.absolute(a) + 1))


def leaky_relu(x: Any, negative_slope: float = 0.01) -> Tensor:
    """x, or `negative_slope` x below 0."""
    return FLOATS("leaky_relu", lambda a: select(a > 0, a, a * negative_slope), x)


def elu(x: Any, alpha: float = 1.0) -> Tensor:
    """x, or ``alpha (exp(x) - 1)`` at 0 and below."""

    def rule(a: Node) -> Node:
        return select(a > 0, a, rm.expm1(select(a > 0, a.lift(0), a)) * alpha)  # NaN's slope is NaN

    return WIDE("elu", rule, x)


@once
def gelu(x: Any, approximate: str = "none") -> Tensor:
    """x times the normal distribution function; ``approximate="tanh"`` for the older formula."""
    if approximate not in ("none", "tanh"):
        raise ArgumentError(
            f"approximate={approximate!r}; it is 'none' or 'tanh'", operation="gelu"
        )
    if approximate == "none":
        return WIDE("gelu", lambda a: (Node(Op.ERF, (a * 0.5**0.5,)) * 0.5 + 0.5) * a, x)
    slope = math.sqrt(2 / math.pi) * 2
    bend = slope * 0.044715
    return WIDE("gelu", lambda a: a * unary(Op.LOGISTIC, a * (a * a * bend + slope)), x)


def softplus(x: Any, beta: float = 1.0, threshold: float = math.inf) -> Tensor:
    """log(1 + exp(beta x)) / beta, without overflow; x itself where beta x is above `threshold`.

    The formula is exact for every x, so no threshold is needed. PyTorch's default is 20, where the
    two differ by 2e-9."""

    def rule(a: Node) -> Node:
        scaled = a * beta
        curved = _softplus(scaled) * (1 / beta)
        if threshold == math.inf:
            return curved
        return select(scaled > threshold, a, curved)

    return WIDE("softplus", rule, x)
