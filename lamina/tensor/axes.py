"""Steps that concern one axis of a shape or a node."""

from __future__ import annotations

from lamina.dtypes import Scalar, int64
from lamina.ir import build
from lamina.ir.node import Node
from lamina.shape import Shape


def resized(shape: Shape, axis: int, *sizes: int) -> Shape:
    """`shape` with the size of `axis` replaced by `sizes`."""
    return (*shape[:axis], *sizes, *shape[axis + 1 :])


def _only(x: Node, axis: int, value: int, others: int) -> Shape:
    return resized((others,) * len(x.shape), axis, value)


def along(vector: Node, axis: int, shape: Shape) -> Node:
    """A vector repeated over the other axes of `shape`."""
    return build.expand(build.reshape(vector, resized((1,) * len(shape), axis, shape[axis])), shape)


def places(shape: Shape, axis: int) -> Node:
    """The index along `axis` of each element: int64 of `shape`."""
    return along(build.iota(shape[axis], int64), axis, shape)


def slice_axis(x: Node, axis: int, start: int, stop: int, step: int = 1) -> Node:
    """``start:stop:step`` along `axis`."""
    return build.shrink(
        x, _only(x, axis, start, 0), resized(x.shape, axis, stop), _only(x, axis, step, 1)
    )


def pad_axis(x: Node, axis: int, before: int, after: int, value: Scalar = 0) -> Node:
    """Elements of `value` at the ends of `axis`."""
    return build.pad(x, _only(x, axis, before, 0), _only(x, axis, after, 0), value)
