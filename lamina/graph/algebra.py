"""The algebra of elementwise operations, as equations of the graph dialect.

Every equation holds for NaN, infinities, -0.0 and integers that wrap around, to the bit unless it
says by how many units of the last place; the tests fuzz each of them against the interpreter. That
is why some well-known ones are missing:

- ``x + 0`` is not x for floats (-0.0 + 0.0 is 0.0), nor ``x * 0`` 0 (NaN, infinities), nor
  ``x - x`` 0;
- ``(x * a) // b`` is not ``x * (a // b)`` when ``x * a`` may wrap around; index arithmetic, which
  knows bounds, has that rule of its own;
- ``x ** 0.5`` is not a square root (-inf and -0.0 differ).
"""

import math

from lamina.core.dtypes import DType, bool_
from lamina.graph.movement import MOVEMENT
from lamina.graph.rewrite import equation, hole, on
from lamina.graph.split_reductions import reduce_in_parts
from lamina.graph.split_scans import scan_in_parts
from lamina.ir.build import cast, unary
from lamina.ir.build import select as where
from lamina.ir.interpreter import fold_constant
from lamina.ir.node import Node, constant_of
from lamina.ir.ops import Group, Kinds, Op


def has_exact_reciprocal(f: Node, d: Node) -> bool:
    """d and 1 / d are normal powers of two in f's dtype."""
    significand, exponent = math.frexp(constant_of(d))  # type: ignore[arg-type]
    return abs(significand) == 0.5 and f.dtype.least <= exponent - 1 <= -f.dtype.least


# Left out is what every target may round in its own way, and bits: those of a NaN are not kept.
@on(*(Group.ELEMENTWISE - Group.TRANSCENDENTAL - {Op.POW, Op.BITCAST}))
def fold_constants(node: Node) -> Node | None:
    """An operation on constants is a constant."""
    known = all(constant_of(operand) is not None for operand in node.src)
    return fold_constant(node.op, node.src, node.arg) if known else None


# In MAX and MIN the order of operands shows in the zero that they make of 0.0 and -0.0.
@on(Op.ADD, Op.MUL, Op.EQ, Op.AND, Op.OR, Op.XOR)
def constant_right(node: Node) -> Node | None:
    """A constant is the second operand; but in complex products the order shows in rounding."""
    x, y = node.src
    if constant_of(x) is None or constant_of(y) is not None or node.dtype.is_complex:
        return None
    return Node(node.op, (y, x))


# The classes of operands, in the order in which sums and products have them: ``x + -y`` and
# ``x * exp(y)`` stay as they are. Within a class, operations come in the order of the op table.
_CLASSES = (
    Group.LEAF, Group.REDUCTION, frozenset({Op.CAST}), Group.BINARY, frozenset({Op.WHERE}),
    Group.TRANSCENDENTAL, Group.UNARY - Group.TRANSCENDENTAL - {Op.CAST}, Group.MOVEMENT,
)  # fmt: skip
_TABLE = list(Op)
_RANK = {
    op: (at, _TABLE.index(op) if members is not Group.MOVEMENT else 0)
    for at, members in enumerate(_CLASSES)
    for op in members
}
_LAST = (len(_CLASSES), 0)
_MOVED_OR_REDUCED = Group.MOVEMENT | Group.REDUCTION


@on(Op.ADD, Op.MUL)
def canonical_order(node: Node) -> Node | None:
    """Operands in one order: ``b + w * c`` and ``w * c + b`` are the same node.

    The factors of a matrix product, which are both moved, keep the order that the user gave them,
    as do totals beside moved values: the tiles of a kernel follow it. Complex products keep it
    because it shows in their rounding.
    """
    x, y = node.src
    if node.dtype.is_complex or constant_of(y) is not None:
        return None
    if {x.op, y.op} <= _MOVED_OR_REDUCED:
        return None
    swapped = _RANK.get(x.op, _LAST) > _RANK.get(y.op, _LAST)
    return Node(node.op, (y, x)) if swapped else None


