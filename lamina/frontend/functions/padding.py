"""Elements added at the ends of axes: of one value, mirrored, repeated, or from the other end."""

from collections.abc import Sequence
from typing import Any

from lamina.core.dtypes import Scalar
from lamina.errors import ArgumentError, ShapeError
from lamina.frontend.arguments import sizes_of
from lamina.frontend.functions.movement import concat
from lamina.frontend.functions.spatial import pad_spatial, resized
from lamina.frontend.tensor import Data, Tensor
from lamina.ir import build
from lamina.ir.node import Node

__all__ = ["pad"]

_MODES = ("constant", "reflect", "replicate", "circular")


def pad(
    x: Data, padding: Sequence[tuple[int, int]] | Sequence[int], mode: str = "constant",
    value: Scalar = 0,
) -> Tensor:  # fmt: skip
    """Elements added at the ends of axes.

    padding: a (before, after) pair an axis, fewer pairs for the last axes. A flat sequence is read
    as PyTorch does: pairs from the last axis backwards. Negative numbers cut elements off:
    after the other end is extended by 'reflect' or 'replicate', before by 'circular' (PyTorch's
    order).
    mode: 'constant' adds elements of `value`; 'reflect' mirrors at the outermost element, which is
    not repeated (at most size - 1 elements an end); 'replicate' repeats the outermost element;
    'circular' goes on at the other end (at most size elements). PyTorch has these modes for one
    to three axes of images; here any axes of any array may be padded."""
    if mode not in _MODES:
        hint = "" if isinstance(mode, str) else f"; a number is given as value={mode!r}"
        raise ArgumentError(
            f"mode {mode!r} is not one of {', '.join(_MODES)}{hint}", operation="pad"
        )
    if mode != "constant" and value != 0:
        raise ArgumentError(f"mode {mode!r} takes no value, but value={value}", operation="pad")
    pairs = _pairs(x, padding)
    before, after = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    if mode == "constant":
        return Tensor.of(pad_spatial(x.node, before, after, value), x.device)
    cut_before = [min(size, 0) for size in before]
    cut_after = [min(size, 0) for size in after]
    result: Tensor = x
    if mode == "circular":
        result = Tensor.of(pad_spatial(x.node, cut_before, cut_after), x.device)
    for axis, (first, last) in enumerate(pairs):
        result = _extended(result, axis, max(first, 0), max(last, 0), mode)
    if mode != "circular":
        result = Tensor.of(pad_spatial(result.node, cut_before, cut_after), x.device)
    return result


def _pairs(x: Tensor, padding: Sequence[Any]) -> list[tuple[int, int]]:
    """One (before, after) pair for each axis of `x`."""
    listed: list[Any] = list(padding)
    if listed and not hasattr(listed[0], "__iter__"):
        if len(listed) % 2:
            raise ShapeError(f"{tuple(listed)} has an odd number of entries", operation="pad")
        listed = list(zip(listed[::2], listed[1::2], strict=True))[::-1]
    if len(listed) > x.ndim:
        raise ShapeError(f"{len(listed)} pairs for {x.shape}", operation="pad")
    whole = [(0, 0)] * (x.ndim - len(listed))
    pairs: list[Any] = [sizes_of("pad", pair, signed=True) for pair in [*whole, *listed]]
    for size, (before, after) in zip(x.shape, pairs, strict=True):
        if size + min(before, 0) + min(after, 0) < 0:
            raise ShapeError(f"{listed} cuts more than {x.shape} has", operation="pad")
    return pairs


def _extended(x: Tensor, axis: int, before: int, after: int, mode: str) -> Tensor:
    """`x` with `before` and `after` elements of its own at the ends of `axis`."""
    if before == after == 0:
        return x
    size = x.shape[axis]
    limit = {"reflect": size - 1, "circular": size}.get(mode)
    if size == 0 or (limit is not None and max(before, after) > limit):
        most = limit or 0
        raise ShapeError(
            f"mode {mode!r} adds at most {most} elements at an end of axis "
            f"{axis} of {x.shape}, not {before} and {after}",
            operation="pad",
        )
    if mode == "reflect":
        # Of 0 1 2 3 with two at each end: 2 1 | 0 1 2 3 | 2 1.
        first = _piece(x, axis, range(before, 0, -1))
        last = _piece(x, axis, range(size - 2, size - 2 - after, -1))
    elif mode == "circular":
        first = _piece(x, axis, range(size - before, size))
        last = _piece(x, axis, range(after))
    else:
        first = _repeated(x, axis, 0, before)
        last = _repeated(x, axis, size - 1, after)
    nodes = [Tensor.of(node, x.device) for node in (first, x.node, last)]
    return concat([one for one in nodes if one.shape[axis]], axis=axis)


def _piece(x: Tensor, axis: int, places: range) -> Node:
    """The elements at `places` along `axis`."""
    ranges = [range(size) for size in x.shape]
    ranges[axis] = places
    return build.sliced(x.node, ranges)


def _repeated(x: Tensor, axis: int, place: int, times: int) -> Node:
    """The element at `place` along `axis`, so many times."""
    edge = _piece(x, axis, range(place, place + 1))
    return build.expand(edge, resized(x.shape, axis, times))
