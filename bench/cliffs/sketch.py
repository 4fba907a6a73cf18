"""A program while it is drawn: sizes from a distribution, inputs, and lines that know their
shapes."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from bench.cases import Shape
from bench.cliffs.program import Input, Kind, Line

T = TypeVar("T")
# Of 100 sizes, so many are as drawn, multiples, primes, powers of two, and 1.
_KINDS = {"plain": 30, "8": 15, "16": 10, "64": 15, "prime": 15, "power": 10, "one": 5}


@dataclass(frozen=True)
class Limits:
    """How large programs for a device are.

    elements: of one array, at most. flops: of one product or convolution, at most. shortest,
    longest: axes of most products. dtypes: of floats, with the weights by which they are drawn.
    """

    elements: int
    flops: float
    shortest: int
    longest: int
    dtypes: tuple[tuple[str, int], ...]


CPU = Limits(1 << 21, 1e9, 16, 4096, (("float32", 95), ("float64", 5)))
GPU = Limits(1 << 25, 3e11, 64, 16384, (("float32", 40), ("bfloat16", 40), ("float16", 20)))
TINY = Limits(1 << 10, 1e5, 1, 512, (("float32", 1),))  # for tests


@dataclass(frozen=True)
class Value:
    """An input or the result of a line."""

    name: str
    shape: Shape

    @property
    def rank(self) -> int:
        return len(self.shape)


class Sketch:
    """Draws from `random` alone, so that the same numbers give the same program."""

    def __init__(self, source: random.Random, limits: Limits) -> None:
        self.random = source
        self.limits = limits
        names, weights = zip(*limits.dtypes, strict=True)
        self.dtype: str = source.choices(names, weights)[0]
        self.inputs: list[Input] = []
        self.lines: list[Line] = []

    def choose(self, *options: T) -> T:
        """One of `options`, each as likely."""
        return self.random.choice(options)

    def chance(self, probability: float) -> bool:
        """True with that probability."""
        return self.random.random() < probability

    def size(self, low: int, high: int) -> int:
        """A size, log-uniform between `low` and `high`, often moved to a multiple or a prime."""
        high = max(low, high)
        size = round(math.exp(self.random.uniform(math.log(low), math.log(high))))
        kind = self.random.choices(list(_KINDS), list(_KINDS.values()))[0]
        if kind == "one":
            size = 1
        elif kind == "power":
            size = 1 << size.bit_length() - 1
        elif kind == "prime":
            size = _prime(size)
        elif kind != "plain":
            size = size // int(kind) * int(kind)
        return min(max(size, low), high)

    def shape(self, rank: int, elements: int = 0, low: int = 1) -> Shape:
        """Sizes of `low` or more, whose product is `elements` at most (by default the limit), and
        seldom less than a thousandth of that."""
        most = elements or self.limits.elements
        total = math.exp(self.random.uniform(math.log(max(1, most // 1024)), math.log(most)))
        cuts = sorted(self.random.random() for _ in range(rank - 1))
        shares = [b - a for a, b in zip([0.0, *cuts], [*cuts, 1.0], strict=True)]
        sizes: list[int] = []
        for share in shares:
            left = most // math.prod(sizes) // low ** (rank - 1 - len(sizes))
            near = max(low, round(total**share))
            one = low == 1 and self.chance(0.05)
            size = 1 if one else self.size(max(low, near // 2), 2 * near)
            sizes.append(max(low, min(size, left)))
        return tuple(sizes)

    def axis(self, part: int = 1) -> int:
        """The size of an axis of a product, up to that part of the longest one."""
        low = 1 if self.chance(0.2) else self.limits.shortest
        return self.size(low, self.limits.longest // part)

    def product(self, count: int, part: int = 1, others: int = 1) -> list[int]:
        """Sizes of a product, such as m, k and n, up to that part of the longest axis: with
        `others` before them, twice their product is no more than the limit of operations, and
        that of two no more than that of elements."""
        most = self.limits.flops / 2 / others
        sizes = [self.axis(part) for _ in range(count)]
        while math.prod(sizes) > most or self._largest(sizes) * others > self.limits.elements:
            sizes[sizes.index(max(sizes))] = self.size(1, max(sizes) // 2)
        return sizes

    @staticmethod
    def _largest(sizes: Sequence[int]) -> int:
        return math.prod(sorted(sizes)[-2:])

    def input(
        self, *shape: int, kind: Kind = "normal", scale: float = 1.0, limit: int = 0
    ) -> Value:
        """A new input; see `Input`."""
        name = f"x{len(self.inputs)}"
        self.inputs.append(Input(name, shape, kind, scale, limit))
        return Value(name, shape)

    def weight(self, *shape: int, summed: int) -> Value:
        """Floats whose products with normal ones, summed over `summed` elements, are about 1."""
        return self.input(*shape, scale=1.0 / math.sqrt(summed))

    def put(
        self, operation: str, *arguments: Value, shape: Shape | None = None, **attributes: object
    ) -> Value:
        """A new line. shape: of its result; by default what its arguments broadcast to."""
        name = f"v{len(self.lines)}"
        texts = tuple((key, repr(value)) for key, value in attributes.items())
        names = tuple(one.name for one in arguments)
        self.lines.append(Line(name, operation, names, texts))
        if shape is None:
            shape = np.broadcast_shapes(*(one.shape for one in arguments))
        return Value(name, shape)

    # What many families need.

    def matmul(self, a: Value, b: Value) -> Value:
        """``a @ b`` of matrices, or of batches of them."""
        before = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        return self.put("matmul", a, b, shape=(*before, a.shape[-2], b.shape[-1]))

    def reduced(self, operation: str, x: Value, axes: Sequence[int], keepdims: bool) -> Value:
        """A reduction over `axes`."""
        axes = sorted(axis % x.rank for axis in axes)
        sizes = [1 if axis in axes else size for axis, size in enumerate(x.shape)]
        kept = [axis for axis in range(x.rank) if keepdims or axis not in axes]
        shape = tuple(sizes[axis] for axis in kept)
        return self.put(operation, x, shape=shape, axis=tuple(axes), keepdims=keepdims)

    def permute(self, x: Value, *axes: int) -> Value:
        """The axes of `x` in another order."""
        return self.put("permute", x, shape=tuple(x.shape[axis] for axis in axes), axes=axes)

    def reshape(self, x: Value, *shape: int) -> Value:
        """The elements of `x` in another shape."""
        return self.put("reshape", x, shape=shape, sizes=shape)

    def unary(self, x: Value) -> Value:
        """Some continuous function of `x`, no larger than it."""
        name = self.choose(*_UNARY)
        if name == "scale":
            return self.put("scale", x, factor=self.choose(0.5, 2.0, -1.25, 0.125))
        if name == "shift":
            return self.put("shift", x, amount=self.choose(1.0, -0.5, 0.1))
        if name == "clip":
            return self.put("clip", x, low=-1.5, high=self.choose(0.5, 2.0))
        if name == "bell":
            square = self.put("square", x)
            return self.put("exp", self.put("negative", square))
        if name == "root":
            positive = self.put("shift", self.put("abs", x), amount=0.1)
            return self.put(self.choose("sqrt", "rsqrt", "log1p"), positive)
        return self.put(name, x)

    def activation(self, x: Value) -> Value:
        """One of those that networks have."""
        return self.put(self.choose(*ACTIVATIONS), x)


ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid", "leaky_relu", "softplus",
               "elu", "mish", "hardswish")  # fmt: skip
_UNARY = ("scale", "shift", "clip", "bell", "root", "negative", "abs", "tanh", "sin", "cos", "erf",
          "sigmoid", *ACTIVATIONS)  # fmt: skip


def _prime(number: int) -> int:
    """The largest prime up to `number`; 1 below 2."""
    while number > 2 and any(number % factor == 0 for factor in range(2, math.isqrt(number) + 1)):
        number -= 1
    return max(number, 1)
