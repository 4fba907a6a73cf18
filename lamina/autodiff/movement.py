"""Adjoints of the operations that move elements without changing them.

Each is the transpose of a matrix of zeros and ones: where the operation reads an element twice,
the adjoint adds. They serve masks as well (dtype bool), with OR in place of the sum.
"""

from __future__ import annotations

from collections.abc import Sequence

from lamina.dtypes import DType, bool_, float32, int64
from lamina.errors import GradientError
from lamina.ir.build import (
    cast,
    expand,
    flip,
    full,
    insert_axes,
    iota,
    pad,
    permute,
    reduce,
    reshape,
    select,
    shear,
    shrink,
)
from lamina.ir.monoids import ADD, MAX, MIN
from lamina.ir.node import Node
from lamina.ir.ops import Op, Reduce, Scatter
from lamina.shape import Shape

Contributions = Sequence[Node | None]


def wide(dtype: DType) -> DType:
    """The dtype to add many numbers of `dtype` in: halves lose small terms in a long sum."""
    return float32 if dtype.is_float and dtype.bits < 32 else dtype


def sum_over(x: Node, axes: Sequence[int]) -> Node:
    """The sum over `axes`, which vanish; of a mask, whether any is true."""
    if x.dtype is bool_:
        return reduce(MAX, axes, x)
    return cast(reduce(ADD, axes, cast(x, wide(x.dtype))), x.dtype) if axes else x


def spread(x: Node, axes: Sequence[int], shape: Shape) -> Node:
    """Undo the shape of a reduction over `axes` of `shape`: each element is repeated."""
    return expand(insert_axes(x, axes), shape)


def running_total(x: Node, axis: int, backwards: bool = False) -> Node:
    """Inclusive sums (of a mask, OR) along `axis`, from the end when `backwards`."""
    if backwards:
        return flip(running_total(flip(x, (axis,)), axis), (axis,))
    if x.dtype is bool_:
        return Node(Op.SCAN, (x,), Reduce(MAX, (axis,)))
    return cast(Node(Op.SCAN, (cast(x, wide(x.dtype)),), Reduce(ADD, (axis,))), x.dtype)


def inverse(order: Sequence[int]) -> list[int]:
    """The permutation that undoes `order`."""
    return sorted(range(len(order)), key=order.__getitem__)


def positions(shape: Shape, axis: int) -> Node:
    """The index along `axis` of each element of `shape`."""
    sizes = tuple(size if one == axis else 1 for one, size in enumerate(shape))
    return expand(reshape(iota(shape[axis], int64), sizes), shape)


def put(x: Node, index: Node, shape: Shape, axis: int) -> Node:
    """Zeros of `shape` with each element of `x` added at `index` along `axis`: GATHER's
    transpose."""
    monoid = MAX if x.dtype is bool_ else ADD
    source = cast(x, wide(x.dtype))
    zeros = full(shape, 0, source.dtype)
    return cast(Node(Op.SCATTER, (zeros, index, source), Scatter(axis, monoid)), x.dtype)


def reshape_rule(node: Node, g: Node) -> Contributions:
    """dx = g in x's shape."""
    return (reshape(g, node.src[0].shape),)


def expand_rule(node: Node, g: Node) -> Contributions:
    """dx = g summed over the axes that were added or repeated."""
    shape = node.src[0].shape
    added = len(node.shape) - len(shape)
    repeated = [
        axis for axis, size in enumerate(node.shape)
        if axis < added or shape[axis - added] != size
    ]  # fmt: skip
    return (reshape(sum_over(g, repeated), shape),)


def permute_rule(node: Node, g: Node) -> Contributions:
    """dx = g under the inverse permutation."""
    return (permute(g, inverse(node.arg)),)


def pad_rule(node: Node, g: Node) -> Contributions:
    """dx = g without the margins."""
    sizes = node.src[0].shape
    stop = [before + size for before, size in zip(node.arg.before, sizes, strict=True)]
    return (shrink(g, node.arg.before, stop),)


