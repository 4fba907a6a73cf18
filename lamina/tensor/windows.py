"""Sliding windows as views: what convolutions and pooling are made of.

A window view has ``out[o, k] = x[o * stride + k * dilation]``. EXPAND repeats the axis for each
k, SHEAR by ``-dilation`` shifts each copy, and SHRINK keeps the rows where all copies overlap:
nothing is copied, the compiler sees affine indices only.
"""

from __future__ import annotations

from collections.abc import Sequence

from lamina.dtypes import DType, Scalar, float32
from lamina.errors import ShapeError
from lamina.ir.build import expand, insert_axes, pad, permute, reshape, shear, shrink
from lamina.ir.node import Node
from lamina.shape import Shape

Sizes = int | Sequence[int]


def accumulator(dtype: DType) -> DType:
    """The dtype to add many numbers of `dtype` in."""
    return float32 if dtype.is_float and dtype.bits < 32 else dtype


def per_axis(what: str, name: str, value: Sizes, rank: int, least: int = 1) -> Shape:
    """`value` once for each of `rank` spatial axes; raises ShapeError for other counts."""
    sizes = (value,) * rank if isinstance(value, int) else tuple(value)
    if len(sizes) == 1:
        sizes *= rank
    if len(sizes) != rank or min(sizes) < least:
        raise ShapeError(
            f"{what}: {name} is {value}; one or {rank} integers >= {least} are needed"
        )
    return sizes


def batched(what: str, x: Node, rank: int) -> Node:
    """`x` of shape (N, C, spatial...) from itself or from (C, spatial...)."""
    if len(x.shape) == rank + 1:
        return insert_axes(x, (0,))
    if len(x.shape) != rank + 2:
        raise ShapeError(
            f"{what}: the input has shape {x.shape}; (N, C, {rank} sizes) or (C, {rank} sizes) "
            "is needed"
        )
    return x


def unbatched(result: Node, like: Node) -> Node:
    """Undo `batched`, whose operand was `like`."""
    return reshape(result, result.shape[1:]) if len(like.shape) < len(result.shape) else result


def window_count(size: int, kernel: int, stride: int, dilation: int) -> int:
    """How many windows fit; not positive when the first does not."""
    return (size - (kernel - 1) * dilation - 1) // stride + 1


def windows(
    what: str, x: Node, kernel: Shape, stride: Shape, dilation: Shape
) -> Node:
    """The windows along the last axes of `x`: (..., S...) becomes (..., O..., K...).

    Raises ShapeError when a kernel does not fit.
    """
    rank = len(kernel)
    first = len(x.shape) - rank
    for offset, arguments in enumerate(zip(kernel, stride, dilation, strict=True)):
        if window_count(x.shape[first + offset], *arguments) < 1:
            raise ShapeError(
                f"{what}: a kernel of {kernel} with dilation {dilation} does not fit the padded "
                f"input, whose sizes are {x.shape[first:first + rank]}"
            )
        x = _window_axis(x, first + offset, *arguments)
    return x


def _window_axis(x: Node, axis: int, kernel: int, stride: int, dilation: int) -> Node:
    """`axis` becomes window positions, and a last axis of size `kernel` is added."""
    count = window_count(x.shape[axis], kernel, stride, dilation)
    last = len(x.shape)
    if kernel == stride and dilation == 1:
        # Windows side by side are a reshape, whose adjoint is one too.
        whole = _slice_axis(x, axis, 0, count * kernel, 1)
        parts = reshape(whole, (*x.shape[:axis], count, kernel, *x.shape[axis + 1 :]))
        return permute(parts, [one for one in range(last + 1) if one != axis + 1] + [axis + 1])
    copies = expand(insert_axes(x, (last,)), (*x.shape, kernel))
    if kernel > 1:
        copies = shear(copies, axis, last, -dilation)
    start = (kernel - 1) * dilation
    return _slice_axis(copies, axis, start, start + (count - 1) * stride + 1, stride)


def _slice_axis(x: Node, axis: int, start: int, stop: int, step: int) -> Node:
    rank = range(len(x.shape))
    return shrink(
        x,
        [start if one == axis else 0 for one in rank],
        [stop if one == axis else x.shape[one] for one in rank],
        [step if one == axis else 1 for one in rank],
    )


def pad_spatial(
    x: Node, before: Sequence[int], after: Sequence[int], value: Scalar = 0
) -> Node:
    """Pad the last axes of `x`; a negative amount crops."""
    first = len(x.shape) - len(before)
    none = (0,) * first
    sizes = x.shape[first:]
    start = [*none, *(max(-amount, 0) for amount in before)]
    kept = [size - max(-amount, 0) for size, amount in zip(sizes, after, strict=True)]
    x = shrink(x, start, [*x.shape[:first], *kept])
    low = [*none, *(max(amount, 0) for amount in before)]
    high = [*none, *(max(amount, 0) for amount in after)]
    return pad(x, low, high, value)


def spread_apart(x: Node, steps: Shape) -> Node:
    """Put ``step - 1`` zeros after each element along the last axes."""
    if all(step == 1 for step in steps):
        return x
    first = len(x.shape) - len(steps)
    outer, sizes = x.shape[:first], x.shape[first:]
    pairs = reshape(x, (*outer, *(part for size in sizes for part in (size, 1))))
    after = [0] * first + [part for step in steps for part in (0, step - 1)]
    spaced = pad(pairs, [0] * len(after), after)
    return reshape(
        spaced, (*outer, *(size * step for size, step in zip(sizes, steps, strict=True)))
    )
