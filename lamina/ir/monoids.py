"""Monoids: an identity and an associative combine over a tuple of scalars.

One mechanism then gives sums, extrema, argmax and products of complex numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass

from lamina.core.dtypes import DType, Scalar, bool_
from lamina.ir.node import Node
from lamina.ir.ops import Hole, Op

Parts = tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Monoid:
    """A row of the table below."""

    name: str
    arity: int
    identity: Callable[[tuple[DType, ...]], tuple[Scalar, ...]]  # of components of these dtypes
    combine: Callable[[Parts, Parts], Parts]  # of two tuples of scalars, as nodes
    op: Op | None = None  # what `combine` is, for monoids of one component
    commutes: bool = True  # one that does not is for scans alone, which keep the order of elements
    # Of the extreme and its place: the same in fewer operations, for places that begin at 0 and
    # that are each larger than those before.
    in_order: "Monoid | None" = None

    def __repr__(self) -> str:
        return self.name

    def formula(self, dtypes: tuple[DType, ...]) -> tuple[Parts, Parts, Parts]:
        """Two tuples of HOLEs of `dtypes`, and what `combine` makes of them."""
        left, right = (
            tuple(Node(Op.HOLE, (), Hole(f"{side}{i}", dtype)) for i, dtype in enumerate(dtypes))
            for side in "ab"
        )
        return left, right, self.combine(left, right)


def _of_op(op: Op, identity: Callable[[DType], Scalar]) -> Monoid:
    return Monoid(op.name, 1, lambda dtypes: (identity(dtypes[0]),),
                  lambda left, right: (Node(op, left + right),), op)  # fmt: skip


def _better(op: Op) -> Callable[[Parts, Parts], Parts]:
    """Keep the (value, index) pair with the extreme value; the first index wins, NaN before all."""

    def combine(left: Parts, right: Parts) -> Parts:
        (a, i), (b, j) = left, right
        beats, a_nan, b_nan = (a < b) if op is Op.MAX else (b < a), ~a.eq(a), ~b.eq(b)
        take = (beats & ~a_nan) | (b_nan & ~a_nan) | ((a.eq(b) | (a_nan & b_nan)) & (j < i))
        return tuple(Node(Op.WHERE, (take, *pair)) for pair in ((b, a), (j, i)))

    return combine


def _better_in_order(op: Op) -> Callable[[Parts, Parts], Parts]:
    """The same as `_better` where each place on the right is larger than those on the left: equal
    values leave the first place."""

    def combine(left: Parts, right: Parts) -> Parts:
        (a, _), (b, _) = left, right
        beats = (a < b) if op is Op.MAX else (b < a)
        take = beats | (~b.eq(b) & a.eq(a))
        return tuple(Node(Op.WHERE, (take, *pair)) for pair in zip(right, left, strict=True))

    return combine


def _extreme(op: Op) -> Monoid:
    """The row of an extreme value and its place."""
    name = f"ARG{op.name}"

    def worst(dtype: DType) -> Scalar:
        return dtype.min if op is Op.MAX else dtype.max

    # Where all values are the worst one, the first place is that of the extreme: 0.
    in_order = Monoid(name, 2, lambda dtypes: (worst(dtypes[0]), 0), _better_in_order(op))
    return Monoid(name, 2, lambda dtypes: (worst(dtypes[0]), dtypes[1].max), _better(op),
                  in_order=in_order)  # fmt: skip


def _multiply_complex(left: Parts, right: Parts) -> Parts:
    (a, b), (c, d) = left, right
    return a * c - b * d, a * d + b * c


def _compose(left: Parts, right: Parts) -> Parts:
    """The map ``h -> a h + b`` of `left`, and then that of `right`: ``c (a h + b) + d``."""
    (a, b), (c, d) = left, right
    return a * c, c * b + d


def _add_scaled(left: Parts, right: Parts) -> Parts:
    """``s e^m + t e^n`` of (m, s) and (n, t), scaled by the larger of e^m and e^n: no exponential
    is above 1, and equal scales, infinite ones too, need none."""
    (m, s), (n, t) = left, right
    gap = m.eq(n).select(m.lift(0.0), m - n)
    share = Node(Op.MIN, (gap, -gap)).apply(Op.EXP)
    rises = m < n
    larger, smaller = rises.select(t, s), rises.select(s, t)
    return Node(Op.MAX, (m, n)), smaller * share + larger


ADD = _of_op(Op.ADD, lambda dtype: 0)
MUL = _of_op(Op.MUL, lambda dtype: 1)
MAX = _of_op(Op.MAX, lambda dtype: False if dtype is bool_ else dtype.min)
MIN = _of_op(Op.MIN, lambda dtype: True if dtype is bool_ else dtype.max)
ARGMAX, ARGMIN = _extreme(Op.MAX), _extreme(Op.MIN)
EXTREME, PLACE = 0, 1  # their components
COMPLEX_MUL = Monoid("COMPLEX_MUL", 2, lambda dtypes: (1.0, 0.0), _multiply_complex)
# (m, s) stands for s e^m: sums of exponentials of any size. The scale m is the largest exponent so
# far, chosen for accuracy alone; so no derivative goes through it.
LOG_SUM_EXP = Monoid("LOG_SUM_EXP", 2, lambda dtypes: (dtypes[0].min, 0.0), _add_scaled)
SCALE, SCALED_SUM = 0, 1  # its components
# RECURRENCE of its scan is h[t] = a[t] h[t - 1] + b[t] with h[-1] = 0 (Blelloch 1990, "Prefix sums
# and their applications", section 1.4). It does not commute: only a SCAN keeps the order of
# elements.
LINEAR_RECURRENCE = Monoid("LINEAR_RECURRENCE", 2, lambda dtypes: (1, 0), _compose, commutes=False)
RUNNING_PRODUCT, RECURRENCE = 0, 1  # its components
