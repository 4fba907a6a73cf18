"""Rows of reductions, scans and sorts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import lamina as lm
from lamina.frontend.tensor import Tensor

Row = Callable[..., Any]
Axes = int | Sequence[int] | None


def _axes(x: Tensor, axes: Axes) -> Any:
    """An empty list means all axes. A tensor of shape () has an axis 0 for PyTorch."""
    if axes is None or x.ndim == 0:
        return None
    if isinstance(axes, int):
        return axes
    return tuple(axes) or None


def _reduction(function: Callable[..., Tensor]) -> Row:
    """The row of a function that has `axis`, `keepdims` and may have `dtype`."""

    def row(x: Tensor, axes: Axes = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
        values = x if dtype is None else x.cast(dtype)
        return function(values, axis=_axes(x, axes), keepdims=keepdim)

    return row


def _whole(function: Callable[..., Tensor]) -> Row:
    """The row of a reduction over everything."""

    def row(x: Tensor, *, dtype: Any = None) -> Tensor:
        return function(x if dtype is None else x.cast(dtype))

    return row


def _spread(function: Callable[..., Any]) -> Row:
    """The row of a function that has `correction`, which is 1 in PyTorch where nothing is said."""

    def row(
        x: Tensor, axes: Axes = None, *, correction: float | None = None, keepdim: bool = False
    ) -> Any:
        steps = 1 if correction is None else correction
        return function(x, axis=_axes(x, axes), correction=steps, keepdims=keepdim)

    return row


def _extreme(values: Callable[..., Tensor], places: Callable[..., Tensor]) -> Row:
    def row(x: Tensor, axis: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        if x.ndim == 0:
            return x, lm.zeros((), dtype=lm.int64)
        return values(x, axis=axis, keepdims=keepdim), places(x, axis=axis, keepdims=keepdim)

    return row


def _place(function: Callable[..., Tensor]) -> Row:
    def row(x: Tensor, axis: int | None = None, keepdim: bool = False) -> Tensor:
        if x.ndim == 0:
            return lm.zeros((), dtype=lm.int64)
        return function(x, axis=axis, keepdims=keepdim)

    return row


def _middle(function: Callable[..., Any]) -> Row:
    """Medians and modes: PyTorch's median is the lower of two in the middle."""

    def row(x: Tensor, axis: int = -1, keepdim: bool = False) -> Any:
        if x.ndim == 0:
            return x, lm.zeros((), dtype=lm.int64)
        return function(x, axis=axis, keepdims=keepdim)

    return row


def _scan(function: Callable[..., Any], **options: Any) -> Row:
    def row(x: Tensor, axis: int, *, dtype: Any = None) -> Any:
        values = x if dtype is None else x.cast(dtype)
        if x.ndim:
            return function(values, axis=axis, **options)
        result = function(lm.reshape(values, (1,)), axis=0, **options)
        if isinstance(result, Tensor):
            return lm.reshape(result, ())
        return tuple(lm.reshape(part, ()) for part in result)

    return row


def _sort(
    x: Tensor, axis: int = -1, descending: bool = False, **options: Any
) -> tuple[Tensor, Tensor]:
    if x.ndim == 0:
        return x, lm.zeros((), dtype=lm.int64)
    places = lm.argsort(x, axis=axis, descending=descending)
    return lm.take_along_axis(x, places, axis=axis), places


def _stable_sort(
    x: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Tensor, Tensor]:
    return _sort(x, dim, descending)


