"""Random graphs of every graph operation, for the text form and the verifier."""

from __future__ import annotations

import math
from collections.abc import Callable

from hypothesis import strategies as st

from lamina.core import dtypes
from lamina.core.dtypes import DType, Scalar
from lamina.errors import LaminaError
from lamina.ir import build
from lamina.ir.invariants import check_monoid
from lamina.ir.monoids import MAX, Monoid
from lamina.ir.node import Node
from lamina.ir.ops import (
    Broadcast,
    BufferRef,
    Combine,
    Iota,
    Op,
    Pad,
    Ranks,
    Reduce,
    Scatter,
    SendTo,
    Shear,
)
from lamina.ir.parse import MONOIDS

Draw = Callable[..., int]

DTYPES = (
    dtypes.bool_, dtypes.int8, dtypes.int64, dtypes.uint32, dtypes.bfloat16, dtypes.float32,
    dtypes.float64, dtypes.complex64,
)  # fmt: skip
SHAPES = ((), (1,), (3,), (2, 3), (3, 1, 2), (0, 2))


def scalars(dtype: DType) -> st.SearchStrategy[Scalar]:
    """Every constant of `dtype`, signed zeros, infinities and NaN included."""
    if dtype.kind == "bool":
        return st.booleans()
    if dtype.kind == "float":
        return st.floats()
    if dtype.kind == "complex":
        return st.complex_numbers()
    return st.integers(int(dtype.min), int(dtype.max))  # type: ignore[arg-type]


def combines(monoid: Monoid, *parts: Node) -> bool:
    try:
        check_monoid(monoid, parts)
    except LaminaError:
        return False
    return True


