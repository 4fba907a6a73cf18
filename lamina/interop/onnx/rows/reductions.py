"""Rows of reductions over axes, of running sums, and of the largest elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lamina as lm
from lamina.frontend.tensor import Tensor
from lamina.interop.onnx.rows import Context, row
from lamina.interop.onnx.values import tensor

Reduction = Callable[[Tensor, tuple[int, ...], bool], Tensor]


def _sum_square(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    return lm.sum(x * x, axis=axes, keepdims=keepdims)


def _l2(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    squares = _sum_square(x, axes, keepdims)
    if squares.dtype.is_float:
        return lm.sqrt(squares)
    return lm.sqrt(squares.cast(lm.float64))


def _log_sum(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    return lm.log(lm.sum(x, axis=axes, keepdims=keepdims))


def _extreme(function: Callable[..., Tensor], is_max: bool) -> Reduction:
    """`function` for booleans too, and with ONNX's values of no elements."""

    def reduced(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
        if x.dtype is lm.bool:
            logical = lm.any if is_max else lm.all
            return logical(x, axis=axes, keepdims=keepdims)
        if x.size:
            return function(x, axis=axes, keepdims=keepdims)
        lowest, highest = x.dtype.min, x.dtype.max
        sizes = lm.sum(x, axis=axes, keepdims=keepdims).shape
        return lm.full(sizes, lowest if is_max else highest, dtype=x.dtype)

    return reduced


_REDUCTIONS: dict[str, Reduction] = {
    "ReduceSum": lambda x, axes, keepdims: lm.sum(x, axis=axes, keepdims=keepdims),
    "ReduceMean": lambda x, axes, keepdims: lm.mean(x, axis=axes, keepdims=keepdims),
    "ReduceProd": lambda x, axes, keepdims: lm.prod(x, axis=axes, keepdims=keepdims),
    "ReduceMax": _extreme(lm.max, True),
    "ReduceMin": _extreme(lm.min, False),
    "ReduceSumSquare": _sum_square,
    "ReduceL1": lambda x, axes, keepdims: lm.sum(lm.abs(x), axis=axes, keepdims=keepdims),
    "ReduceL2": _l2,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": lambda x, axes, keepdims: lm.logsumexp(x, axis=axes, keepdims=keepdims),
}


def _add_reduction(operator: str, reduction: Reduction) -> None:
    """The rows of a reduction: axes are an input since version 18 (13 of ReduceSum)."""

    def reduced(x: Any, axes: list[int] | None, keepdims: int, keep_all: bool) -> Any:
        if not axes and keep_all:
            return x
        operand = tensor(x)
        along = tuple(axes) if axes else tuple(range(operand.ndim))
        return reduction(operand, along, bool(keepdims)).cast(operand.dtype)

    @row(operator, since=13 if operator == "ReduceSum" else 18)
    def by_input(
        context: Context, x: Any, axes: Any = None, *, keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Any:  # fmt: skip
        along = None if axes is None else context.integers(axes)
        is_plain = operator in ("ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin")
        if not along and noop_with_empty_axes and not is_plain:
            operand = tensor(x)  # each element is reduced by itself
            return reduction(operand.reshape((1, *operand.shape)), (0,), False).cast(operand.dtype)
        return reduced(x, along, keepdims, bool(noop_with_empty_axes))

    @row(operator)
    def by_attribute(
        context: Context, x: Any, *, axes: list[int] | None = None, keepdims: int = 1
    ) -> Any:
        return reduced(x, axes, keepdims, False)


for _operator, _reduction in _REDUCTIONS.items():
    _add_reduction(_operator, _reduction)


@row("ArgMax")
def argmax(
    context: Context, x: Any, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
) -> Any:
    return _place(lm.argmax, tensor(x), axis, bool(keepdims), bool(select_last_index))


@row("ArgMin")
def argmin(
    context: Context, x: Any, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
) -> Any:
    return _place(lm.argmin, tensor(x), axis, bool(keepdims), bool(select_last_index))


def _place(
    function: Callable[..., Tensor], x: Tensor, axis: int, keepdims: bool, is_last: bool
) -> Tensor:
    if not is_last:
        return function(x, axis=axis, keepdims=keepdims).cast(lm.int64)
    from_end = function(lm.flip(x, axis=axis), axis=axis, keepdims=keepdims).cast(lm.int64)
    return x.shape[axis] - 1 - from_end


@row("CumSum")
def cumsum(context: Context, x: Any, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Any:
    along = context.integers(axis)[0]
    return _running(lm.cumulative_sum, tensor(x), along, bool(exclusive), bool(reverse))


@row("CumProd")
def cumprod(context: Context, x: Any, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Any:
    along = context.integers(axis)[0]
    return _running(lm.cumulative_prod, tensor(x), along, bool(exclusive), bool(reverse))


def _running(
    function: Callable[..., Tensor], x: Tensor, axis: int, exclusive: bool, reverse: bool
) -> Tensor:
    """exclusive: element i has those before i alone. reverse: from the last element on."""
    if reverse:
        x = lm.flip(x, axis=axis)
    result = function(x, axis=axis, dtype=x.dtype, include_initial=exclusive)
    if exclusive:
        kept: list[Any] = [slice(None)] * x.ndim
        kept[axis] = slice(0, x.shape[axis])
        result = result[tuple(kept)]
    return lm.flip(result, axis=axis) if reverse else result


@row("TopK", since=10)
def topk(
    context: Context, x: Any, k: Any, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> Any:
    return _top(tensor(x), context.integers(k)[0], axis, bool(largest))


@row("TopK")
def topk_by_attribute(context: Context, x: Any, *, k: int, axis: int = -1) -> Any:
    return _top(tensor(x), k, axis, True)


def _top(x: Tensor, count: int, axis: int, is_largest: bool) -> tuple[Tensor, Tensor]:
    """Among equal elements the first one comes first."""
    order = lm.argsort(x, axis=axis, descending=is_largest, stable=True)
    kept: list[Any] = [slice(None)] * x.ndim
    kept[axis] = slice(0, count)
    places = order[tuple(kept)]
    return lm.take_along_axis(x, places, axis=axis), places.cast(lm.int64)
