"""Adjoints of the operations that move elements, and what other rules build from.

Each is the transpose of a matrix of zeros and ones: where the operation reads an element twice,
the adjoint adds. They serve masks as well (dtype bool), with OR in place of the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lamina.dtypes import DType, bool_, float32, int64
from lamina.errors import GradientError
from lamina.ir import build
from lamina.ir.build import cast, pad, reshape, select, shrink
from lamina.ir.monoids import ADD, MAX, MIN, Monoid
from lamina.ir.node import Node
from lamina.ir.ops import Op, Reduce, Scatter
from lamina.shape import Shape

Contributions = Sequence[Node | None]
Rule = Callable[..., Contributions]  # see `lamina.autodiff.rules`


def wide(dtype: DType) -> DType:
    """The dtype to add many numbers of `dtype` in: halves lose small terms in a long sum."""
    return float32 if dtype.is_float and dtype.bits < 32 else dtype


def _adding(x: Node) -> Monoid:
    return MAX if x.dtype is bool_ else ADD


def sum_over(x: Node, axes: Sequence[int]) -> Node:
    """The sum over `axes`, which vanish."""
    total = build.reduce(_adding(x), axes, cast(x, wide(x.dtype)))
    return cast(total, x.dtype) if axes else x


def sum_from_each(x: Node, axis: int) -> Node:
    """At i the sum of the elements from i to the end of `axis`."""
    backwards = cast(build.flip(x, (axis,)), wide(x.dtype))
    total = Node(Op.SCAN, (backwards,), Reduce(_adding(x), (axis,)))
    return build.flip(cast(total, x.dtype), (axis,))


def spread(x: Node, axes: Sequence[int], shape: Shape) -> Node:
    """Undo the shape of a reduction over `axes` of `shape`: each element is repeated."""
    return build.expand(build.insert_axes(x, axes), shape)


def inverse(order: Sequence[int]) -> list[int]:
    """The permutation that undoes `order`."""
    return sorted(range(len(order)), key=order.__getitem__)


def positions(shape: Shape, axis: int) -> Node:
    """The index along `axis` of each element of `shape`."""
    others = [one for one in range(len(shape)) if one != axis]
    return spread(build.iota(shape[axis], int64), others, shape)


def take(x: Node, index: Node, axis: int) -> Node:
    """The elements of `x` at `index` along `axis`."""
    return Node(Op.GATHER, (x, index), axis)


def put(x: Node, index: Node, shape: Shape, axis: int) -> Node:
    """Zeros of `shape` with each element of `x` added at `index` along `axis`."""
    source = cast(x, wide(x.dtype))
    zeros = build.full(shape, 0, source.dtype)
    return cast(Node(Op.SCATTER, (zeros, index, source), Scatter(axis, _adding(x))), x.dtype)


def expand_rule(g: Node, z: Node, x: Node) -> Contributions:
    """dx = g summed over the axes that were added or repeated."""
    padded = (None,) * (len(z.shape) - len(x.shape)) + x.shape
    repeated = [axis for axis, size in enumerate(z.shape) if padded[axis] != size]
    return (reshape(sum_over(g, repeated), x.shape),)


def pad_rule(g: Node, z: Node, x: Node) -> Contributions:
    """dx = g without the margins."""
    before = z.arg.before
    return (shrink(g, before, [low + size for low, size in zip(before, x.shape, strict=True)]),)


def shrink_rule(g: Node, z: Node, x: Node) -> Contributions:
    """dx = g at the places that were read, ``start + step * i``, and zeros elsewhere."""
    start, _, step = z.arg
    apart = _spaced(g, step)
    ends = zip(x.shape, start, apart.shape, strict=True)
    padded = pad(apart, start, [max(0, whole - first - size) for whole, first, size in ends])
    return (shrink(padded, (0,) * len(start), x.shape),)


def _spaced(x: Node, step: Sequence[int]) -> Node:
    """`x` with ``step - 1`` zeros after each element: [n] as [n, 1], padded to [n, step]."""
    if all(one == 1 for one in step):
        return x
    pairs = reshape(x, tuple(size for n in x.shape for size in (n, 1)))
    after = [count for one in step for count in (0, one - 1)]
    spaced = pad(pairs, (0,) * len(after), after)
    return reshape(spaced, tuple(n * one for n, one in zip(x.shape, step, strict=True)))


def shear_rule(g: Node, z: Node, x: Node) -> Contributions:
    """dx[j, k] = g[j + k s, k]: sheared back by -s.

    The shear by -s puts ``g[i - (K - 1 - k) s, k]`` at i, so x's elements start at (K - 1) s; by
    symmetry the same holds for negative s with abs(s).
    """
    axis, by, step = z.arg
    back = build.shear(g, axis, by, -step)
    first = z.shape[axis] - x.shape[axis]
    start = [first if one == axis else 0 for one in range(len(x.shape))]
    return (shrink(back, start, [low + n for low, n in zip(start, x.shape, strict=True)]),)


def scatter_rule(g: Node, z: Node, base: Node, index: Node, update: Node) -> Contributions:
    """Of ADD: d base = g and d update = g read at the index. Other monoids: below."""
    axis, monoid = z.arg
    if monoid is ADD:
        return g, None, take(g, index, axis)
    if monoid is None:
        return _overwrite_rule(g, z, index, update)
    if monoid in (MAX, MIN):
        return _scatter_extreme_rule(g, z, base, index, update)
    raise GradientError(
        f"gradient: scatter with {monoid} of {z.shape} has no derivative here: "
        "multiply by the gathered values instead, or detach it"
    )


def _overwrite_rule(g: Node, z: Node, index: Node, update: Node) -> Contributions:
    """d base = g, and 0 where it was overwritten; d update = g read at the index, and 0 where a
    later update took the place: scattering positions in the same way finds the last writer."""
    axis = z.arg.axis
    kept = Node(Op.SCATTER, (g, index, update.lift(0.0)), z.arg)
    order = positions(index.shape, axis)
    last = Node(Op.SCATTER, (build.full(z.shape, -1, int64), index, order), z.arg)
    won = take(last, index, axis).eq(order)
    return kept, None, select(won, take(g, index, axis), update.lift(0.0))


def _scatter_extreme_rule(
    g: Node, z: Node, base: Node, index: Node, update: Node
) -> Contributions:
    """g split evenly among the base and the updates that equal the result at that place."""
    axis, exact = z.arg.axis, wide(z.dtype)
    in_base, in_update = base.eq(z), update.eq(take(z, index, axis))
    counted = (cast(in_base, exact), index, cast(in_update, exact))
    share = cast(cast(g, exact) / Node(Op.SCATTER, counted, Scatter(axis, ADD)), g.dtype)
    shared = select(in_update, take(share, index, axis), update.lift(0.0))
    return select(in_base, share, base.lift(0.0)), None, shared
