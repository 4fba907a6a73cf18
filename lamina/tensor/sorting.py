"""Sorting, searching sorted data, and sets, after the array API standard.

The order comes from one operation, a stable ARGSORT; values are gathered by it, so sorting has a
derivative. NaN sorts behind every number.
"""

from __future__ import annotations

from typing import NamedTuple

from lamina.dtypes import int64, promote
from lamina.errors import DTypeError, ShapeError
from lamina.ir.build import cast, flip, full, pad, permute, reshape, select, shrink
from lamina.ir.monoids import ADD, MIN
from lamina.ir.node import Node
from lamina.ir.ops import Op, Reduce, Scatter
from lamina.shape import normalize_axis
from lamina.tensor.core import Tensor, as_tensor, common_device, is_scalar

__all__ = [
    "argsort", "searchsorted", "sort", "topk", "unique", "unique_all", "unique_counts",
    "unique_inverse", "unique_values",
]  # fmt: skip


class TopK(NamedTuple):
    """What `topk` returns."""

    values: Tensor
    indices: Tensor


class UniqueAll(NamedTuple):
    """What `unique_all` returns."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """What `unique_counts` returns."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """What `unique_inverse` returns."""

    values: Tensor
    inverse_indices: Tensor


# Orders.


def argsort(
    x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Tensor:
    """The indices (int64) that sort `x` along `axis`; equal elements always keep their order."""
    return Tensor.of(_order("argsort", x, axis, descending), x.device)


def sort(
    x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Tensor:
    """`x` sorted along `axis`; equal elements always keep their order."""
    order = _order("sort", x, axis, descending)
    return Tensor.of(Node(Op.GATHER, (x.node, order), axis % x.ndim), x.device)


def topk(
    x: Tensor, k: int, axis: int = -1, largest: bool = True, sorted: bool = True
) -> TopK:
    """The `k` largest (or smallest) elements along `axis` and their indices (int64), in order."""
    axis = normalize_axis("topk", axis, x.ndim)
    order = _order("topk", x, axis, largest)
    if not 0 <= k <= x.shape[axis]:
        raise ShapeError(f"topk: k={k} of {x.shape[axis]} elements along axis {axis} of {x.shape}")
    stop = [k if one == axis else size for one, size in enumerate(x.shape)]
    first = shrink(order, (0,) * x.ndim, stop)
    values = Node(Op.GATHER, (x.node, first), axis)
    return TopK(Tensor.of(values, x.device), Tensor.of(first, x.device))


def _order(what: str, x: Tensor, axis: int, descending: bool) -> Node:
    if x.dtype.is_complex:
        raise DTypeError(f"{what}: {x.dtype.name} has no order; sort its real() or abs()")
    axis = normalize_axis(what, axis, x.ndim)
    if not x.ndim:
        raise ShapeError(f"{what}: a tensor of shape () has no axis to sort along")
    last = x.ndim - 1
    swap = [last if one == axis else axis if one == last else one for one in range(x.ndim)]
    rows = permute(x.node, swap)
    if not descending:
        return permute(Node(Op.ARGSORT, (rows,)), swap)
    # Backwards twice: the second flip puts equal elements into their own order again.
    order = flip(Node(Op.ARGSORT, (flip(rows, (last,)),)), (last,))
    return permute(-order + (rows.shape[last] - 1), swap)


# Searching.


def searchsorted(
    x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Tensor | None = None
) -> Tensor:
    """Where each element of `x2` belongs in `x1`, int64 of x2's shape.

    x1: (n,), ascending, or ascending in the order `sorter`. With side 'left' the index i has
    ``x1[i - 1] < v <= x1[i]``, with 'right' ``x1[i - 1] <= v < x1[i]``.
    """
    if side not in ("left", "right"):
        raise ShapeError(f"searchsorted: side {side!r} is neither 'left' nor 'right'")
    if x1.ndim != 1:
        raise ShapeError(f"searchsorted: the sorted data has shape {x1.shape}; one axis is needed")
    values = as_tensor(x2, x1) if is_scalar(x2) else x2
    others = () if sorter is None else (sorter,)
    device = common_device("searchsorted", x1, values, *others)
    dtype = promote("searchsorted", x1.dtype, values.dtype)
    if dtype.is_complex:
        raise DTypeError(f"searchsorted: {dtype.name} has no order")
    data = cast(x1.node, dtype)
    if sorter is not None:
        data = Node(Op.GATHER, (data, sorter.node), 0)
    wanted = reshape(cast(values.node, dtype), (values.size,))
    found = _bisect(data, wanted, side)
    return Tensor.of(reshape(found, values.shape), device)


def _bisect(data: Node, wanted: Node, side: str) -> Node:
    """How many elements of `data` lie before each of `wanted`, a bit of the answer at a time."""
    (n,) = data.shape
    found = full(wanted.shape, 0, int64)
    for bit in reversed(range(n.bit_length())):
        tried = found + (1 << bit)
        element = Node(Op.GATHER, (data, tried + -1), 0)
        before = (
            _precedes(element, wanted) if side == "left" else ~_precedes(wanted, element)
        )
        found = select(before & (tried < n + 1), tried, found)
    return found


def _precedes(a: Node, b: Node) -> Node:
    """The order of sorting: NaN behind everything."""
    if not a.dtype.is_float:
        return a < b
    return (a < b) | (a.eq(a) & ~b.eq(b))


# Sets. How many values differ is known only after running, so these run when they are called.


def unique_values(x: Tensor, /) -> Tensor:
    """The values of `x` without repetitions, ascending; each NaN counts as different."""
    return unique_all(x).values


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The values of `x` and how often each occurs (int64)."""
    values, _, _, counts = unique_all(x)
    return UniqueCounts(values, counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The values of `x` and for each element of `x` the index of its value (int64)."""
    values, _, inverse, _ = unique_all(x)
    return UniqueInverse(values, inverse)


def unique(
    x: Tensor, return_inverse: bool = False, return_counts: bool = False
) -> Tensor | tuple[Tensor, ...]:
    """The values of `x`, ascending; on request followed by inverse indices and counts."""
    values, _, inverse, counts = unique_all(x)
    if not (return_inverse or return_counts):
        return values
    return (values, *[inverse] * return_inverse, *[counts] * return_counts)


def unique_all(x: Tensor, /) -> UniqueAll:
    """The values of `x` ascending, the flat index of the first occurrence of each, for each
    element of `x` the index of its value, and how often each occurs (all int64)."""
    n = x.size
    flat = reshape(x.node, (n,))
    order = Tensor.of(_flat_order(flat), x.device).realize().node
    ranked = Node(Op.GATHER, (flat, order), 0)
    group = Tensor.of(_groups(ranked), x.device).realize()
    count = int(Tensor.of(_highest(group.node), x.device).item()) + 1 if n else 0
    number = group.node

    def collect(base: int, update: Node, rule: Scatter) -> Tensor:
        target = full((count,), base, update.dtype)
        return Tensor.of(Node(Op.SCATTER, (target, number, update), rule), x.device)

    inverse = Node(Op.SCATTER, (full((n,), 0, int64), order, number), Scatter(0, None))
    return UniqueAll(
        collect(0, ranked, Scatter(0, None)),
        collect(n, order, Scatter(0, MIN)),
        Tensor.of(reshape(inverse, x.shape), x.device),
        collect(0, full((n,), 1, int64), Scatter(0, ADD)),
    )


def _flat_order(flat: Node) -> Node:
    """The order of a vector; complex numbers by real part, then by imaginary part."""
    if not flat.dtype.is_complex:
        return Node(Op.ARGSORT, (flat,))
    re, im = (Node(op, (flat,)) for op in (Op.REAL, Op.IMAG))
    by_imag = Node(Op.ARGSORT, (im,))
    by_real = Node(Op.ARGSORT, (Node(Op.GATHER, (re, by_imag), 0),))
    return Node(Op.GATHER, (by_imag, by_real), 0)


def _groups(ranked: Node) -> Node:
    """For each element of a sorted vector, how many values come before its own."""
    (n,) = ranked.shape
    if not n:
        return full((0,), 0, int64)
    changed = ~shrink(ranked, (1,), (n,)).eq(shrink(ranked, (0,), (n - 1,)))
    steps = pad(cast(changed, int64), (1,), (0,))
    return Node(Op.SCAN, (steps,), Reduce(ADD, (0,)))


def _highest(group: Node) -> Node:
    """The last element."""
    (n,) = group.shape
    return reshape(shrink(group, (n - 1,), (n,)), ())
