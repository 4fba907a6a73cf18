"""The programs whose kernels are counted and whose C is kept: built from nodes, by name."""

from __future__ import annotations

from collections.abc import Callable

from lamina.core.dtypes import float32, int64
from lamina.ir import build
from lamina.ir.monoids import ADD, MAX
from lamina.ir.node import Node, full
from lamina.ir.ops import Op, Reduce, Scatter
from tests.generators import leaf
from tests.programs import layer_norm, softmax

X = leaf(0, (64, 100), float32)


def elementwise() -> Node:
    """A chain that ends in a choice."""
    raised = build.unary(Op.SQRT, X * X + 1.0) * 0.5
    return build.select(X < 0.0, raised, raised + X)


def rows_softmax() -> Node:
    return softmax(X, 1)


def rows_layer_norm() -> Node:
    return layer_norm(X, 1)


def linear_relu() -> Node:
    """``(a @ b + c).relu()``"""
    m, k, n = 60, 100, 70
    a, b, c = leaf(0, (m, k), float32), leaf(1, (k, n), float32), leaf(2, (n,), float32)
    left = build.expand(build.reshape(a, (m, k, 1)), (m, k, n))
    right = build.expand(build.reshape(b, (1, k, n)), (m, k, n))
    total = build.reduce(ADD, [1], left * right) + build.expand(c, (m, n))
    return Node(Op.MAX, (total, full((m, n), 0.0, float32)))


def column_sum() -> Node:
    return build.reduce(ADD, [0], X)


def scatter() -> Node:
    """Rows of updates added at the places of an index."""
    update, places = leaf(0, (50, 16), float32), leaf(1, (50, 16), int64)
    base = full((20, 16), 0.0, float32)
    return Node(Op.SCATTER, (base, places, update), Scatter(0, ADD))


def scan() -> Node:
    return Node(Op.SCAN, (X,), Reduce(ADD, (1,)))


def argsort() -> Node:
    return build.argsort(X + 1.0)


def moved() -> Node:
    """Every movement between elementwise steps."""
    turned = build.flip(build.permute(X + 1.0, (1, 0)), [0])
    padded = build.pad(build.reshape(turned, (50, 2, 64)) * 2.0, (1, 0, 0), (0, 1, 0))
    return build.sliced(padded, map(range, (0, 0, 3), (51, 3, 64), (2, 1, 1))) + 1.0


def rows_of_maxima() -> Node:
    """Two reductions over one extent that share a kernel with what uses both."""
    top, total = build.reduce(MAX, [1], X), build.reduce(ADD, [1], X)
    return top - total


PROGRAMS: dict[str, Callable[[], Node]] = {
    "elementwise": elementwise,
    "softmax": rows_softmax,
    "linear_relu": linear_relu,
    "layer_norm": rows_layer_norm,
    "column_sum": column_sum,
    "scatter": scatter,
    "scan": scan,
    "argsort": argsort,
}
