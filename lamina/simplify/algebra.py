"""The algebra of elementwise operations, as equations of the graph dialect.

Every equation holds for NaN, infinities, -0.0 and integers that wrap around; the tests fuzz each
of them against the interpreter. That is why some well-known ones are missing:

- ``x + 0`` is not x for floats (-0.0 + 0.0 is 0.0), nor ``x * 0`` 0 (NaN, infinities), nor
  ``x - x`` 0;
- ``(x * a) // b`` is not ``x * (a // b)`` when ``x * a`` may wrap around; index arithmetic, which
  knows bounds, has that rule of its own;
- ``x ** 0.5`` is not a square root (-inf and -0.0 differ).
"""

from __future__ import annotations

from lamina.ir.ops import Group, Op
from lamina.rewrite.fold import FOLD
from lamina.rewrite.patterns import (
    AnyValue,
    Bits,
    Bool,
    Const,
    DTypeHole,
    Float,
    FloatConst,
    Int,
    IntConst,
    NotConst,
    Real,
    RealConst,
    apply,
    bitcast,
    cast,
    where,
)
from lamina.rewrite.rules import Equation, Rule, RuleSet, collect, equation, rule
from lamina.simplify.guards import has_exact_reciprocal, keeps_bits, makes_own_dtype, skips_cast
from lamina.simplify.movement import MOVEMENT

# Constants: folded, and on the right of operations that commute.


def _fold_rule(op: Op) -> Rule:
    a, b = Const("a"), Const("b")
    term = apply(op, a) if op in Group.UNARY else apply(op, a, b)
    return equation(f"fold_{op.name.lower()}", term, term, commute=False)


FOLDING = [_fold_rule(op) for op in FOLD if op is not Op.CAST]


@rule
def fold_cast(a: Const, to: DTypeHole) -> Equation:
    return cast(a, to), cast(a, to)


def _order_rule(op: Op) -> Rule:
    """Not of complex numbers: the order of operands shows in the rounding of products."""
    a, x = (RealConst if op is Op.MUL else Const)("a"), NotConst("x")
    name = f"constant_right_{op.name.lower()}"
    return equation(name, apply(op, a, x), apply(op, x, a), commute=False)


# In MAX and MIN the order of operands shows in the zero that they make of 0.0 and -0.0.
ORDER = [_order_rule(op) for op in (Op.ADD, Op.MUL, Op.EQ, Op.AND, Op.OR, Op.XOR)]


# Two constants in a chain become one. For floats that would change the rounding.


@rule
def add_constants(x: Int, a: IntConst, b: IntConst) -> Equation:
    return (x + a) + b, x + (a + b)


@rule
def multiply_constants(x: Int, a: IntConst, b: IntConst) -> Equation:
    return (x * a) * b, x * (a * b)


# Sums.


@rule
def add_zero(x: Int) -> Equation:
    return x + 0, x


@rule
def add_negative_zero(x: Float) -> Equation:
    return x + -0.0, x


@rule
def subtract_itself(x: Int) -> Equation:
    return x - x, 0


@rule
def negate_twice(x: Real) -> Equation:
    negative = -x
    return -negative, x


# Products and quotients.


@rule
def multiply_by_zero(x: Int) -> Equation:
    return x * 0, 0


@rule
def multiply_by_one(x: Real) -> Equation:
    return x * 1, x


@rule
def multiply_by_minus_one(x: Real) -> Equation:
    return x * -1, -x


@rule
def negate_factor(x: Real, c: RealConst) -> Equation:
    return -x * c, x * -c


@rule
def divide_by_one(x: Float) -> Equation:
    return x / 1, x


@rule
def divide_by_power_of_two(x: Float, c: FloatConst) -> Equation:
    return x / c, x * (1 / c), has_exact_reciprocal(c, x)


@rule
def floor_divide_by_one(x: Int) -> Equation:
    return x // 1, x


# Powers. A library's power may be off by the last place, a product is not.


@rule
def power_of_one(x: Real) -> Equation:
    return x**1, x


@rule
def power_of_two(x: Real) -> Equation:
    return x**2, x * x


@rule
def power_of_three(x: Real) -> Equation:
    return x**3, x * x * x


# Comparisons.


@rule
def less_than_itself(x: AnyValue) -> Equation:
    return x < x, False


# Bools and bits.


@rule
def not_twice(x: Bits) -> Equation:
    return ~~x, x


@rule
def and_itself(x: Bits) -> Equation:
    return x & x, x


@rule
def and_false(x: Bool) -> Equation:
    return x & False, False


@rule
def and_true(x: Bool) -> Equation:
    return x & True, x


@rule
def and_absorbs(x: Bits, y: Bits) -> Equation:
    return x & (x | y), x


@rule
def or_itself(x: Bits) -> Equation:
    return x | x, x


@rule
def or_false(x: Bool) -> Equation:
    return x | False, x


@rule
def or_true(x: Bool) -> Equation:
    return x | True, True


@rule
def or_absorbs(x: Bits, y: Bits) -> Equation:
    return x | (x & y), x


@rule
def exclusive_or_false(x: Bool) -> Equation:
    return x ^ False, x


# Choices.


@rule
def where_true(x: AnyValue, y: AnyValue) -> Equation:
    return where(True, x, y), x


@rule
def where_false(x: AnyValue, y: AnyValue) -> Equation:
    return where(False, x, y), y


@rule
def where_same(c: Bool, x: AnyValue) -> Equation:
    return where(c, x, x), x


@rule
def where_not(c: Bool, x: AnyValue, y: AnyValue) -> Equation:
    return where(~c, x, y), where(c, y, x)


@rule
def where_inside_yes(c: Bool, x: AnyValue, y: AnyValue, z: AnyValue) -> Equation:
    return where(c, where(c, x, y), z), where(c, x, z)


@rule
def where_inside_no(c: Bool, x: AnyValue, y: AnyValue, z: AnyValue) -> Equation:
    return where(c, x, where(c, y, z)), where(c, x, z)


@rule
def where_else_false(c: Bool, x: Bool) -> Equation:
    return where(c, x, False), c & x


@rule
def where_then_true(c: Bool, x: Bool) -> Equation:
    return where(c, True, x), c | x


# Conversions.


@rule
def cast_to_own_dtype(x: AnyValue, to: DTypeHole) -> Equation:
    return cast(x, to), x, makes_own_dtype(x, to)


@rule
def cast_twice(x: AnyValue, through: DTypeHole, to: DTypeHole) -> Equation:
    return cast(cast(x, through), to), cast(x, to), skips_cast(x, through, to)


@rule
def bitcast_to_own_dtype(x: AnyValue, to: DTypeHole) -> Equation:
    return bitcast(x, to), x, makes_own_dtype(x, to)


@rule
def bitcast_twice(x: AnyValue, through: DTypeHole, to: DTypeHole) -> Equation:
    return bitcast(bitcast(x, through), to), bitcast(x, to), keeps_bits(through, to)


ALGEBRA = RuleSet("algebra", collect(globals()))
SIMPLIFY = RuleSet("simplify", ALGEBRA.rules + MOVEMENT.rules)


# Where derivatives stop matters until they have been taken; see `lamina.autodiff`.
@rule
def detach(x: AnyValue) -> Equation:
    return apply(Op.DETACH, x), x


DROP_DETACH = RuleSet("drop_detach", [detach])
