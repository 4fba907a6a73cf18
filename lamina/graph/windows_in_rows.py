"""Windows that are few beside what a product reads or writes are stored as rows, on CPUs.

A convolution of 2 images of 512 channels and 2 x 2 pixels with windows of 3 x 3 reads 8 windows of
4608 elements and 512 x 4608 weights. Neighbours of a window lie apart in the image, three by three,
so that vectors along them would have three lanes, and vectors along the pixels two. Stored as rows
by a kernel of its own, windows have neighbours where weights have.

So have they in the gradient of the weights, ``sum_p d[p, o] * w[p, (c, i, j)]`` over all pixels p,
which has 8 steps and 512 x 4608 results: vectors are along neighbours of the result.
"""

from collections.abc import Collection

from lamina.core.dtypes import float32
from lamina.core.shape import prod
from lamina.graph.rewrite import on
from lamina.ir import build
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.ir.products import product_of, without_repeats

# Elements of a window are written and read once more. So there have to be as many results, or so
# many times as many elements of the other factor. Measured with one thread, for 2 images (C, n, n)
# and windows of 3 x 3: the gradient of (128, 8, 8), with as many results, took 280 us and not 386,
# and of (64, 16, 16), with an eighth, 363 and not 281; the convolution of (512, 7, 7), with 5 times
# as many weights, took 4.8 ms and not 5.4, and of (256, 8, 8), with twice as many, 1.6 and not 1.4.
MIN_RESULTS = 1
MIN_OTHERS = 4
LANES = 16  # neighbours from which on vectors are as good without: those of the longest vectors


@on(Op.REDUCE)
def windows_in_rows(node: Node) -> Node | None:
    """A sum of products of an array and of windows, with these in memory, in the order of the
    other factor or of the result, where that has many more elements."""
    product = product_of(node)
    if product is None or node.dtype is not float32:
        return None
    other, windows = sorted(product.src, key=lambda factor: len(_places(factor)))
    if _places(other) or not _places(windows):
        return None
    once, reduced = without_repeats(windows), set(node.arg.axes)
    kept = set(range(len(once.shape))) - reduced
    elements, others = prod(once.shape), prod(without_repeats(other).shape)
    if others >= MIN_OTHERS * elements and _has_short_rows(once, reduced):
        inner = reduced
    elif prod(node.shape) >= MIN_RESULTS * elements and _has_short_rows(once, kept):
        inner = kept
    else:
        return None
    order = sorted(range(len(once.shape)), key=lambda axis: (axis in inner, axis))
    in_rows = build.expand(build.stored_in_order(once, order), windows.shape)
    return build.reduce(ADD, node.arg.axes, other * in_rows)


def _places(factor: Node) -> set[int]:
    """The axes of places within a window, along which a factor reads elements that its neighbours
    along another axis read too; as far as it is movement of an array that leaves axes as they
    are."""
    places = set()
    while factor.op in (Op.EXPAND, Op.SHRINK, Op.PAD, Op.SHEAR):
        if factor.op is Op.SHEAR:
            places.add(factor.arg.by)
        (source,) = factor.src
        if len(source.shape) != len(factor.shape):
            break
        factor = source
    return places


def _has_short_rows(windows: Node, inner: Collection[int]) -> bool:
    """Is the last of the axes `inner` one of places within a window, and shorter than a vector?"""
    long_axes = [axis for axis in sorted(inner) if windows.shape[axis] > 1]
    if not long_axes or long_axes[-1] not in _places(windows):
        return False
    size: int = windows.shape[long_axes[-1]]
    return size < LANES
