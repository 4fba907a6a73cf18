"""Sums of products of bytes for processors whose instruction multiplies unsigned by signed bytes.

Intel's ``vpdpbusd`` does. Of factors of one sign, the one that varies along the results' last axis,
from which such processors pack words, has its first bit flipped: the byte b becomes b + 128, of the
other sign. What that adds to each product is the other factor, 128 times:

    sum_k a[i, k] * b[k, j]  =  sum_k a[i, k] * (b[k, j] + 128) - 128 * sum_k a[i, k]

The last sum is a number for each row, beside as many products as there are columns. int32 sums wrap
around alike on both sides.
"""

from lamina.core.dtypes import int8, int32, uint8
from lamina.core.shape import prod
from lamina.graph.rewrite import on
from lamina.ir import build
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.ir.products import product_of

MIN_USES = 16  # of each number of either factor: with fewer, the second sum would take as long
# Rows from which on the other factor is packed into panels for any layout of it
# (`CpuKnobs.min_packed_rows_of_dots`), and the rows of a tile and the bytes of each.
MIN_ROWS_OF_TILES, ROWS_OF_TILE, BYTES_OF_ROW = 24, 16, 64
FLIPPED = {int8: uint8, uint8: int8}
MOVED = (Op.EXPAND, Op.RESHAPE, Op.PERMUTE)


@on(Op.REDUCE)
def flip_bytes(node: Node) -> Node | None:
    """The sum of int32 products of two factors of signed bytes, or of two of unsigned ones, with
    one factor flipped; None for any other node."""
    product = product_of(node)
    if product is None or node.dtype is not int32:
        return None
    axes = node.arg.axes
    other = _repeated(node)
    if other is None:
        return None
    (factor,) = (each for each in product.src if each is not other)
    bytes_, other_bytes = bytes_of(factor), bytes_of(other)
    if bytes_ is None or other_bytes is None or bytes_.dtype is not other_bytes.dtype:
        return None
    numbers = max(prod(bytes_.shape), prod(other_bytes.shape))
    if not 0 < MIN_USES * numbers <= prod(product.shape):
        return None
    (once,) = other.src  # of size 1 along the axes along which the factor repeats
    if any(once.shape[axis] != product.shape[axis] for axis in axes):
        return None
    total = build.reduce(ADD, axes, Node(Op.MUL, (other, _with_flipped_bytes(factor))))
    sums = build.reduce(ADD, axes, once)
    times = -128 if bytes_.dtype is int8 else 128
    correction = Node(Op.MUL, (sums, build.full(sums.shape, times, int32)))
    return Node(Op.ADD, (total, build.expand(correction, total.shape)))


@on(Op.REDUCE)
def flip_bytes_beside_tiles(node: Node) -> Node | None:
    """`flip_bytes` for a processor that also multiplies tiles of bytes, of any signs: None for sums
    that fill tiles."""
    return None if _fills_tiles(node) else flip_bytes.apply(node)


def _fills_tiles(node: Node) -> bool:
    """Does a CPU pack one factor of the sum of products `node` into panels, and read rows of tiles
    from the other as it lies?"""
    product, axes = node.src[0], node.arg.axes
    other = _repeated(node) if product.op is Op.MUL else None
    if other is None or len(axes) != 1:
        return False
    steps, elements = product.shape[axes[0]], prod(other.src[0].shape)
    if steps < BYTES_OF_ROW or elements == 0:
        return False
    return (
        elements // steps >= MIN_ROWS_OF_TILES
        and prod(product.shape) // elements >= ROWS_OF_TILE
        and _is_minor(other, axes[0])
    )


def _is_minor(factor: Node, axis: int) -> bool:
    """Are elements along `axis`, the last one that does not repeat, neighbours in memory, as no
    movement but that of whole rows makes `factor`?"""
    once = factor.src[0]
    if any(size > 1 for size in once.shape[axis + 1 :]):
        return False
    while once.op in (Op.CAST, Op.RESHAPE):
        (once,) = once.src
    return once.op not in MOVED


def _repeated(node: Node) -> Node | None:
    """The factor of a sum of products that the results' last axis has again and again; None if that
    is none, or both."""
    product = node.src[0]
    kept = [axis for axis in range(len(product.shape)) if axis not in node.arg.axes]
    repeated = [factor for factor in product.src if kept and _repeats(factor, kept[-1])]
    return repeated[0] if len(repeated) == 1 else None


def _repeats(factor: Node, axis: int) -> bool:
    """Is `factor` the same along `axis`?"""
    if factor.op is not Op.EXPAND or len(factor.src[0].shape) != len(factor.shape):
        return False
    return bool(factor.src[0].shape[axis] == 1 < factor.shape[axis])


def bytes_of(factor: Node) -> Node | None:
    """The bytes that movement and a cast make `factor` of; None if anything else does."""
    while factor.op in MOVED:
        (factor,) = factor.src
    if factor.op is Op.CAST and factor.src[0].dtype in FLIPPED:
        return factor.src[0]
    return None


def _with_flipped_bytes(factor: Node) -> Node:
    """`factor` of flipped bytes."""
    if factor.op in MOVED:
        return Node(factor.op, (_with_flipped_bytes(factor.src[0]),), factor.arg)
    bytes_ = factor.src[0]
    other = FLIPPED[bytes_.dtype]
    first_bit = -128 if other is int8 else 128
    as_other = build.bitcast(bytes_, other)
    flipped = Node(Op.XOR, (as_other, build.full(as_other.shape, first_bit, other)))
    return build.cast(flipped, factor.dtype)
