"""Products whose rows are shorter than a vector get longer ones, on CPUs.

Convolutions of small images by windows of one pixel multiply ``sum_c w[o, c] * x[c, p]`` for all
outputs o and pixels p. Of 3 x 3 pixels rows of results have 9 elements, vectors 8 of these, and all
weights are read as single numbers. Stored as ``x[p, c]``, which are few, channels are neighbours in
both factors. The gradient for the image, ``sum_o w[o, c] * d[o, p]``, has the neighbours of the
weights in its result: with p before c there, vectors are along c.
"""

from lamina.core.dtypes import float32
from lamina.core.shape import prod, squeezed
from lamina.graph.rewrite import on
from lamina.ir import build
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.ir.products import is_fastest, product_of, varies

LANES = 16  # of the longest vectors
MIN_ROW = 4 * LANES  # elements of the new rows of a result
# Steps of each result. With one thread (measured), 4096 x 64 times 64 x 8 took 83 us and not 158,
# and 4096 x 32 times 32 x 8, with half as many steps, 51 and not 34.
MIN_STEPS = 64
# Of an element of the smaller factor, which is written and read once more: an estimate.
MIN_USES = 64


@on(Op.REDUCE)
def short_rows(node: Node) -> Node | None:
    """A sum of products of two arrays whose result has short rows, with the other factor or the
    result, which are smaller than the larger factor, in an order that suits that."""
    if node.arg.monoid is not ADD or node.dtype is not float32:
        return None
    whole = _with_single_axes(node)
    product = product_of(whole)  # None too where that is over no axis, or of no elements
    if product is None or any(factor.op is not Op.EXPAND for factor in product.src):
        return None
    few, many = sorted(product.src, key=lambda factor: prod(factor.src[0].shape))
    if prod(product.shape) < MIN_USES * prod(few.src[0].shape):
        return None
    result = _with_longer_rows(whole, few, many)
    return None if result is None else build.reshape(result, node.shape)


def _with_longer_rows(total: Node, few: Node, many: Node) -> Node | None:
    """The sum of products of two factors, of which `few` is the smaller one, with this or the
    result in the order that suits `many`; None where rows are long, or steps few."""
    reduced = total.arg.axes
    size_of = few.shape.__getitem__
    kept = [axis for axis, size in enumerate(few.shape) if size > 1 and axis not in reduced]
    short = _last_along(few, many, kept)
    if not short or prod(map(size_of, short)) >= LANES or prod(map(size_of, reduced)) < MIN_STEPS:
        return None
    long_rows = _last_along(many, few, kept[: -len(short)])
    if long_rows and _lies_along(many, long_rows[-1]):
        is_long = prod(map(size_of, long_rows)) >= MIN_ROW
        return _with_rows(total, long_rows) if is_long else None
    last_step = max(axis for axis in reduced if size_of(axis) > 1)
    if _lies_along(many, last_step) and not _lies_along(few, last_step):
        return _with_steps_in_rows(total, few, many)
    return None


def _with_single_axes(node: Node) -> Node:
    """The reduction with the axes of size 1 that its operand has before a RESHAPE takes these away;
    the reduction itself if there is no such RESHAPE."""
    reshaped = node.src[0]
    if reshaped.op is not Op.RESHAPE:
        return node
    operand = reshaped.src[0]
    if squeezed(operand.shape) != squeezed(reshaped.shape):
        return node
    before = [axis for axis, size in enumerate(operand.shape) if size > 1]
    after = [axis for axis, size in enumerate(reshaped.shape) if size > 1]
    reduced = [old for old, new in zip(before, after, strict=True) if new in node.arg.axes]
    return build.reduce(ADD, reduced, operand)


def _lies_along(factor: Node, axis: int) -> bool:
    """Are different elements of an EXPAND neighbours in memory along `axis`?"""
    return varies(factor, axis) and is_fastest(factor, axis)


def _last_along(factor: Node, other: Node, kept: list[int]) -> list[int]:
    """The last of the axes `kept`, as many as `factor` varies along and `other` does not."""
    axes: list[int] = []
    for axis in reversed(kept):
        if not varies(factor, axis) or varies(other, axis):
            break
        axes.insert(0, axis)
    return axes


def _with_rows(node: Node, rows: list[int]) -> Node:
    """The same reduction, whose result is in memory with the axes `rows` as the last."""
    product, reduced = node.src[0], node.arg.axes
    order = sorted(range(len(product.shape)), key=lambda axis: (axis in rows, axis))
    axes = sorted(order.index(axis) for axis in reduced)
    result = build.reduce(ADD, axes, build.permute(product, order))
    stored = Node(Op.CONTIGUOUS, (result,))
    left = [axis for axis in order if axis not in reduced]
    return build.permute(stored, [left.index(axis) for axis in sorted(left)])


def _with_steps_in_rows(node: Node, few: Node, many: Node) -> Node:
    """The same reduction, of a factor that is in memory with the reduced axes as the last."""
    array = few.src[0]
    new = len(few.shape) - len(array.shape)
    steps = [axis - new for axis in node.arg.axes if axis >= new]
    order = sorted(range(len(array.shape)), key=lambda axis: (axis in steps, axis))
    in_rows = build.expand(build.stored_in_order(array, order), few.shape)
    return build.reduce(ADD, node.arg.axes, in_rows * many)
