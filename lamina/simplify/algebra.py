"""The algebra of elementwise operations, as equations of the graph dialect.

Every equation holds for NaN, infinities, -0.0 and integers that wrap around; the tests fuzz each
of them against the interpreter. That is why some well-known ones are missing:

- ``x + 0`` is not x for floats (-0.0 + 0.0 is 0.0), nor ``x * 0`` 0 (NaN, infinities), nor
  ``x - x`` 0; ``x * 1`` is not x for complex infinities;
- ``(x * a) // b`` is not ``x * (a // b)`` when ``x * a`` may wrap around; index arithmetic, which
  knows bounds, has that rule of its own;
- ``x ** 0.5`` is not a square root (-inf and -0.0 differ).
"""

from __future__ import annotations

from lamina.ir.infer import KINDS
from lamina.ir.ops import Group, Op
from lamina.rewrite.fold import FOLD
from lamina.rewrite.patterns import (
    AnyValue,
    Bits,
    BitsConst,
    Bool,
    Complex,
    Const,
    DTypeHole,
    Float,
    FloatConst,
    Hole,
    Int,
    IntConst,
    NotConst,
    Number,
    Real,
    RealConst,
    apply,
    bitcast,
    cast,
    maximum,
    minimum,
    where,
)
from lamina.rewrite.rules import Equation, Rule, RuleSet, collect, rule
from lamina.simplify.guards import (
    divides,
    has_complex,
    has_exact_reciprocal,
    is_greatest,
    is_least,
    is_power_of_two,
    keeps_bits,
    makes_own_dtype,
    product_fits,
    skips_cast,
)
from lamina.simplify.movement import MOVEMENT

# Constants: folded, and on the right of operations that commute.


def _fold_rule(op: Op) -> Rule:
    name = f"fold_{op.name.lower()}"

    @rule(name=name, commute=False)
    def unary(a: Const) -> Equation:
        return apply(op, a), apply(op, a)

    @rule(name=name, commute=False)
    def binary(a: Const, b: Const) -> Equation:
        return apply(op, a, b), apply(op, a, b)

    return unary if op in Group.UNARY else binary


@rule
def fold_cast(a: Const, to: DTypeHole) -> Equation:
    return cast(a, to), cast(a, to)


FOLDING = [
    _fold_rule(op) for op in Op if op in FOLD and op not in (Op.CAST, Op.WHERE)
]


def _order_rule(op: Op) -> Rule:
    """Not where the order of operands shows: in the zero that MAX of 0.0 and -0.0 is, and in the
    rounding of complex products."""
    constant = {Op.MAX: BitsConst, Op.MIN: BitsConst, Op.MUL: RealConst}.get(op, Const)

    def definition(a: Const, x: NotConst) -> Equation:
        return apply(op, a, x), apply(op, x, a)

    definition.__annotations__ = {"a": constant, "x": NotConst}
    return rule(name=f"constant_right_{op.name.lower()}", commute=False)(definition)


ORDER = [_order_rule(op) for op in Op if op in Group.COMMUTATIVE]


def _associate_rule(op: Op) -> Rule:
    """Two constants in a chain become one; for floats that would change the rounding."""
    hole, constant = (Bits, Const) if "bool" in KINDS[op] else (Int, IntConst)

    def definition(x: Hole, a: Const, b: Const) -> Equation:
        return apply(op, apply(op, x, a), b), apply(op, x, apply(op, a, b))

    definition.__annotations__ = {"x": hole, "a": constant, "b": constant}
    return rule(name=f"associate_{op.name.lower()}", commute=False)(definition)


ASSOCIATE = [
    _associate_rule(op) for op in (Op.ADD, Op.MUL, Op.AND, Op.OR, Op.XOR, Op.MAX, Op.MIN)
]


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
def add_and_subtract(x: Int, y: Int) -> Equation:
    return (x + y) - y, x


@rule
def subtract_and_add(x: Int, y: Int) -> Equation:
    return (x - y) + y, x


@rule
def common_factor(x: Int, a: IntConst, b: IntConst) -> Equation:
    return x * a + x * b, x * (a + b)


@rule
def negate_twice(x: Number) -> Equation:
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
def multiply_negatives(x: Real, y: Real) -> Equation:
    return -x * -y, x * y


