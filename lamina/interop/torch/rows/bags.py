"""Rows of bags of embeddings: sums, means and maxima of the rows of a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lamina as lm
from lamina.errors import ArgumentError
from lamina.frontend.tensor import Tensor
from lamina.interop.torch.rows.indexing import embedding_backward
from lamina.interop.torch.rows.unread import Unread

Row = Callable[..., Any]
_MODES = ("sum", "mean", "max")  # by PyTorch's numbers


def _embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, by_frequency: bool = False, mode: int = 0,
    sparse: bool = False, per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False, padding_idx: int = -1,
) -> tuple[Any, ...]:  # fmt: skip
    """The bags, (N, d). Of what the derivative reads, its row finds all again but the indices of
    maxima, (N, d)."""
    if sparse:
        raise ArgumentError("_embedding_bag: its derivative would be sparse; use sparse=False")
    result = _bags(
        weight, indices, offsets, by_frequency, mode, sparse, per_sample_weights,
        include_last_offset, padding_idx,
    )  # fmt: skip
    greatest: Any = Unread.RESULT
    if _MODES[mode] == "max":
        greatest = _greatest(result, weight, indices, offsets, padding_idx)
    return result, Unread.RESULT, Unread.RESULT, greatest


def _without_derivative(*arguments: Any, **options: Any) -> tuple[Any, ...]:
    return (_bags(*arguments, **options), *[Unread.RESULT] * 3)


def _bags(
    weight: Tensor, indices: Tensor, offsets: Tensor, by_frequency: bool = False, mode: int = 0,
    sparse: bool = False, per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False, padding_idx: int = -1,
) -> Tensor:  # fmt: skip
    return lm.embedding_bag(
        indices, weight, offsets, _MODES[mode], per_sample_weights, include_last_offset,
        padding_idx if padding_idx >= 0 else None, scale_grad_by_freq=by_frequency,
    )  # fmt: skip


def _bag_of_each(offsets: Tensor, indices: Tensor) -> Tensor:
    """The bag of each index, (L,): of bags that begin at 0, 2 and 2 they are 0, 0, 2, 2, ..."""
    places = lm.arange(indices.shape[0], dtype=offsets.dtype)
    return lm.searchsorted(offsets, places, side="right") - 1


def _greatest(
    result: Tensor, weight: Tensor, indices: Tensor, offsets: Tensor, padding_idx: int
) -> Tensor:
    """The first index of each bag whose row has the bag's maximum, for each column: (N, d). In an
    empty bag it is any."""
    length = indices.shape[0]
    if not length:
        return lm.zeros(result.shape, dtype=lm.int64)
    bag = _bag_of_each(offsets, indices)
    rows = lm.take(weight, indices, axis=0)
    is_greatest = lm.logical_or(rows == lm.take(result, bag, axis=0), lm.isnan(rows))
    is_chosen = lm.logical_and(is_greatest, lm.expand_dims(indices != padding_idx, 1))
    places = lm.expand_dims(lm.arange(length, dtype=lm.int64), 1)
    last = lm.full(result.shape, length - 1, dtype=lm.int64)
    first = lm.index_reduce(last, 0, bag, lm.where(is_chosen, places, length - 1), "amin")
    return lm.take(indices.cast(lm.int64), first, axis=0)


def _embedding_bag_backward(
    upstream: Tensor, indices: Tensor, offsets: Tensor, _bag: Tensor, _sizes: Tensor,
    greatest: Tensor, rows: int, by_frequency: bool, mode: int, sparse: bool,
    per_sample_weights: Tensor | None, padding_idx: int = -1,
) -> Tensor:  # fmt: skip
    """The derivative by the weight, (rows, d). upstream: that by the bags, (N, d). With
    `by_frequency` that of a row is divided by how often its index occurs, as of an embedding;
    PyTorch's kernel for CPUs divides it by how often another index does."""
    count, width = upstream.shape
    bag = _bag_of_each(offsets, indices)
    counted = (indices != padding_idx).cast(lm.int64)
    sizes = lm.index_add(lm.zeros((count,), dtype=lm.int64), 0, bag, counted)
    sizes = lm.expand_dims(sizes, 1)
    if _MODES[mode] == "max":
        slopes = lm.where(sizes > 0, upstream, lm.zeros_like(upstream))
        nothing = lm.zeros((rows, width), dtype=upstream.dtype)
        return lm.scatter_add(nothing, 0, greatest.cast(lm.int64), slopes)
    if _MODES[mode] == "mean":
        upstream = upstream / lm.maximum(sizes, 1).cast(upstream.dtype)
    slopes = lm.take(upstream, bag, axis=0)
    if per_sample_weights is not None:
        slopes = slopes * lm.expand_dims(per_sample_weights, 1)
    return embedding_backward(slopes, indices, rows, padding_idx, by_frequency)


def _per_sample_weights_backward(
    upstream: Tensor, weight: Tensor, indices: Tensor, offsets: Tensor, _bag: Tensor, mode: int,
    padding_idx: int = -1,
) -> Tensor:  # fmt: skip
    """The derivative by the factor of each index, (L,); there are some of sums alone."""
    bag = _bag_of_each(offsets, indices)
    products = lm.take(upstream, bag, axis=0) * lm.take(weight, indices, axis=0)
    slopes = lm.sum(products, axis=1)
    return lm.where(indices == padding_idx, lm.zeros_like(slopes), slopes)


ROWS: dict[str, Row] = {
    "aten._embedding_bag.default": _embedding_bag,
    "aten._embedding_bag_forward_only.default": _without_derivative,
    "aten._embedding_bag_backward.default": _embedding_bag_backward,
    "aten._embedding_bag_per_sample_weights_backward.default": _per_sample_weights_backward,
}
