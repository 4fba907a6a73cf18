"""Rows of operations that move elements, and of those that make tensors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import lamina as lm
from lamina.frontend.tensor import Tensor

Row = Callable[..., Any]


def along(x: Tensor, axis: int, key: Any) -> tuple[Any, ...]:
    """The index of all of x but along one axis, where it is `key`."""
    place = axis % max(x.ndim, 1)
    return (*(slice(None),) * place, key)


def _stop(end: int | None) -> int | None:
    """PyTorch writes the end of an axis as the greatest integer."""
    return None if end is None or end >= sys.maxsize else end


def _slice(
    x: Tensor, axis: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    return x[along(x, axis, slice(start, _stop(end), step))]


def _narrow(x: Tensor, axis: int, start: int, length: int) -> Tensor:
    first = start % x.shape[axis] if start < 0 else start
    return x[along(x, axis, slice(first, first + length))]


def _slice_scatter(
    x: Tensor, source: Tensor, axis: int = 0, start: int | None = None, end: int | None = None,
    step: int = 1,
) -> Tensor:  # fmt: skip
    return lm.slice_scatter(x, source, axis, start, _stop(end), step)


def _select_backward(upstream: Tensor, sizes: Sequence[int], axis: int, index: int) -> Tensor:
    return lm.select_scatter(lm.zeros(sizes, dtype=upstream.dtype), upstream, axis, index)


def _slice_backward(
    upstream: Tensor, sizes: Sequence[int], axis: int, start: int, end: int, step: int
) -> Tensor:
    zeros = lm.zeros(sizes, dtype=upstream.dtype)
    return lm.slice_scatter(zeros, upstream, axis, start, _stop(end), step)


def _cat(parts: Sequence[Tensor], axis: int = 0) -> Tensor:
    """PyTorch ignores empty vectors, which older programs begin lists with."""
    kept = [part for part in parts if part.shape != (0,)]
    return lm.concat(kept, axis=axis) if kept else parts[0]


def _squeeze(x: Tensor, axes: Any = None) -> Tensor:
    """Axes of other sizes than 1 stay, where array API functions refuse them."""
    if axes is None:
        return lm.squeeze(x)
    numbers = [axes] if isinstance(axes, int) else axes
    singles = [axis % x.ndim for axis in numbers if x.ndim and x.shape[axis] == 1]
    return lm.squeeze(x, axis=tuple(singles))


def _repeat(x: Tensor, counts: Sequence[int]) -> Tensor:
    return lm.tile(x, counts)


def _constant_pad(x: Tensor, pad: Sequence[int], value: Any = 0) -> Tensor:
    """Pads are pairs from the last axis on; negative ones cut."""
    before, after = pad[::2], pad[1::2]
    for number, (low, high) in enumerate(zip(before, after, strict=True)):
        axis = x.ndim - 1 - number
        x = x[along(x, axis, slice(max(-low, 0), x.shape[axis] - max(-high, 0)))]
    return lm.pad(x, [max(size, 0) for size in pad], value=value)


def _arange(start: Any, end: Any, step: Any = 1, *, dtype: Any = None) -> Tensor:
    return lm.arange(start, end, step, dtype=dtype)


def _scalar_tensor(value: Any, *, dtype: Any = None) -> Tensor:
    return lm.full((), value, dtype=dtype or lm.float32)


def _iota(
    length: int, *, start: int, step: int, dtype: Any, requires_grad: bool = False
) -> Tensor:
    return lm.arange(start, start + length * step, step, dtype=dtype)


def _zeros(sizes: Sequence[int], *, dtype: Any = None) -> Tensor:
    """Also for operations whose result nobody has written: lamina has no such arrays."""
    return lm.zeros(sizes, dtype=dtype or lm.float32)


def _diagonal(x: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    return lm.diagonal(x, offset, axis1, axis2)


def _triangle(function: Callable[..., Tensor]) -> Row:
    return lambda x, diagonal=0: function(x, k=diagonal)


ROWS: dict[str, Row] = {
    "aten.view.default": lambda x, sizes: lm.reshape(x, tuple(sizes)),
    "aten.reshape.default": lambda x, sizes: lm.reshape(x, tuple(sizes)),
    "aten._unsafe_view.default": lambda x, sizes: lm.reshape(x, tuple(sizes)),
    "aten.view_copy.default": lambda x, sizes: lm.reshape(x, tuple(sizes)),
    "aten.permute.default": lm.permute,
    "aten.permute_copy.default": lm.permute,
    "aten.transpose.int": lambda x, a, b: lm.transpose(x, a, b) if x.ndim else x,
    "aten.t.default": lambda x: lm.transpose(x, 0, 1) if x.ndim == 2 else x,
    "aten.expand.default": lambda x, sizes, *, implicit=False: lm.expand(x, tuple(sizes)),
    "aten.unsqueeze.default": lambda x, axis: lm.expand_dims(x, axis),
    "aten.squeeze.default": _squeeze,
    "aten.squeeze.dim": _squeeze,
    "aten.squeeze.dims": _squeeze,
    "aten.slice.Tensor": _slice,
    "aten.slice_scatter.default": _slice_scatter,
    "aten.slice_backward.default": _slice_backward,
    "aten.select.int": lm.select,
    "aten.select_scatter.default": lm.select_scatter,
    "aten.select_backward.default": _select_backward,
    "aten.split_with_sizes.default": lambda x, sizes, axis=0: lm.split(x, list(sizes), axis),
    "aten.split.Tensor": lambda x, size, axis=0: lm.split(x, size, axis),
    "aten.narrow_copy.default": _narrow,
    "aten.unbind_copy.int": lambda x, axis=0: lm.unstack(x, axis=axis),
    "aten.unbind.int": lambda x, axis=0: lm.unstack(x, axis=axis),
    "aten.cat.default": _cat,
    "aten.stack.default": lambda parts, axis=0: lm.stack(parts, axis=axis),
    "aten.flip.default": lambda x, axes: lm.flip(x, axis=tuple(axes)),
    "aten.roll.default": lambda x, shifts, axes=(): lm.roll(x, shifts, axis=tuple(axes) or None),
    "aten.rot90.default": lm.rot90,
    "aten.repeat.default": _repeat,
    "aten.constant_pad_nd.default": _constant_pad,
    "aten.clone.default": lambda x: x,
    "aten.lift_fresh_copy.default": lambda x: x,
    "aten.copy.default": lambda x, source, non_blocking=False: lm.broadcast_to(
        source.cast(x.dtype), x.shape
    ),
    "aten.diagonal.default": _diagonal,
    "aten.diagonal_scatter.default": lm.diagonal_scatter,
    "aten.diag_embed.default": lambda x, offset=0, axis1=-2, axis2=-1: lm.diag_embed(
        x, offset, axis1, axis2
    ),
    "aten.tril.default": _triangle(lm.tril),
    "aten.triu.default": _triangle(lm.triu),
    "aten.full.default": lambda sizes, value, *, dtype=None: lm.full(sizes, value, dtype=dtype),
    "aten.full_like.default": lambda x, value, *, dtype=None: lm.full(
        x.shape, value, dtype=dtype or x.dtype
    ),
    "aten.zeros.default": _zeros,
    "aten._efficientzerotensor.default": _zeros,
    "aten.ones.default": lambda sizes, *, dtype=None: lm.ones(sizes, dtype=dtype),
    "aten.zeros_like.default": lambda x, *, dtype=None: lm.zeros(x.shape, dtype=dtype or x.dtype),
    "aten.ones_like.default": lambda x, *, dtype=None: lm.ones(x.shape, dtype=dtype or x.dtype),
    "aten.empty.memory_format": _zeros,
    "aten.empty_permuted.default": lambda sizes, order, *, dtype=None: _zeros(sizes, dtype=dtype),
    "aten.empty_strided.default": lambda sizes, strides, *, dtype=None: _zeros(sizes, dtype=dtype),
    "aten.empty_like.default": lambda x, *, dtype=None: lm.zeros(x.shape, dtype=dtype or x.dtype),
    "aten.new_empty_strided.default": lambda x, sizes, strides, *, dtype=None: _zeros(
        sizes, dtype=dtype or x.dtype
    ),
    "aten.new_full.default": lambda x, sizes, value, *, dtype=None: lm.full(
        sizes, value, dtype=dtype or x.dtype
    ),
    "aten.new_zeros.default": lambda x, sizes, *, dtype=None: lm.zeros(
        sizes, dtype=dtype or x.dtype
    ),
    "aten.fill.Scalar": lambda x, value: lm.full_like(x, value),
    "aten.fill.Tensor": lambda x, value: lm.broadcast_to(value, x.shape),
    "aten.scalar_tensor.default": _scalar_tensor,
    "aten.arange.start_step": _arange,
    "aten.arange.start": _arange,
    "aten.arange.default": lambda end, *, dtype=None: lm.arange(end, dtype=dtype),
    "aten.linspace.default": lambda start, end, steps, *, dtype=None: lm.linspace(
        start, end, steps, dtype=dtype
    ),
    "aten.eye.default": lambda n, *, dtype=None: lm.eye(n, dtype=dtype),
    "aten.eye.m": lambda n, m, *, dtype=None: lm.eye(n, m, dtype=dtype),
    "aten.tril_indices.default": lambda row, col, offset=0, *, dtype=None: lm.tril_indices(
        row, col, offset
    ),
    "aten.triu_indices.default": lambda row, col, offset=0, *, dtype=None: lm.triu_indices(
        row, col, offset
    ),
    "prims.iota.default": _iota,
}