def shrink_rule(node: Node, g: Node) -> Contributions:
    """dx = g at the places that were read, ``start + step * i``, and zeros elsewhere."""
    shape = node.src[0].shape
    start, _, step = node.arg
    apart = _spaced(g, step)
    lengths = [
        min(size, whole - first)
        for size, whole, first in zip(apart.shape, shape, start, strict=True)
    ]
    inside = shrink(apart, (0,) * len(shape), lengths)
    after = [
        whole - first - length for whole, first, length in zip(shape, start, lengths, strict=True)
    ]
    return (pad(inside, start, after),)


def _spaced(x: Node, step: Sequence[int]) -> Node:
    """`x` with ``step - 1`` zeros after each element: [n] as [n, 1], padded to [n, step]."""
    if all(one == 1 for one in step):
        return x
    pairs = reshape(x, tuple(size for n in x.shape for size in (n, 1)))
    after = [count for one in step for count in (0, one - 1)]
    spaced = pad(pairs, (0,) * len(after), after)
    return reshape(spaced, tuple(n * one for n, one in zip(x.shape, step, strict=True)))


def flip_rule(node: Node, g: Node) -> Contributions:
    """dx = g flipped back."""
    return (flip(g, node.arg),)


def shear_rule(node: Node, g: Node) -> Contributions:
    """dx[j, k] = g[j + k s, k]: sheared back by -s.

    The shear by -s puts ``g[i - (K - 1 - k) s, k]`` at i, so x's elements start at (K - 1) s; by
    symmetry the same holds for negative s with abs(s).
    """
    axis, by, step = node.arg
    size = node.src[0].shape[axis]
    first = node.shape[axis] - size
    back = shear(g, axis, by, -step)
    start = [first if one == axis else 0 for one in range(len(node.shape))]
    stop = [first + size if one == axis else n for one, n in enumerate(node.shape)]
    return (shrink(back, start, stop),)


def gather_rule(node: Node, g: Node) -> Contributions:
    """dx = g added up at the places that were read; the index has no derivative."""
    x, index = node.src
    return put(g, index, x.shape, node.arg), None


def scatter_rule(node: Node, g: Node) -> Contributions:
    """Of ADD: d base = g and d update = g read at the index. Other monoids: below."""
    _, index, _ = node.src
    axis, monoid = node.arg
    if monoid is ADD:
        return g, None, Node(Op.GATHER, (g, index), axis)
    if monoid is None:
        return _overwrite_rule(node, g)
    if monoid in (MAX, MIN):
        return _scatter_extreme_rule(node, g)
    raise GradientError(
        f"gradient: scatter with {monoid} of {node.shape} has no derivative here: "
        "multiply by the gathered values instead, or detach it"
    )


def _overwrite_rule(node: Node, g: Node) -> Contributions:
    """d base = g, and 0 where it was overwritten; d update = g read at the index, and 0 where a
    later update took the place.

    The last writer of each place is found by scattering positions in the same way.
    """
    _, index, update = node.src
    axis = node.arg.axis
    kept = Node(Op.SCATTER, (g, index, update.lift(0.0)), node.arg)
    order = positions(index.shape, axis)
    last = Node(Op.SCATTER, (full(node.shape, -1, int64), index, order), node.arg)
    won = Node(Op.GATHER, (last, index), axis).eq(order)
    return kept, None, select(won, Node(Op.GATHER, (g, index), axis), update.lift(0.0))


def _scatter_extreme_rule(node: Node, g: Node) -> Contributions:
    """g split evenly among the base and the updates that equal the result at that place."""
    base, index, update = node.src
    axis, _ = node.arg
    exact = wide(node.dtype)
    in_base = base.eq(node)
    in_update = update.eq(Node(Op.GATHER, (node, index), axis))
    ties = Node(
        Op.SCATTER, (cast(in_base, exact), index, cast(in_update, exact)), Scatter(axis, ADD)
    )
    share = cast(cast(g, exact) / ties, g.dtype)
    shared = Node(Op.GATHER, (share, index), axis)
    return (
        select(in_base, share, base.lift(0.0)),
        None,
        select(in_update, shared, update.lift(0.0)),
    )
