"""Rows of operations that read and write elements whose places are data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import lamina as lm
from lamina.errors import ArgumentError
from lamina.frontend.tensor import Tensor

Row = Callable[..., Any]
Indices = Sequence[Tensor | None]


def _index(x: Tensor, indices: Indices) -> Tensor:
    if any(one is not None and one.dtype is lm.bool for one in indices):
        raise ArgumentError("index: the size of the result depends on the mask")
    return x[tuple(slice(None) if one is None else one for one in indices)]


def _wrapped(index: Tensor, size: int) -> Tensor:
    """Indices from the start, of those that may count from the end."""
    index = index.cast(lm.int64)
    return lm.where(index < 0, index + size, index)


def _index_put(x: Tensor, indices: Indices, values: Tensor, accumulate: bool = False) -> Tensor:
    """The indexed axes are moved to the front and become one, whose slices are written."""
    if any(one is not None and one.dtype is lm.bool for one in indices):
        return _put_masked(x, indices, values, accumulate)
    by_axis = {axis: one for axis, one in enumerate(indices) if one is not None}
    indexed = list(by_axis)
    others = [axis for axis in range(x.ndim) if axis not in by_axis]
    order = [*indexed, *others]
    moved = lm.permute(x, order)
    places = _joined_indices(by_axis, x.shape)
    other_sizes = [x.shape[axis] for axis in others]
    rows = lm.reshape(moved, (prod(x.shape[axis] for axis in indexed), *other_sizes))
    slices = _in_front(values, indexed, places.shape, other_sizes)
    write = _by_counts(lm.index_add) if accumulate else lm.index_copy
    result = write(rows, 0, lm.reshape(places, (-1,)), slices.cast(x.dtype))
    back = [order.index(axis) for axis in range(x.ndim)]
    return lm.permute(lm.reshape(result, moved.shape), back)


def _joined_indices(by_axis: dict[int, Tensor], sizes: Sequence[int]) -> Tensor:
    """Indices of several axes as those of the one that the axes join to: of sizes (3, 4), the
    indices 2 and 1 are 2 * 4 + 1 = 9."""
    arrays = lm.broadcast_arrays(*[_wrapped(one, sizes[axis]) for axis, one in by_axis.items()])
    joined = arrays[0]
    for axis, array in zip(list(by_axis)[1:], arrays[1:], strict=True):
        joined = joined * sizes[axis] + array
    return joined


def _in_front(
    values: Tensor, indexed: list[int], place_sizes: Sequence[int], other_sizes: list[int]
) -> Tensor:
    """The values that are written, a slice for each place. Where the indexed axes are neighbours,
    values have the axes of the indices in their place, otherwise in front (NumPy, "Combining
    advanced and basic indexing")."""
    are_neighbours = indexed == list(range(indexed[0], indexed[0] + len(indexed)))
    before = indexed[0] if are_neighbours else 0
    written = lm.broadcast_to(values, (*other_sizes[:before], *place_sizes, *other_sizes[before:]))
    front = range(before, before + len(place_sizes))
    rest = [axis for axis in range(written.ndim) if axis not in front]
    return lm.reshape(lm.permute(written, [*front, *rest]), (prod(place_sizes), *other_sizes))


def _put_masked(x: Tensor, indices: Indices, values: Tensor, accumulate: bool) -> Tensor:
    """Values in the places of a mask over the first axes: one for all, or the first for the first
    true element, the second for the second, ... Raises ArgumentError for other indices."""
    mask = indices[0]
    if len(indices) > 1 or mask is None:
        raise ArgumentError("index_put: which value is for which place depends on the mask")
    rest = x.shape[mask.ndim :]
    inside = lm.reshape(mask, (*mask.shape, *(1,) * len(rest)))
    if values.ndim == len(rest) + 1 and values.shape[0] > 1:
        rows = lm.broadcast_to(values, (values.shape[0], *rest))
        ranks = lm.maximum(_ranks(lm.reshape(mask, (-1,))), 0)  # a false element reads any row
        values = lm.reshape(lm.take(rows, ranks, axis=0), x.shape)
    value = values.cast(x.dtype)
    return lm.where(inside, x + value if accumulate else value, x)


def _embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, by_frequency: bool = False,
    sparse: bool = False,
) -> Tensor:  # fmt: skip
    if padding_idx >= 0 or by_frequency:  # a lookup has other derivatives
        padding = padding_idx if padding_idx >= 0 else None
        return lm.embedding(indices, weight, padding, scale_grad_by_freq=by_frequency)
    return lm.take(weight, lm.reshape(indices, (-1,)), axis=0).reshape(
        (*indices.shape, *weight.shape[1:])
    )