def _vector_norm(
    x: Tensor, order: Any = 2, axes: Axes = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    values = x if dtype is None else x.cast(dtype)
    return lm.norm(values, order, _axes(x, axes), keepdim)


def _softmax(function: Callable[..., Tensor]) -> Row:
    def row(x: Tensor, axis: int, half_to_float: bool) -> Tensor:
        values = x.cast(lm.float32) if half_to_float else x
        return function(values, axis=axis) if x.ndim else function(lm.reshape(values, (1,)))[0]

    return row


def _wide(x: Tensor) -> Tensor:
    """PyTorch computes these of 16 bits in float32, and rounds once."""
    return x.cast(lm.float32) if x.dtype.is_small else x


def _softmax_backward(upstream: Tensor, y: Tensor, axis: int, dtype: Any) -> Tensor:
    if y.ndim == 0:
        return lm.zeros_like(y)
    upstream, y = _wide(upstream), _wide(y)
    weighted = upstream * y
    return weighted - y * lm.sum(weighted, axis=axis, keepdims=True)


def _log_softmax_backward(upstream: Tensor, y: Tensor, axis: int, dtype: Any) -> Tensor:
    if y.ndim == 0:
        return lm.zeros_like(y)
    upstream, y = _wide(upstream), _wide(y)
    return upstream - lm.exp(y) * lm.sum(upstream, axis=axis, keepdims=True)


ROWS: dict[str, Row] = {
    "aten.sum.default": _whole(lm.sum),
    "aten.sum.dim_IntList": _reduction(lm.sum),
    "aten.mean.default": _whole(lm.mean),
    "aten.mean.dim": _reduction(lm.mean),
    "aten.prod.default": _whole(lm.prod),
    "aten.prod.dim_int": _reduction(lm.prod),
    "aten.any.default": _whole(lm.any),
    "aten.any.dim": _reduction(lm.any),
    "aten.any.dims": _reduction(lm.any),
    "aten.all.default": _whole(lm.all),
    "aten.all.dim": _reduction(lm.all),
    "aten.all.dims": _reduction(lm.all),
    "aten.amax.default": _reduction(lm.max),
    "aten.amin.default": _reduction(lm.min),
    "aten.max.default": _whole(lm.max),
    "aten.min.default": _whole(lm.min),
    "aten.max.dim": _extreme(lm.max, lm.argmax),
    "aten.min.dim": _extreme(lm.min, lm.argmin),
    "aten.argmax.default": _place(lm.argmax),
    "aten.argmin.default": _place(lm.argmin),
    "aten.count_nonzero.default": lambda x, axes=None: lm.count_nonzero(x, axis=_axes(x, axes)),
    "aten.count_nonzero.dim_IntList": lambda x, axes: lm.count_nonzero(x, axis=_axes(x, axes)),
    "aten.var.correction": _spread(lm.var),
    "aten.std.correction": _spread(lm.std),
    "aten.var_mean.correction": _spread(lm.var_mean),
    "aten.std_mean.correction": _spread(lm.std_mean),
    "aten.logsumexp.default": _reduction(lm.logsumexp),
    "aten.dist.default": lm.dist,
    "aten.histc.default": lm.histc,
    "aten.linalg_vector_norm.default": _vector_norm,
    "aten.cumsum.default": _scan(lm.cumulative_sum),
    "aten.cumprod.default": _scan(lm.cumulative_prod),
    "aten.cummax.default": _scan(lm.cummax, return_indices=True),
    "aten.cummin.default": _scan(lm.cummin, return_indices=True),
    "aten.logcumsumexp.default": _scan(lm.logcumsumexp),
    "aten._softmax.default": _softmax(lm.softmax),
    "aten._log_softmax.default": _softmax(lm.log_softmax),
    "aten._softmax_backward_data.default": _softmax_backward,
    "aten._log_softmax_backward_data.default": _log_softmax_backward,
    "aten.sort.default": _sort,
    "aten.sort.stable": _stable_sort,
    "aten.argsort.default": lambda x, axis=-1, descending=False: _sort(x, axis, descending)[1],
    "aten.topk.default": lm.topk,
    "aten.median.default": lambda x: lm.median(x),
    "aten.median.dim": _middle(lm.median),
    "aten.nanmedian.default": lambda x: lm.nanmedian(x),
    "aten.nanmedian.dim": _middle(lm.nanmedian),
    "aten.mode.default": _middle(lm.mode),
    "aten.kthvalue.default": lm.kthvalue,
}
