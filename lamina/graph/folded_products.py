"""Sums that are shifted, and added up where they overlap, as one sum of products.

A transposed convolution, or the derivative of one that moves by two elements, is the adjoint of
windows: each element of the images, times the weights, makes the elements of a window, and windows
that overlap are added up:

    taps     (N, K, 2, H)    sum over c of x[n, c, h] * w[c, k, p]
    result   (N, K, H + 1)   sum over p of taps[n, k, p, h - p]

The taps are as many as the products have rows, times the elements of a window: memory has them in
float32, and they are read again. As one sum, over c and p, no taps are stored:

    result   (N, K, H + 1)   sum over c and p of x[n, c, h - p] * w[c, k, p]

At the margins it multiplies zeros.
"""

from collections.abc import Sequence

from lamina.core.rates import GPUS, RATED_GPU
from lamina.core.shape import Shape, prod
from lamina.graph.moved_products import product_of_moved
from lamina.graph.rewrite import on
from lamina.ir import build
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, peel
from lamina.ir.ops import Group, Op, Pad
from lamina.ir.products import is_exact_cast, product_of, varies

MOVES = frozenset({Op.RESHAPE, Op.PERMUTE, Op.PAD, Op.SHRINK, Op.SHEAR})
# Products of 16-bit floats a second, in tiles of an H200: 800 TFLOP/s.
PRODUCTS_PER_SECOND = 4e14
# Rows, and columns, of results from which on a sum is folded: fewer leave most of a tile empty. An
# estimate.
MIN_SIDE = 32
# Results side by side in memory, the places of an image, from which on it is. Threads fill the
# tiles, which end with an image: 512 to 256 channels, 5 x 5 places of each phase, took an H200 317
# us so and 133 with taps in memory; 128 to 64 channels, 17 x 17 places, 94 and 103; the gradient
# of 128 channels of 29 x 29 places by windows of 3 x 3, 209 and 419.
MIN_PLACES = 256
MEMORY = GPUS[RATED_GPU].levels[-1]


@on(Op.REDUCE)
def folded_products(node: Node) -> Node | None:
    """A sum of shifted sums of products of 16-bit floats as one sum of products, if to multiply the
    zeros at its margins takes less time than to store the inner sums and to read them again."""
    moves: list[Node] = []  # the last one first
    inner = node.src[0]
    while inner.op in MOVES:
        moves.append(inner)
        (inner,) = inner.src
    is_shifted = any(move.op is Op.SHEAR for move in moves)
    product = product_of(inner) if is_shifted and node.arg.monoid is ADD else None
    if product is None or not all(map(_has_16_bits, product.src)):
        return None
    summed = inner.arg.axes
    kept = [axis for axis in range(len(product.shape)) if axis not in summed]
    folded = build.permute(product, [*summed, *kept])
    front = folded.shape[: len(summed)]
    for move in reversed(moves):
        folded = _behind(front, move, folded)
    moved = product_of_moved(folded, MOVES)
    if moved is None or _seconds_more(product, folded) > _seconds_of_storing(inner):
        return None
    axes = [*range(len(front)), *(axis + len(front) for axis in node.arg.axes)]
    return build.reduce(ADD, axes, moved) if _has_tiles(moved, axes) else None


def _has_16_bits(factor: Node) -> bool:
    return is_exact_cast(peel(factor, Group.MOVEMENT))


def _has_tiles(product: Node, summed: Sequence[int]) -> bool:
    """Are there MIN_SIDE results or more along the axes of each factor alone, and of one of them
    MIN_PLACES side by side?"""
    left, right = product.src
    axes = [axis for axis, size in enumerate(product.shape) if axis not in summed and size > 1]
    of_left, of_right, places = 1, 1, 1
    for axis in axes:
        size, in_left, in_right = product.shape[axis], varies(left, axis), varies(right, axis)
        of_left *= size if in_left and not in_right else 1
        of_right *= size if in_right and not in_left else 1
        goes_on = in_left == varies(left, axes[-1]) and in_right == varies(right, axes[-1])
        places = places * size if goes_on else 1
    return min(of_left, of_right) >= MIN_SIDE and places >= MIN_PLACES


def _seconds_more(product: Node, folded: Node) -> float:
    """How much longer it takes to multiply what is `folded` than the products before."""
    return (prod(folded.shape) - prod(product.shape)) / PRODUCTS_PER_SECOND


def _seconds_of_storing(array: Node) -> float:
    """The time to store an array and to read it again."""
    nbytes = prod(array.shape) * array.dtype.itemsize
    return nbytes / MEMORY.all_write + nbytes / MEMORY.all_read


def _behind(front: Shape, move: Node, x: Node) -> Node:
    """`move` of `x`, which has axes of the sizes `front` before those that are moved."""
    added = len(front)
    match move.op:
        case Op.RESHAPE:
            return build.reshape(x, (*front, *move.shape))
        case Op.PERMUTE:
            return build.permute(x, [*range(added), *(axis + added for axis in move.arg)])
        case Op.PAD:
            none = (0,) * added
            before, after, value = move.arg
            return Node(Op.PAD, (x,), Pad((*none, *before), (*none, *after), value))
        case Op.SHRINK:
            return build.sliced(x, [*map(range, front), *move.arg])
        case _:
            axis, by, step = move.arg
            return build.shear(x, axis + added, by + added, step)
