"""Sorting, searching sorted data, and sets, after the array API standard.

A stable ARGSORT gives the order; values are gathered by it, so sorting has a derivative. NaN sorts
behind every number.
"""

from __future__ import annotations

from typing import NamedTuple

from lamina.dtypes import int64, promote
from lamina.errors import ArgumentError, DTypeError, ShapeError
from lamina.ir.build import cast, flip, full, reshape, select, unary
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.shape import normalize_axis
from lamina.tensor import realize as memory
from lamina.tensor.core import Tensor, as_tensor, common_device
from lamina.tensor.movement import transpose
from lamina.tensor.windows import slice_axis

__all__ = [
    "argsort", "searchsorted", "sort", "topk", "unique", "unique_all", "unique_counts",
    "unique_inverse", "unique_values",
]  # fmt: skip


class TopK(NamedTuple):
    values: Tensor
    indices: Tensor


class UniqueAll(NamedTuple):
    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    values: Tensor
    inverse_indices: Tensor


def argsort(
    x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Tensor:
    """The indices (int64) that sort `x` along `axis`; equal elements always keep their order."""
    return _order("argsort", x, axis, descending)


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """`x` sorted along `axis`; equal elements always keep their order."""
    order = _order("sort", x, axis, descending)
    return Tensor.of(Node(Op.GATHER, (x.node, order.node), axis % x.ndim), x.device)


def topk(x: Tensor, k: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> TopK:
    """The `k` largest (or smallest) elements along `axis` and their indices (int64), in order."""
    axis = normalize_axis("topk", axis, x.ndim)
    order = _order("topk", x, axis, largest)
    if not 0 <= k <= x.shape[axis]:
        raise ShapeError(f"topk: k={k} of {x.shape[axis]} elements along axis {axis} of {x.shape}")
    first = slice_axis(order.node, axis, 0, k)
    values = Node(Op.GATHER, (x.node, first), axis)
    return TopK(Tensor.of(values, x.device), Tensor.of(first, x.device))


def _order(what: str, x: Tensor, axis: int, descending: bool) -> Tensor:
    if x.dtype.is_complex:
        raise DTypeError(f"{what}: {x.dtype.name} has no order; sort its real() or abs()")
    axis = normalize_axis(what, axis, x.ndim)
    # Backwards twice: the second flip puts equal elements into their own order again.
    turned = (x.ndim - 1,) if descending else ()
    order = flip(unary(Op.ARGSORT, flip(transpose(x, axis, -1).node, turned)), turned)
    order = -order + (x.shape[axis] - 1) if descending else order
    return transpose(Tensor.of(order, x.device), axis, -1)


def searchsorted(
    x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Tensor | None = None
) -> Tensor:
    """Where each element v of `x2` belongs in `x1`, (n,), ascending, or ascending in the order
    `sorter`: int64 of x2's shape. With side 'left' the index i has ``x1[i - 1] < v <= x1[i]``, with
    'right' ``x1[i - 1] <= v < x1[i]``."""
    if side not in ("left", "right"):
        raise ArgumentError(f"searchsorted: side {side!r} is neither 'left' nor 'right'")
    if x1.ndim != 1:
        raise ShapeError(f"searchsorted: the sorted data has shape {x1.shape}; one axis is needed")
    values = as_tensor(x2, x1)
    device = common_device("searchsorted", x1, values, x1 if sorter is None else sorter)
    dtype = promote("searchsorted", x1.dtype, values.dtype)
    if dtype.is_complex:
        raise DTypeError(f"searchsorted: {dtype.name} has no order")
    data = cast(x1.node, dtype)
    if sorter is not None:
        data = Node(Op.GATHER, (data, sorter.node), 0)
    wanted = reshape(cast(values.node, dtype), (values.size,))
    return Tensor.of(reshape(_bisect(data, wanted, side), values.shape), device)


def _bisect(data: Node, wanted: Node, side: str) -> Node:
    """How many elements of `data` lie before each of `wanted`, a bit of the answer at a time."""
    (n,) = data.shape
    found = full(wanted.shape, 0, int64)
    for bit in reversed(range(n.bit_length())):
        tried = found + (1 << bit)
        element = Node(Op.GATHER, (data, tried + -1), 0)
        before = _precedes(element, wanted) if side == "left" else ~_precedes(wanted, element)
        found = select(before & (tried < n + 1), tried, found)
    return found


def _precedes(a: Node, b: Node) -> Node:
    """The order of sorting: NaN behind everything."""
    return (a < b) | (a.eq(a) & ~b.eq(b)) if a.dtype.is_float else a < b


def unique_values(x: Tensor, /) -> Tensor:
    """The values of `x` without repetitions, ascending; each NaN counts as different."""
    return unique_all(x).values


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The values of `x` and how often each occurs (int64)."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The values of `x` and for each element of `x` the index of its value (int64)."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique(
    x: Tensor, return_inverse: bool = False, return_counts: bool = False
) -> Tensor | tuple[Tensor, ...]:
    """The values of `x`, ascending; on request followed by inverse indices and counts."""
    values, _, inverse, counts = unique_all(x)
    found = (values, *[inverse] * return_inverse, *[counts] * return_counts)
    return found if len(found) > 1 else values


def unique_all(x: Tensor, /) -> UniqueAll:
    """The values of `x` ascending, the flat index of the first occurrence of each, for each
    element of `x` the index of its value, and how often each occurs (all int64). The shapes depend
    on the values, so this runs at once."""
    import numpy as np

    found = np.unique_all(memory.native(x))
    return UniqueAll(
        Tensor(found.values, x.dtype, x.device),
        *(Tensor(one, int64, x.device) for one in found[1:]),
    )