def embedding_backward(
    upstream: Tensor, indices: Tensor, rows: int, padding_idx: int, by_frequency: bool
) -> Tensor:
    width = upstream.shape[-1]
    places = lm.reshape(indices, (-1,)).cast(lm.int64)
    slopes = lm.reshape(upstream, (-1, width))
    if by_frequency:
        count = lm.index_add(lm.zeros((rows,), dtype=lm.int64), 0, places, lm.ones_like(places))
        slopes = slopes / lm.take(count, places, axis=0).reshape((-1, 1)).cast(upstream.dtype)
    if padding_idx >= 0:
        is_padding = lm.reshape(places == padding_idx, (-1, 1))
        slopes = lm.where(is_padding, lm.zeros_like(slopes), slopes)
    return lm.index_add(lm.zeros((rows, width), dtype=upstream.dtype), 0, places, slopes)


def _gather(x: Tensor, axis: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    if index.size == 0:  # of any number of axes
        return lm.zeros(index.shape, dtype=x.dtype)
    if x.ndim == 0:
        return lm.broadcast_to(x, index.shape)
    return lm.gather(x, axis, index) if index.ndim else lm.reshape(x, (-1,))[index]


def _scatter(
    x: Tensor, axis: int, index: Tensor, source: Any, *, reduce: str | None = None
) -> Tensor:
    return lm.scatter(x, axis, index, source, reduce)


def _index_select(x: Tensor, axis: int, index: Tensor) -> Tensor:
    return lm.index_select(x, axis, index)


def _unfold(x: Tensor, axis: int, size: int, step: int) -> Tensor:
    """Windows along an axis, whose elements are a new last axis."""
    if x.ndim == 0:
        return lm.reshape(x, (1,))[:size]
    starts = lm.arange(0, x.shape[axis] - size + 1, step, dtype=lm.int64)
    places = lm.expand_dims(starts, 1) + lm.arange(size, dtype=lm.int64)
    place = axis % x.ndim
    return lm.moveaxis(lm.take(x, places, axis=place), place + 1, -1)


def _as_strided(
    x: Tensor, sizes: Sequence[int], strides: Sequence[int], offset: int | None = None
) -> Tensor:
    """Elements by their places in memory, which is that of a row-major x."""
    places = _strided_places(sizes, strides, offset or 0)
    return lm.reshape(lm.take(lm.reshape(x, (-1,)), places, axis=0), tuple(sizes))


def _as_strided_scatter(
    x: Tensor, source: Tensor, sizes: Sequence[int], strides: Sequence[int],
    offset: int | None = None,
) -> Tensor:  # fmt: skip
    """A row-major x, with other elements in some places of its memory."""
    places = _strided_places(sizes, strides, offset or 0)
    written = lm.reshape(lm.broadcast_to(source, tuple(sizes)), (-1,))
    return lm.reshape(lm.index_copy(lm.reshape(x, (-1,)), 0, places, written), x.shape)


def _strided_places(sizes: Sequence[int], strides: Sequence[int], offset: int) -> Tensor:
    """Where in memory the elements of a tensor with strides are, row by row: of sizes (2, 2),
    strides (3, 1) and the offset 1 they are at 1, 2, 4, 5."""
    places = lm.full(sizes, offset, dtype=lm.int64)
    for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        steps = lm.arange(size, dtype=lm.int64) * stride
        places = places + lm.reshape(steps, (-1, *(1,) * (len(sizes) - axis - 1)))
    return lm.reshape(places, (-1,))


def _ranks(mask: Tensor) -> Tensor:
    """The number of each true element of a vector among the true ones, from 0: of (false, true,
    false, true) the last has 1. A false one has that of the true one before it, or -1."""
    return lm.cumulative_sum(mask.cast(lm.int64), axis=0) - 1


def _masked_scatter_backward(upstream: Tensor, mask: Tensor, sizes: Sequence[int]) -> Tensor:
    """The chosen elements in order, from the first of a tensor of `sizes`; then zeros."""
    chosen = lm.reshape(lm.broadcast_to(mask, upstream.shape), (-1,))
    flat = lm.reshape(upstream, (-1,))
    slopes = lm.where(chosen, flat, lm.zeros_like(flat))
    places = lm.maximum(_ranks(chosen), 0)  # a false element before all true ones adds 0
    result = lm.index_add(lm.zeros((prod(sizes),), dtype=flat.dtype), 0, places, slopes)
    return lm.reshape(result, tuple(sizes))


def _nonzero_static(x: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The indices of the first `size` elements that are not 0, in rows; the last are filled."""
    is_chosen = lm.reshape(x != 0, (-1,))
    ranks = _ranks(is_chosen)
    rows = lm.where(lm.logical_and(is_chosen, ranks < size), ranks, size)  # one more: for the rest
    numbers = lm.arange(x.size, dtype=lm.int64)
    flat = lm.index_copy(lm.full((size + 1,), -1, dtype=lm.int64), 0, rows, numbers)[:size]
    is_filled = lm.arange(size, dtype=lm.int64) >= lm.sum(is_chosen.cast(lm.int64))
    columns = []
    for axis, length in enumerate(x.shape):
        inner = prod(x.shape[axis + 1 :])
        place = lm.remainder(lm.floor_divide(flat, max(inner, 1)), max(length, 1))
        columns.append(lm.where(is_filled, fill_value, place))
    return lm.stack(columns, axis=1) if columns else lm.zeros((size, 0), dtype=lm.int64)


def _tensor(result: Any) -> Tensor:
    assert isinstance(result, Tensor)
    return result


def _of_any_rank(function: Row) -> Row:
    """The row of a scatter, of which lamina's arrays have one number of axes. Empty indices write
    nothing, and a tensor of shape () is one of (1,)."""
    def row(x: Tensor, axis: int, index: Tensor, source: Any, *more: Any, **options: Any) -> Tensor:
        if index.size == 0:
            return x
        if x.ndim and index.ndim:
            return _tensor(function(x, axis, index, source, *more, **options))
        if isinstance(source, Tensor):
            source = lm.reshape(source, (-1,))
        line, places = lm.reshape(x, (-1,)), lm.reshape(index, (-1,))
        return lm.reshape(_tensor(function(line, 0, places, source, *more, **options)), x.shape)

    return row


def _by_counts(function: Row) -> Row:
    """The row of a sum or product into places: that of truth values is taken of numbers."""
    def row(x: Tensor, *arguments: Any, **options: Any) -> Tensor:
        if x.dtype is not lm.bool:
            return _tensor(function(x, *arguments, **options))
        numbers = [
            one.cast(lm.int64) if isinstance(one, Tensor) and one.dtype is lm.bool else one
            for one in arguments
        ]
        return _tensor(function(x.cast(lm.int64), *numbers, **options)) != 0

    return row


def _put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    write = _by_counts(lm.put) if accumulate else lm.put
    return _tensor(write(x, index, source, accumulate))


def _searchsorted(
    rows: Tensor, x: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:  # fmt: skip
    x = x if isinstance(x, Tensor) else lm.full((), x, dtype=rows.dtype)
    return lm.searchsorted(rows, x, side=side or ("right" if right else "left"), sorter=sorter)


ROWS: dict[str, Row] = {
    "aten.index.Tensor": _index,
    "aten._unsafe_index.Tensor": _index,
    "aten.index_put.default": _index_put,
    "aten._unsafe_index_put.default": _index_put,
    "aten.index_select.default": _index_select,
    "aten.index_add.default": _by_counts(
        lambda x, axis, index, source, *, alpha=1: lm.index_add(x, axis, index, source, alpha)
    ),
    "aten.index_reduce.default": lambda x, axis, index, source, reduce, *, include_self=True: (
        lm.index_reduce(x, axis, index, source, reduce, include_self)
    ),
    "aten.index_copy.default": lm.index_copy,
    "aten.index_fill.int_Scalar": lm.index_fill,
    "aten.index_fill.int_Tensor": lm.index_fill,
    "aten.embedding.default": _embedding,
    "aten.embedding_dense_backward.default": embedding_backward,
    "aten.gather.default": _gather,
    "aten.scatter.src": _of_any_rank(_scatter),
    "aten.scatter.value": _of_any_rank(_scatter),
    "aten.scatter.reduce": _by_counts(_of_any_rank(_scatter)),
    "aten.scatter.value_reduce": _by_counts(_of_any_rank(_scatter)),
    "aten.scatter_add.default": _by_counts(_of_any_rank(lm.scatter_add)),
    "aten.scatter_reduce.two": _by_counts(
        _of_any_rank(
            lambda x, axis, index, source, reduce, *, include_self=True: (
                lm.scatter_reduce(x, axis, index, source, reduce, include_self)
            )
        )
    ),
    "aten.put.default": _put,
    "aten.masked_scatter.default": lm.masked_scatter,
    "aten.as_strided.default": _as_strided,
    "aten.as_strided_copy.default": _as_strided,
    "aten.as_strided_scatter.default": _as_strided_scatter,
    "aten.masked_scatter_backward.default": _masked_scatter_backward,
    "aten.nonzero_static.default": _nonzero_static,
    "aten.take.default": lambda x, index: lm.take(lm.reshape(x, (-1,)), index, axis=0),
    "aten.unfold.default": _unfold,
    "aten.searchsorted.Tensor": _searchsorted,
    "aten.searchsorted.Scalar": _searchsorted,
    "aten.bucketize.Tensor": lambda x, boundaries, *, out_int32=False, right=False: (
        lm.bucketize(x, boundaries, right=right)
    ),
}