class _Builder:
    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.pool: list[Node] = []
        self.storages = 0

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def one_of(self, *nodes: Node) -> Node:
        return self.draw(st.sampled_from(nodes))

    def buffer(self) -> Node:
        shape, dtype = self.draw(st.sampled_from(SHAPES)), self.draw(st.sampled_from(DTYPES))
        self.storages += 1
        return Node(Op.BUFFER, (), BufferRef(self.storages - 1, shape, dtype, "cpu"))

    def leaf(self) -> Node:
        kind = self.number(0, 3)
        if kind == 0:
            dtype = self.draw(st.sampled_from(DTYPES))
            return build.const(self.draw(scalars(dtype)), dtype)
        if kind == 1:
            return Node(Op.IOTA, (), Iota(self.number(0, 4), dtypes.int32))
        return self.buffer()

    def elementwise(self, x: Node) -> Node:
        like = [one for one in self.pool if (one.shape, one.dtype) == (x.shape, x.dtype)]
        other = self.draw(st.sampled_from(like))
        if x.dtype is dtypes.bool_:
            choices = [Node(Op.NOT, (x,)), Node(Op.AND, (x, other))]
        else:
            choices = [Node(Op.NEG, (x,)), x + other, x * other]
        choices.append(Node(Op.WHERE, (x.eq(other), x, other)))
        if x.dtype.is_float:
            choices += [Node(Op.EXP, (x,)), x / other, x < other]
        if x.dtype in (dtypes.float32, dtypes.float64):
            choices.append(Node(Op.COMPLEX, (x, other)))
        if x.dtype.is_complex:
            choices += [Node(Op.REAL, (x,)), Node(Op.IMAG, (x,))]
        if x.dtype.is_int:
            choices += [x % other, x // other, x << other, x ^ other]
        return self.one_of(*choices)

    def convert(self, x: Node) -> Node:
        dtype = self.draw(st.sampled_from(DTYPES))
        if dtype.itemsize == x.dtype.itemsize and self.number(0, 1):
            return Node(Op.BITCAST, (x,), dtype)
        return Node(Op.CAST, (x,), dtype)

    def movement(self, x: Node) -> Node:
        rank = len(x.shape)
        axes = self.draw(st.permutations(range(rank)))
        low = tuple(self.number(0, 2) for _ in x.shape)
        high = tuple(self.number(0, 2) for _ in x.shape)
        start = tuple(self.number(0, size) for size in x.shape)
        stop = tuple(self.number(a, size) for a, size in zip(start, x.shape, strict=True))
        steps = [self.number(1, 3) * (1 - 2 * self.number(0, 1)) for _ in x.shape]
        boxes = zip(start, stop, steps, strict=True)
        ranges = tuple(range(a, b)[::by] or range(a, a) for a, b, by in boxes)
        choices = [
            Node(Op.RESHAPE, (x,), (1, math.prod(x.shape))),
            Node(Op.EXPAND, (x,), (self.number(0, 3), *x.shape)),
            Node(Op.PERMUTE, (x,), tuple(axes)),
            Node(Op.PAD, (x,), Pad(low, high, self.draw(scalars(x.dtype)))),
            Node(Op.SHRINK, (x,), ranges),
        ]
        if rank > 1:
            choices.append(Node(Op.SHEAR, (x,), Shear(axes[0], axes[1], self.number(-2, 2))))
        return self.one_of(*choices)

    def reduction(self, x: Node) -> Node:
        if not x.shape:
            return x
        op = self.draw(st.sampled_from([Op.REDUCE, Op.SCAN]))
        axes = self.draw(st.permutations(range(len(x.shape))))
        count = 1 if op is Op.SCAN else self.number(1, len(axes))
        index = Node(Op.CAST, (x,), dtypes.int64)
        tuples = [(x,) * n for n in (1, 2, 3)] + [(x, index)]
        fitting = [
            (monoid, parts)
            for monoid in MONOIDS.values()
            for parts in tuples
            if combines(monoid, *parts)
        ]
        if not fitting:
            return x
        monoid, parts = self.draw(st.sampled_from(fitting))
        part = self.number(0, monoid.arity - 1)
        return Node(op, parts, Reduce(monoid, tuple(sorted(axes[:count])), part))

    def indexed(self, x: Node) -> Node:
        if not x.shape:
            return x
        index = Node(Op.CAST, (x,), dtypes.int32)
        axis = self.number(0, len(x.shape) - 1)
        choices = [Node(Op.GATHER, (x, index), axis)]
        choices.append(Node(Op.SCATTER, (x, index, x), Scatter(axis, None)))
        if combines(MAX, x):
            choices.append(Node(Op.SCATTER, (x, index, x), Scatter(axis, MAX)))
            choices.append(build.argsort(x))
        if x.dtype is dtypes.float32:
            choices.append(Node(Op.BIN_SUM, (x, index, x), self.number(1, 3)))
        return self.one_of(*choices)

    def effect(self, x: Node) -> Node:
        self.storages += 1
        target = Node(Op.BUFFER, (), BufferRef(self.storages - 1, x.shape, x.dtype, "cpu"))
        return self.one_of(
            Node(Op.ASSIGN, (target, x)),
            Node(Op.COPY, (x,), "cpu"),
            Node(Op.CONTIGUOUS, (x,)),
            Node(Op.DETACH, (x,)),
            Node(Op.CUSTOM_DERIVATIVE, (x, x)),
            Node(Op.RECOMPUTED, (x, x)),
            Node(Op.AGAIN, (x,)),
        )

    def collective(self, x: Node) -> Node:
        ranks, stride = self.number(2, 3), self.number(1, 2)
        targets = (-1, *range(ranks - 1))
        choices = [
            Node(Op.ALL_GATHER, (x,), Ranks(ranks, stride)),
            Node(Op.BROADCAST, (x,), Broadcast(self.number(0, ranks - 1), ranks, stride)),
            Node(Op.COLLECTIVE_PERMUTE, (x,), SendTo(targets, ranks, stride)),
        ]
        if x.shape[:1] == (ranks,):
            choices.append(Node(Op.ALL_TO_ALL, (x,), Ranks(ranks, stride)))
        if combines(MAX, x):
            choices.append(Node(Op.ALL_REDUCE, (x,), Combine(MAX, ranks, stride)))
            if x.shape[:1] == (ranks,):
                choices.append(Node(Op.REDUCE_SCATTER, (x,), Combine(MAX, ranks, stride)))
        return self.one_of(*choices)


@st.composite
def graphs(draw: Draw, least: int = 0, most: int = 12) -> list[Node]:
    """Some sinks in a random graph of `least` to `most` operations."""
    builder = _Builder(draw)
    builder.pool.append(builder.buffer())
    for _ in range(draw(st.integers(least, most))):
        grow = draw(st.sampled_from([
            builder.elementwise, builder.elementwise, builder.convert, builder.movement,
            builder.movement, builder.reduction, builder.indexed, builder.effect,
            builder.collective,
        ]))  # fmt: skip
        operand = draw(st.sampled_from(builder.pool))
        builder.pool.append(builder.leaf() if draw(st.integers(0, 5)) == 0 else grow(operand))
    return draw(st.lists(st.sampled_from(builder.pool), min_size=1, max_size=1 + most // 4))
