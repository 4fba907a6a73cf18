"""Steps along axes, sliding windows as views, and what layers share.

A window view has ``out[o, k] = x[o * stride + k * dilation]``. EXPAND repeats the axis for each
k, SHEAR by ``-dilation`` shifts each copy, and SHRINK keeps the rows where all copies overlap:
nothing is copied, the compiler sees affine indices only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Concatenate, ParamSpec

from lamina.dtypes import Scalar
from lamina.dtypes import accumulator as accumulator
from lamina.errors import DTypeError, ShapeError
from lamina.ir.build import along as along
from lamina.ir.build import expand, insert_axes, pad, permute, reshape, shear, shrink
from lamina.ir.build import places as places
from lamina.ir.node import Node
from lamina.shape import Shape
from lamina.tensor.core import Tensor
from lamina.tensor.elementwise import named

P = ParamSpec("P")
Sizes = int | Sequence[int]


def resized(shape: Shape, axis: int, *sizes: int) -> Shape:
    """`shape` with the size of `axis` replaced by `sizes`."""
    return (*shape[:axis], *sizes, *shape[axis + 1 :])


def slice_axis(x: Node, axis: int, start: int, stop: int, step: int = 1) -> Node:
    """``start:stop:step`` along `axis`."""
    starts, steps = (0,) * len(x.shape), (1,) * len(x.shape)
    box = resized(starts, axis, start), resized(x.shape, axis, stop), resized(steps, axis, step)
    return shrink(x, *box)


def for_ranks(function: Callable[Concatenate[str, int, P], Tensor]) -> list[Callable[P, Tensor]]:
    """`function` of a name and a number of spatial axes for one, two and three of them."""
    name, doc = function.__name__, function.__doc__
    return [named(f"{name}{rank}d", doc, function, rank) for rank in (1, 2, 3)]


def exact(what: str, x: Tensor) -> Tensor:
    """`x` in its accumulator's dtype; raises DTypeError when it is no float."""
    if not x.dtype.is_float:
        raise DTypeError(f"{what}: {x.dtype.name} is not a float dtype; cast it")
    return x.cast(accumulator(x.dtype))


def per_axis(what: str, name: str, value: Sizes, rank: int, least: int = 1) -> Shape:
    """`value` once for each of `rank` spatial axes; raises ShapeError for other counts."""
    sizes = (value,) if isinstance(value, int) else tuple(value)
    if len(sizes) == 1:
        sizes *= rank
    if len(sizes) != rank or min(sizes) < least:
        raise ShapeError(f"{what}: {name} is {value}; one or {rank} integers >= {least} are needed")
    return sizes


def batched(what: str, x: Node, rank: int) -> Node:
    """`x` of shape (N, C, spatial...) from itself or from (C, spatial...)."""
    if len(x.shape) not in (rank + 1, rank + 2):
        raise ShapeError(f"{what}: the input has shape {x.shape}, not ([N,] C, {rank} sizes)")
    return x if len(x.shape) == rank + 2 else insert_axes(x, (0,))


def unbatched(result: Node, like: Tensor) -> Tensor:
    """Undo `batched`, whose operand was `like`."""
    shape = result.shape[len(result.shape) - like.ndim :]
    return Tensor.of(reshape(result, shape), like.device)


def count(size: int, kernel: int, stride: int, dilation: int) -> int:
    """How many windows fit; not positive when the first does not."""
    return (size - (kernel - 1) * dilation - 1) // stride + 1


def views(what: str, x: Node, kernels: Shape, strides: Shape, dilations: Shape) -> Node:
    """The windows along the last axes of `x`: (..., S...) becomes (..., K..., O...), so that what
    derivatives store in between is read along O. Raises ShapeError when a kernel does not fit."""
    padded, lead = x.shape, len(x.shape) - len(kernels)
    rows = zip(kernels, strides, dilations, strict=True)
    for number, (kernel, stride, dilation) in enumerate(rows):
        if count(padded[lead + number], kernel, stride, dilation) < 1:
            raise ShapeError(f"{what}: a kernel of {kernel} with dilation {dilation} does not fit "
                             f"axis {lead + number} of the padded input {padded}")  # fmt: skip
        x = _window_axis(x, lead + 2 * number, lead + number, kernel, stride, dilation)
    return x


def _window_axis(x: Node, axis: int, at: int, kernel: int, stride: int, dilation: int) -> Node:
    """`axis` becomes window positions, and an axis of size `kernel` is put before the axis `at`."""
    places = count(x.shape[axis], kernel, stride, dilation)
    if kernel == stride and dilation == 1:
        # Windows side by side are a reshape, whose adjoint is one too.
        whole = slice_axis(x, axis, 0, places * kernel)
        parts = reshape(whole, resized(x.shape, axis, places, kernel))
        order = [one for one in range(len(parts.shape)) if one != axis + 1]
        return permute(parts, [*order[:at], axis + 1, *order[at:]])
    copies = expand(insert_axes(x, (at,)), (*x.shape[:at], kernel, *x.shape[at:]))
    if kernel > 1:
        copies = shear(copies, axis + 1, at, -dilation)
    start = (kernel - 1) * dilation
    return slice_axis(copies, axis + 1, start, start + (places - 1) * stride + 1, stride)


def pad_spatial(x: Node, before: Sequence[int], after: Sequence[int], value: Scalar = 0) -> Node:
    """Pad the last axes of `x`; a negative amount crops."""
    none = [0] * (len(x.shape) - len(before))
    before, after = [*none, *before], [*none, *after]
    start = [max(-amount, 0) for amount in before]
    stop = [size - max(-amount, 0) for size, amount in zip(x.shape, after, strict=True)]
    low, high = ([max(amount, 0) for amount in amounts] for amounts in (before, after))
    return pad(shrink(x, start, stop), low, high, value)


def spread_apart(x: Node, steps: Shape) -> Node:
    """Put ``step - 1`` zeros after each element along the last axes."""
    if set(steps) <= {1}:
        return x
    first = len(x.shape) - len(steps)
    outer, sizes = x.shape[:first], x.shape[first:]
    pairs = reshape(x, (*outer, *(part for size in sizes for part in (size, 1))))
    after = [0] * first + [part for step in steps for part in (0, step - 1)]
    spaced = pad(pairs, [0] * len(after), after)
    spread = (size * step for size, step in zip(sizes, steps, strict=True))
    return reshape(spaced, (*outer, *spread))