@rule
def negate_factor(x: Real, c: RealConst) -> Equation:
    return -x * c, x * -c


@rule
def divide_by_one(x: Float) -> Equation:
    return x / 1, x


@rule
def divide_by_minus_one(x: Float) -> Equation:
    return x / -1, -x


@rule
def divide_by_power_of_two(x: Float, c: FloatConst) -> Equation:
    return x / c, x * (1 / c), has_exact_reciprocal(c, x)


@rule
def divide_negatives(x: Float, y: Float) -> Equation:
    return -x / -y, x / y


@rule
def floor_divide_by_one(x: Int) -> Equation:
    return x // 1, x


@rule
def floor_divide_zero(x: Int) -> Equation:
    return 0 // x, 0


@rule
def floor_divide_twice(x: Int, a: IntConst, b: IntConst) -> Equation:
    return (x // a) // b, x // (a * b), product_fits(a, b, x)


@rule
def remainder_by_one(x: Int) -> Equation:
    return x % 1, 0


@rule
def remainder_of_zero(x: Int) -> Equation:
    return 0 % x, 0


@rule
def remainder_by_itself(x: Int) -> Equation:
    return x % x, 0


@rule
def remainder_again(x: Int, y: Int) -> Equation:
    return (x % y) % y, x % y


@rule
def remainder_twice(x: Int, a: IntConst, b: IntConst) -> Equation:
    return (x % a) % b, x % b, divides(b, a)


@rule
def remainder_of_multiple(x: Int, a: IntConst, b: IntConst) -> Equation:
    # Only a power of two still divides a product that has wrapped around.
    return (x * a) % b, 0, divides(b, a), is_power_of_two(b)


# Powers. A library's power may be off by the last place, a product is not.


@rule
def power_of_zero(x: Real) -> Equation:
    return x**0, 1


@rule
def power_of_one(x: Real) -> Equation:
    return x**1, x


@rule(ulps=1)
def power_of_two(x: Real) -> Equation:
    return x**2, x * x


@rule(ulps=2)
def power_of_three(x: Real) -> Equation:
    return x**3, x * x * x


@rule(ulps=1)
def power_of_minus_one(x: Float) -> Equation:
    return x**-1, 1 / x


# Extrema.


@rule
def maximum_of_itself(x: AnyValue) -> Equation:
    return maximum(x, x), x


@rule
def minimum_of_itself(x: AnyValue) -> Equation:
    return minimum(x, x), x


@rule
def maximum_with_least(x: AnyValue, c: Const) -> Equation:
    return maximum(x, c), x, is_least(c, x)


@rule
def minimum_with_greatest(x: AnyValue, c: Const) -> Equation:
    return minimum(x, c), x, is_greatest(c, x)


@rule
def maximum_with_greatest(x: Bits, c: Const) -> Equation:
    return maximum(x, c), c, is_greatest(c, x)


@rule
def minimum_with_least(x: Bits, c: Const) -> Equation:
    return minimum(x, c), c, is_least(c, x)


# The commuted forms would not say which zero wins: max(-0.0, max(0.0, -0.0)).
@rule(commute=False)
def maximum_again(x: AnyValue, y: AnyValue) -> Equation:
    return maximum(maximum(x, y), y), maximum(x, y)


@rule(commute=False)
def minimum_again(x: AnyValue, y: AnyValue) -> Equation:
    return minimum(minimum(x, y), y), minimum(x, y)


# Comparisons.


@rule
def less_than_itself(x: AnyValue) -> Equation:
    return x < x, False


@rule
def less_than_least(x: AnyValue, c: Const) -> Equation:
    return x < c, False, is_least(c, x)


@rule
def greater_than_greatest(x: AnyValue, c: Const) -> Equation:
    return x > c, False, is_greatest(c, x)


@rule
def equal_to_itself(x: Bits) -> Equation:
    return x.eq(x), True


@rule
def equal_to_true(x: Bool) -> Equation:
    return x.eq(True), x


@rule
def equal_to_false(x: Bool) -> Equation:
    return x.eq(False), ~x


@rule
def equal_after_sum(x: Int, a: IntConst, b: IntConst) -> Equation:
    return (x + a).eq(b), x.eq(b - a)


# Bools and bits.


@rule
def not_twice(x: Bits) -> Equation:
    return ~~x, x


@rule
def and_itself(x: Bits) -> Equation:
    return x & x, x


@rule
def and_complement(x: Int) -> Equation:
    return x & ~x, 0


@rule
def and_not(x: Bool) -> Equation:
    return x & ~x, False


@rule
def and_zero(x: Int) -> Equation:
    return x & 0, 0


@rule
def and_false(x: Bool) -> Equation:
    return x & False, False


@rule
def and_ones(x: Int) -> Equation:
    return x & -1, x


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
def or_complement(x: Int) -> Equation:
    return x | ~x, -1


@rule
def or_not(x: Bool) -> Equation:
    return x | ~x, True


@rule
def or_zero(x: Int) -> Equation:
    return x | 0, x


@rule
def or_false(x: Bool) -> Equation:
    return x | False, x


@rule
def or_ones(x: Int) -> Equation:
    return x | -1, -1


@rule
def or_true(x: Bool) -> Equation:
    return x | True, True


@rule
def or_absorbs(x: Bits, y: Bits) -> Equation:
    return x | (x & y), x


@rule
def exclusive_or_itself(x: Int) -> Equation:
    return x ^ x, 0


@rule
def exclusive_or_same(x: Bool) -> Equation:
    return x ^ x, False


@rule
def exclusive_or_zero(x: Int) -> Equation:
    return x ^ 0, x


@rule
def exclusive_or_false(x: Bool) -> Equation:
    return x ^ False, x


@rule
def exclusive_or_ones(x: Int) -> Equation:
    return x ^ -1, ~x


@rule
def exclusive_or_true(x: Bool) -> Equation:
    return x ^ True, ~x


@rule
def shift_left_by_zero(x: Int) -> Equation:
    return x << 0, x


@rule
def shift_right_by_zero(x: Int) -> Equation:
    return x >> 0, x


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


@rule
def where_then_false(c: Bool, x: Bool) -> Equation:
    return where(c, False, x), ~c & x


# Conversions and parts.


@rule
def cast_to_own_dtype(x: AnyValue, to: DTypeHole) -> Equation:
    return cast(x, to), x, makes_own_dtype(x, to)


@rule
def cast_twice(x: AnyValue, through: DTypeHole, to: DTypeHole) -> Equation:
    return cast(cast(x, through), to), cast(x, to), skips_cast(x, through, to)


@rule
def cast_choice(c: Bool, a: Const, b: Const, to: DTypeHole) -> Equation:
    return cast(where(c, a, b), to), where(c, cast(a, to), cast(b, to))


@rule
def bitcast_to_own_dtype(x: AnyValue, to: DTypeHole) -> Equation:
    return bitcast(x, to), x, makes_own_dtype(x, to)


@rule
def bitcast_twice(x: AnyValue, through: DTypeHole, to: DTypeHole) -> Equation:
    return bitcast(bitcast(x, through), to), bitcast(x, to), keeps_bits(through, to)


@rule
def truncate_twice(x: Float) -> Equation:
    truncated = apply(Op.TRUNC, x)
    return apply(Op.TRUNC, truncated), truncated


@rule
def real_of_complex(x: Float, y: Float) -> Equation:
    return apply(Op.REAL, apply(Op.COMPLEX, x, y)), x, has_complex(x)


@rule
def imaginary_of_complex(x: Float, y: Float) -> Equation:
    return apply(Op.IMAG, apply(Op.COMPLEX, x, y)), y, has_complex(x)


@rule
def complex_of_parts(z: Complex) -> Equation:
    return apply(Op.COMPLEX, apply(Op.REAL, z), apply(Op.IMAG, z)), z


ALGEBRA = RuleSet("algebra", collect(globals()))
SIMPLIFY = RuleSet("simplify", ALGEBRA.rules + MOVEMENT.rules)


# Where derivatives stop matters until they have been taken; see `lamina.autodiff`.
@rule
def detach(x: AnyValue) -> Equation:
    return apply(Op.DETACH, x), x


DROP_DETACH = RuleSet("drop_detach", [detach])