@on(Op.CAST)
def cast_once(node: Node) -> Node | None:
    """One cast instead of two, where the first keeps every value. From a float to an integer, what
    is out of range is nobody's promise: there, the second has to keep every value too."""
    x, to = node.src[0], node.dtype
    if x.op is not Op.CAST or (x.dtype.is_float and to.is_int and not _holds(to, x.src[0].dtype)):
        return None
    return cast(x.src[0], to) if _holds(x.dtype, x.src[0].dtype) else None


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is a value of `wide`."""
    if wide is narrow or narrow is bool_:
        return True
    if wide.is_int:
        return narrow.is_int and wide.min <= narrow.min and narrow.max <= wide.max  # type: ignore[operator]
    return wide.is_float and narrow.precision <= wide.precision and narrow.least >= wide.least


# Holes: values, then constants.
x, y = map(hole, "xy")
i, j = hole("i", Kinds.INTEGER), hole("j", Kinds.INTEGER)
f, r = hole("f", Kinds.FLOAT), hole("r", Kinds.REAL)
h = hole("h", Kinds.FLOAT)
p, s = hole("p", Kinds.BOOL), hole("s", Kinds.BITS)
c = hole("c", Kinds.REAL, constant=True)
d = hole("d", Kinds.FLOAT, constant=True)
true, false = p.lift(True), p.lift(False)


def exp(x: Node) -> Node:
    return unary(Op.EXP, x)


def erf(x: Node) -> Node:
    return unary(Op.ERF, x)


def logistic(x: Node) -> Node:
    return unary(Op.LOGISTIC, x)


ALGEBRA = (
    fold_constants, constant_right, canonical_order, cast_once,
    # Sums.
    equation("add_zero", i + 0, i),
    equation("negate_twice", Node(Op.NEG, (-r,)), r),
    # Products and quotients.
    equation("multiply_by_one", r * 1, r),
    equation("negate_factor", -r * c, r * -c),
    equation("divide_by_power_of_two", f / d, f * (1 / d), has_exact_reciprocal),
    # The logistic function, whose own text neither overflows nor divides twice.
    equation("logistic", 1 / (exp(-f) + 1), logistic(f), ulps=2),
    equation("times_logistic", h / (exp(-f) + 1), h * logistic(f), ulps=3),
    # Half of one plus the error function. Halving is exact, but for subnormal numbers.
    equation("half_of_one_plus_erf", (erf(f) + 1) * 0.5, erf(f) * 0.5 + 0.5),
    equation("half_times_one_plus_erf", h * 0.5 * (erf(f) + 1), h * (erf(f) * 0.5 + 0.5), ulps=2),
    equation("half_of_product", h * (erf(f) + 1) * 0.5, h * (erf(f) * 0.5 + 0.5), ulps=2),
    # Powers. A library's power may be off by the last place, a product is not.
    equation("power_of_one", r**1, r),
    equation("power_of_two", r**2, r * r),
    equation("power_of_three", r**3, r * r * r),
    # Comparisons.
    equation("less_than_itself", x < x, False),
    equation("less_or_equal", (i < j) | i.eq(j), ~(j < i)),
    # Bools and bits.
    equation("not_twice", ~~s, s),
    equation("and_itself", s & s, s),
    equation("and_false", p & False, False),
    equation("and_true", p & True, p),
    equation("or_false", p | False, p),
    # Choices.
    equation("where_true", where(true, x, y), x),
    equation("where_false", where(false, x, y), y),
    equation("where_same", where(p, x, x), x),
    equation("where_not", where(~p, x, y), where(p, y, x)),
    # Derivatives, which stop at DETACH, have been taken.
    equation("detach", Node(Op.DETACH, (x,)), x),
    equation("custom derivative", Node(Op.CUSTOM_DERIVATIVE, (x, y)), x),
    equation("recomputed", Node(Op.RECOMPUTED, (x, y)), x),
)  # fmt: skip
SIMPLIFY = (*ALGEBRA, *MOVEMENT, reduce_in_parts, scan_in_parts())  # for tests, without a target
