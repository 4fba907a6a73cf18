"""Random programs and values for tests: the simplifier and the compiler are fuzzed with them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from lamina.core import dtypes
from lamina.core.dtypes import DType
from lamina.core.shape import Shape, prod
from lamina.ir import build
from lamina.ir.monoids import ADD, ARGMAX, ARGMIN, MAX, MIN, MUL, Monoid
from lamina.ir.node import Node, full
from lamina.ir.ops import BufferRef, Group, Op

Array = np.ndarray
Style = Literal["bits", "extrema", "sums", "loose"]

DTYPES = (
    dtypes.bool_, dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.int64, dtypes.uint32,
    dtypes.float16, dtypes.float32, dtypes.float64,
)  # fmt: skip
SHAPES: tuple[Shape, ...] = ((), (0,), (1,), (3,), (4, 1), (2, 3), (1, 5), (2, 1, 3), (2, 0))
MAX_SIZE = 400


def leaf(number: int, shape: Shape, dtype: DType) -> Node:
    """A BUFFER; nodes of one number, shape and dtype are the same."""
    return Node(Op.BUFFER, (), BufferRef(number, shape, dtype, "cpu"))


def special_values(rng: random.Random, shape: Shape, dtype: DType) -> Array:
    """An array of `dtype` full of its corner cases: NaN, infinities, -0.0, extreme integers."""
    return np.array(
        [special_value(rng, dtype) for _ in range(prod(shape))], dtype.numpy
    ).reshape(shape)


def special_value(rng: random.Random, dtype: DType) -> bool | int | float | complex:
    """One value of `dtype`, often a corner case."""
    if dtype.kind == "bool":
        return rng.random() < 0.5
    if dtype.is_complex:
        part = dtypes.real_of(dtype)
        return complex(special_value(rng, part), special_value(rng, part))  # type: ignore[arg-type]
    if dtype.is_int:
        low, high = int(dtype.min), int(dtype.max)  # type: ignore[arg-type]
        near = rng.choice([0, 0, 1, 2, 3, 4, 6, 8, -1, -2, -3, low, low + 1, high, high - 1])
        value = near if rng.random() < 0.8 else rng.randint(low, high)
        return min(max(value, low), high)
    if rng.random() < 0.7:
        nan, inf = float("nan"), float("inf")
        return rng.choice([0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -3.0, nan, inf, -inf, 1e-7, 6e4])
    return rng.uniform(-8, 8)


def random_graph(
    rng: random.Random, max_nodes: int = 16, style: Style = "loose"
) -> tuple[list[Node], dict[Node, Array]]:
    """A random program of the graph dialect over elementwise, movement and reduce operations.

    Returns its sinks, one to three, and the content of its BUFFER leaves. `style` says how two
    evaluations of equal programs can be compared:

    bits: to the bit. No float sum of more than one element, no float MAX or MIN.
    extrema: to the bit but for the sign of zeros. With float MAX and MIN, without division.
    sums: to the bit while magnitudes stay below 2**50. Whole numbers in float64, summed.
    loose: within a tolerance. All operations, moderate values, no NaN in the leaves.
    """
    return GraphGenerator(rng, style).graph(max_nodes)


class GraphGenerator:
    shapes = SHAPES
    max_size = MAX_SIZE

    def __init__(self, rng: random.Random, style: Style) -> None:
        self.rng = rng
        self.style = style
        self.dtypes = (dtypes.float64, dtypes.bool_) if style == "sums" else DTYPES
        self.pool: list[Node] = []
        self.leaves: dict[Node, Array] = {}

    def graph(self, max_nodes: int) -> tuple[list[Node], dict[Node, Array]]:
        for _ in range(self.rng.randint(1, 3)):
            self.pool.append(self.leaf())
        steps = self.steps()
        while len(self.pool) < max_nodes:
            node = self.rng.choice(steps)()
            if node is not None and prod(node.shape) <= self.max_size and len(node.shape) <= 5:
                self.pool.append(node)
        return self.pool[-self.rng.randint(1, 3) :], self.leaves

    def steps(self) -> Sequence[Callable[[], Node | None]]:
        return self.elementwise, self.elementwise, self.movement, self.movement, self.reduce

    def leaf(self) -> Node:
        node = leaf(len(self.leaves), self.rng.choice(self.shapes), self.rng.choice(self.dtypes))
        self.leaves[node] = self.values(node.shape, node.dtype)
        return node

    def values(self, shape: Shape, dtype: DType) -> Array:
        if not dtype.is_float or self.style in ("bits", "extrema"):
            return special_values(self.rng, shape, dtype)
        numbers = [
            self.rng.randint(-3, 3) if self.style == "sums" else self.rng.uniform(-2, 2)
            for _ in range(prod(shape))
        ]
        return np.array(numbers, dtype.numpy).reshape(shape)

    def pick(self) -> Node:
        """A node made so far, mostly a recent one."""
        return self.rng.choice(self.pool[-4:] if self.rng.random() < 0.7 else self.pool)

    def like(self, node: Node) -> Node:
        """Another operand for `node`, of its shape and dtype."""
        same = [x for x in self.pool if (x.shape, x.dtype) == (node.shape, node.dtype)]
        if self.rng.random() < 0.6:
            return self.rng.choice(same)
        if self.style in ("bits", "extrema") and self.rng.random() < 0.5:
            return full(node.shape, special_value(self.rng, node.dtype), node.dtype)
        return full(node.shape, self.rng.choice([0, 1, -1, 2]), node.dtype)

    def condition(self, shape: Shape) -> Node:
        bools = [x for x in self.pool if x.shape == shape and x.dtype is dtypes.bool_]
        return self.rng.choice([*bools, full(shape, self.rng.random() < 0.5, dtypes.bool_)])

    def elementwise(self) -> Node | None:
        x = self.pick()
        choice = self.rng.random()
        if choice < 0.15:
            return self.cast(x)
        if choice < 0.3:
            return build.select(self.condition(x.shape), x, self.like(x))
        if choice < 0.5:
            unary = self.unary(x.dtype)
            return Node(self.rng.choice(unary), (x,)) if unary else None
        operands = [x, self.like(x)]
        self.rng.shuffle(operands)
        return Node(self.rng.choice(self.binary(x.dtype)), tuple(operands))

    def unary(self, dtype: DType) -> list[Op]:
        if dtype.kind == "bool":
            return [Op.NOT]
        if dtype.is_int:
            return [Op.NEG, Op.NOT]
        if self.style == "sums":
            return [Op.NEG]
        exact = [Op.NEG, Op.SQRT, Op.TRUNC]
        return exact + sorted(Group.TRANSCENDENTAL, key=str) if self.style == "loose" else exact

    def binary(self, dtype: DType) -> list[Op]:
        if dtype.kind == "bool":
            return [Op.AND, Op.OR, Op.XOR, Op.EQ, Op.LT, Op.MAX, Op.MIN]
        exact = [Op.ADD, Op.MUL, Op.EQ, Op.LT]
        if dtype.is_int:
            return [*exact, Op.AND, Op.OR, Op.XOR, Op.IDIV, Op.MOD, Op.MAX, Op.MIN, Op.SHL, Op.SHR]
        division = [Op.DIV] if self.style in ("bits", "loose") else []
        extrema = [] if self.style == "bits" else [Op.MAX, Op.MIN]
        return exact + division + extrema

    def cast(self, x: Node) -> Node | None:
        """A float is not cast to an integer: out of range the result is nobody's promise."""
        to = self.rng.choice(self.dtypes)
        return None if x.dtype.is_float and to.is_int else build.cast(x, to)

    def movement(self) -> Node | None:
        x = self.pick()
        moves = (self.reshape, self.expand, self.permute, self.flip, self.pad, self.shrink)
        return self.shear(x) if self.rng.random() < 0.08 else self.rng.choice(moves)(x)

    def reshape(self, x: Node) -> Node:
        sizes = list(x.shape)
        if len(sizes) >= 2 and self.rng.random() < 0.5:
            at = self.rng.randrange(len(sizes) - 1)
            sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
        elif sizes and sizes[-1] % 2 == 0 and self.rng.random() < 0.5:
            sizes[-1:] = [2, sizes[-1] // 2]
        elif 1 in sizes and self.rng.random() < 0.5:
            sizes.remove(1)
        else:
            sizes.insert(self.rng.randint(0, len(sizes)), 1)
        return Node(Op.RESHAPE, (x,), tuple(sizes))

    def expand(self, x: Node) -> Node:
        shape = tuple(self.rng.randint(0, 3) if size == 1 else size for size in x.shape)
        front = (self.rng.randint(1, 3),) if self.rng.random() < 0.4 else ()
        return Node(Op.EXPAND, (x,), front + shape)

    def permute(self, x: Node) -> Node:
        axes = list(range(len(x.shape)))
        self.rng.shuffle(axes)
        return Node(Op.PERMUTE, (x,), tuple(axes))

    def flip(self, x: Node) -> Node:
        return build.flip(x, [axis for axis in range(len(x.shape)) if self.rng.random() < 0.5])

    def pad(self, x: Node) -> Node:
        before, after = ([self.rng.choice([0, 0, 1, 2]) for _ in x.shape] for _ in range(2))
        return build.pad(x, before, after, self.rng.choice([0, 0, 1]))

    def shrink(self, x: Node) -> Node:
        start = [self.rng.randint(0, min(size, 2)) for size in x.shape]
        stop = [self.rng.randint(a, size) for a, size in zip(start, x.shape, strict=True)]
        step = [self.rng.choice([1, 1, 1, 2, 3]) for _ in x.shape]
        return build.sliced(x, map(range, start, stop, step))

    def shear(self, x: Node) -> Node | None:
        if len(x.shape) < 2:
            return None
        axis, by = self.rng.sample(range(len(x.shape)), 2)
        return build.shear(x, axis, by, self.rng.choice([-2, -1, 1, 2]))

    def reduce(self) -> Node | None:
        x = self.pick()
        axes = [axis for axis in range(len(x.shape)) if self.rng.random() < 0.6]
        if not axes:
            return None
        if self.rng.random() < 0.1 and self.monoids(x, axes):
            index = full(x.shape, self.rng.randint(0, 3), dtypes.int32)
            monoid = self.rng.choice([ARGMAX, ARGMIN])
            return build.reduce(monoid, axes, x, index, component=self.rng.randint(0, 1))
        monoids = self.monoids(x, axes)
        return build.reduce(self.rng.choice(monoids), axes, x) if monoids else None

    def monoids(self, x: Node, axes: Sequence[int]) -> list[Monoid]:
        if x.dtype.kind == "bool":
            return [MAX, MIN]
        if x.dtype.is_int:
            return [ADD, MUL, MAX, MIN]
        if self.style == "bits":
            single = prod(tuple(x.shape[axis] for axis in axes)) <= 1
            return [ADD, MUL, MAX, MIN] if single else []
        return [MAX, MIN] if self.style == "extrema" else [ADD, MUL, MAX, MIN]
