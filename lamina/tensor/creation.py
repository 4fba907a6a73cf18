"""Making tensors (array API, "creation functions").

Every tensor made here is a leaf of its own, so that derivatives tell two equal ones apart; a
constant still takes no memory until somebody looks at it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lamina import dtypes
from lamina.dtypes import Scalar, as_dtype, default_float
from lamina.errors import ArgumentError, ShapeError
from lamina.ir import build
from lamina.ir.node import Node
from lamina.shape import sizes_of
from lamina.tensor import realize as memory
from lamina.tensor.axes import places, resized
from lamina.tensor.core import Tensor, as_tensor, check_device
from lamina.tensor.interop import from_dlpack
from lamina.tensor.movement import broadcast_arrays, reshape

__all__ = [
    "arange", "asarray", "empty", "empty_like", "eye", "full", "full_like", "linspace",
    "meshgrid", "ones", "ones_like", "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip

Sizes = int | Sequence[int]


def leaf(node: Node, device: str | None, requires_grad: bool = False) -> Tensor:
    """A tensor with the value of `node` and an identity of its own."""
    where = check_device(device)
    tensor = Tensor.of(memory.leaf(node, where), where)
    tensor.requires_grad = requires_grad
    return tensor


def asarray(
    obj: Any, /, *, dtype: Any = None, device: str | None = None, copy: bool | None = None
) -> Tensor:
    """A tensor from numbers, nested sequences, a NumPy array, a tensor, or any DLPack producer.

    The values are copied unless `obj` is a tensor already; ``copy=False`` raises ArgumentError
    when a copy is needed.
    """
    wanted = None if dtype is None else as_dtype(dtype)
    changed = not isinstance(obj, Tensor) or not (
        wanted in (None, obj.dtype) and device in (None, obj.device)
    )
    if copy is False and changed:
        raise ArgumentError(f"asarray: {type(obj).__name__} needs a copy; drop copy=False")
    if isinstance(obj, Tensor) and not changed and not copy:
        return obj
    if hasattr(obj, "__dlpack__") and not hasattr(obj, "__array__"):
        obj = from_dlpack(obj, device=device, copy=True)
    return Tensor(obj, wanted, device)


def full(
    shape: Sizes, fill_value: Scalar | Tensor, *, dtype: Any = None, device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor filled with one value, whose kind decides the dtype when none is given."""
    sizes = sizes_of("full", shape)
    if isinstance(fill_value, Tensor):
        source = Tensor(fill_value, dtype, device)
        filled = Tensor.of(build.expand(source.node, sizes), source.device)
        filled.requires_grad = requires_grad
        return filled
    wanted = as_dtype(type(fill_value) if dtype is None else dtype)
    return leaf(build.full(sizes, fill_value, wanted), device, requires_grad)


def zeros(
    shape: Sizes, *, dtype: Any = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """Zeros, of the default float dtype when none is given."""
    return full(shape, 0, dtype=dtype or default_float, device=device, requires_grad=requires_grad)


def ones(
    shape: Sizes, *, dtype: Any = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """Ones, of the default float dtype when none is given."""
    return full(shape, 1, dtype=dtype or default_float, device=device, requires_grad=requires_grad)


def empty(shape: Sizes, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """A tensor for which any content would do; it holds zeros."""
    return zeros(shape, dtype=dtype, device=device)


def full_like(
    x: Tensor, /, fill_value: Scalar, *, dtype: Any = None, device: str | None = None
) -> Tensor:
    """A tensor like x, filled with one value."""
    return full(x.shape, fill_value, dtype=dtype or x.dtype, device=device or x.device)


def zeros_like(x: Tensor, /, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """Zeros in the shape and dtype of x."""
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """Ones in the shape and dtype of x."""
    return full_like(x, 1, dtype=dtype, device=device)


def empty_like(x: Tensor, /, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """A tensor like x for which any content would do; it holds zeros."""
    return full_like(x, 0, dtype=dtype, device=device)


def arange(
    start: int | float, /, stop: int | float | None = None, step: int | float = 1, *,
    dtype: Any = None, device: str | None = None,
) -> Tensor:  # fmt: skip
    """start, start + step, ... before stop; ``arange(n)`` counts from 0.

    Floats are computed in float64, as Python would.
    """
    first, last = (0, start) if stop is None else (start, stop)
    if step == 0:
        raise ArgumentError("arange: the step is 0")
    count = max(0, math.ceil((last - first) / step))
    kind = float if isinstance(first + last + step, float) else int
    wanted = as_dtype(kind if dtype is None else dtype)
    if wanted.is_int:
        line = build.iota(count, dtypes.int64) * int(step) + int(first)
    else:
        line = build.iota(count, dtypes.float64) * float(step) + float(first)
    return leaf(build.cast(line, wanted), device)


def linspace(
    start: Scalar, stop: Scalar, /, num: int, *, dtype: Any = None, device: str | None = None,
    endpoint: bool = True,
) -> Tensor:  # fmt: skip
    """`num` evenly spaced values from start to stop; the end is exact when it is included."""
    sizes = sizes_of("linspace", num)
    span = stop - start
    default = dtypes.default_complex if isinstance(span, complex) else default_float
    wanted = default if dtype is None else as_dtype(dtype)
    wide = dtypes.complex128 if wanted.is_complex else dtypes.float64
    gap = span / max(num - 1 if endpoint else num, 1)
    line = build.cast(build.iota(num, dtypes.float64), wide) * gap + start
    if endpoint and num > 1:
        at_end = build.iota(num, dtypes.int64).eq(num - 1)
        line = build.select(at_end, build.full(sizes, stop, wide), line)
    return leaf(build.cast(line, wanted), device)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None,
    device: str | None = None,
) -> Tensor:  # fmt: skip
    """A matrix with ones on diagonal k and zeros elsewhere."""
    shape = sizes_of("eye", (n_rows, n_rows if n_cols is None else n_cols))
    on_diagonal = (places(shape, 0) + k).eq(places(shape, 1))
    return leaf(build.cast(on_diagonal, as_dtype(dtype or default_float)), device)


def _below(what: str, x: Tensor, k: int) -> Node:
    """Where the elements of the matrices are on or below diagonal k."""
    if x.ndim < 2:
        raise ShapeError(f"{what}: {x.shape} is no matrix; two axes at least are needed")
    return places(x.shape, x.ndim - 1) < places(x.shape, x.ndim - 2) + (k + 1)


def tril(x: Any, /, *, k: int = 0) -> Tensor:
    """The matrices with zeros above diagonal k."""
    x = as_tensor(x)
    return Tensor.of(build.select(_below("tril", x, k), x.node, x.node.lift(0)), x.device)


def triu(x: Any, /, *, k: int = 0) -> Tensor:
    """The matrices with zeros below diagonal k."""
    x = as_tensor(x)
    return Tensor.of(build.select(_below("triu", x, k - 1), x.node.lift(0), x.node), x.device)


def meshgrid(*arrays: Any, indexing: str = "xy") -> list[Tensor]:
    """The coordinates of a grid: one array an axis, "xy" with the first two axes swapped."""
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f"meshgrid: indexing={indexing!r}; it is 'xy' or 'ij'")
    axes = list(range(len(arrays)))
    if indexing == "xy":
        axes[:2] = axes[:2][::-1]
    ones = (1,) * len(arrays)
    lines = (resized(ones, axis, -1) for axis in axes)
    return broadcast_arrays(*map(reshape, arrays, lines))
