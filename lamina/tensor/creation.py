"""Making tensors (array API, "creation functions").

Every tensor made here is a leaf of its own, so that derivatives tell two equal ones apart; a
constant still takes no memory until somebody looks at it.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

from lamina import dtypes
from lamina.dtypes import DType, Scalar, as_dtype
from lamina.errors import ArgumentError, ShapeError
from lamina.ir import build
from lamina.ir.node import Node
from lamina.shape import sizes_of
from lamina.tensor import realize as memory
from lamina.tensor.core import Tensor, as_tensor, check_device, default_device, to_node
from lamina.tensor.interop import from_dlpack

__all__ = [
    "arange", "asarray", "empty", "empty_like", "eye", "full", "full_like", "linspace",
    "meshgrid", "ones", "ones_like", "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip


def leaf(node: Node, device: str | None, requires_grad: bool = False) -> Tensor:
    """A tensor with the value of `node` and an identity of its own."""
    where = check_device(default_device() if device is None else device)
    tensor = Tensor.of(memory.leaf(node, where), where)
    tensor.requires_grad = requires_grad
    return tensor


def asarray(
    obj: Any, /, *, dtype: Any = None, device: str | None = None, copy: bool | None = None
) -> Tensor:
    """A tensor from numbers, nested sequences, a NumPy array, a tensor, or any DLPack producer.

    The values are copied unless `obj` is a tensor already; ``copy=False`` raises ValueError when
    a copy is needed.
    """
    wanted = None if dtype is None else as_dtype(dtype)
    if isinstance(obj, Tensor):
        changed = wanted not in (None, obj.dtype) or device not in (None, obj.device)
        if copy is False and changed:
            raise ArgumentError("asarray: another dtype or device needs a copy; drop copy=False")
        if not changed and not copy:
            return obj
        return Tensor.of(*to_node(obj, wanted, device))
    if copy is False:
        raise ArgumentError(f"asarray: {type(obj).__name__} needs a copy; drop copy=False")
    if hasattr(obj, "__dlpack__") and not hasattr(obj, "__array__"):
        return asarray(from_dlpack(obj), dtype=dtype, device=device, copy=True)
    return Tensor.of(*to_node(obj, wanted, device))


def full(
    shape: int | Sequence[int],
    fill_value: Scalar | Tensor,
    *,
    dtype: Any = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor filled with one value, whose kind decides the dtype when none is given."""
    sizes = sizes_of("full", shape)
    if isinstance(fill_value, Tensor):
        source = fill_value if device is None else fill_value.to(device)
        wanted = source.dtype if dtype is None else as_dtype(dtype)
        filled = Tensor.of(build.expand(build.cast(source.node, wanted), sizes), source.device)
        filled.requires_grad = requires_grad
        return filled
    wanted = as_dtype(type(fill_value)) if dtype is None else as_dtype(dtype)
    return leaf(build.full(sizes, fill_value, wanted), device, requires_grad)


def zeros(
    shape: int | Sequence[int],
    *,
    dtype: Any = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Zeros, of the default float dtype when none is given."""
    wanted = dtypes.default_float if dtype is None else dtype
    return full(shape, 0, dtype=wanted, device=device, requires_grad=requires_grad)


def ones(
    shape: int | Sequence[int],
    *,
    dtype: Any = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Ones, of the default float dtype when none is given."""
    wanted = dtypes.default_float if dtype is None else dtype
    return full(shape, 1, dtype=wanted, device=device, requires_grad=requires_grad)


def empty(shape: int | Sequence[int], *, dtype: Any = None, device: str | None = None) -> Tensor:
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


def _ramp(count: int, start: Scalar, step: Scalar, dtype: DType) -> Node:
    """start + i * step; floats are computed in float64, as Python would."""
    if dtype.is_int:
        index = build.iota(count, dtypes.int64)
        wrapped = index * int(step) + int(start)  # type: ignore[arg-type]
        return build.cast(wrapped, dtype)
    wide = build.iota(count, dtypes.float64)
    return build.cast(wide * float(step) + float(start), dtype)  # type: ignore[arg-type]


def arange(
    start: int | float,
    /,
    stop: int | float | None = None,
    step: int | float = 1,
    *,
    dtype: Any = None,
    device: str | None = None,
) -> Tensor:
    """start, start + step, ... before stop; ``arange(n)`` counts from 0."""
    first, last = (0, start) if stop is None else (start, stop)
    if step == 0:
        raise ArgumentError("arange: the step is 0")
    count = max(0, math.ceil((last - first) / step))
    floats = builtins.any(isinstance(one, float) for one in (first, last, step))
    default = dtypes.default_float if floats else dtypes.default_int
    wanted = default if dtype is None else as_dtype(dtype)
    return leaf(_ramp(count, first, step, wanted), device)


def linspace(
    start: Scalar,
    stop: Scalar,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: str | None = None,
    endpoint: bool = True,
) -> Tensor:
    """`num` evenly spaced values from start to stop; the end is exact when it is included."""
    is_complex = isinstance(start, complex) or isinstance(stop, complex)
    default = dtypes.default_complex if is_complex else dtypes.default_float
    wanted = default if dtype is None else as_dtype(dtype)
    wide = dtypes.complex128 if wanted.is_complex else dtypes.float64
    sizes_of("linspace", num)
    steps = num - 1 if endpoint else num
    index = build.cast(build.iota(num, dtypes.float64), wide)
    gap = (stop - start) / max(steps, 1)
    line = index * gap + start
    if endpoint and num > 1:
        last = build.full((num,), stop, wide)
        line = build.select(build.iota(num, dtypes.int64).eq(num - 1), last, line)
    return leaf(build.cast(line, wanted), device)


def _grid(rows: int, columns: int) -> tuple[Node, Node]:
    """Row and column numbers of a matrix."""
    shape = (rows, columns)
    row = build.expand(build.reshape(build.iota(rows, dtypes.int64), (rows, 1)), shape)
    return row, build.expand(build.iota(columns, dtypes.int64), shape)


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: Any = None,
    device: str | None = None,
) -> Tensor:
    """A matrix with ones on diagonal k and zeros elsewhere."""
    row, column = _grid(*sizes_of("eye", (n_rows, n_rows if n_cols is None else n_cols)))
    wanted = dtypes.default_float if dtype is None else as_dtype(dtype)
    return leaf(build.cast((row + k).eq(column), wanted), device)


def _triangle(what: str, x: Any, k: int, lower: bool) -> Tensor:
    x = as_tensor(x)
    if x.ndim < 2:
        raise ShapeError(f"{what}: {x.shape} is no matrix; two axes at least are needed")
    row, column = _grid(*x.shape[-2:])
    keep = column < row + (k + 1) if lower else column > row + (k - 1)
    zero = build.full(x.shape, 0, x.dtype)
    return Tensor.of(build.select(build.expand(keep, x.shape), x.node, zero), x.device)


def tril(x: Any, /, *, k: int = 0) -> Tensor:
    """The matrices with zeros above diagonal k."""
    return _triangle("tril", x, k, lower=True)


def triu(x: Any, /, *, k: int = 0) -> Tensor:
    """The matrices with zeros below diagonal k."""
    return _triangle("triu", x, k, lower=False)


def meshgrid(*arrays: Any, indexing: str = "xy") -> list[Tensor]:
    """The coordinates of a grid: one array an axis, "xy" with the first two axes swapped."""
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f"meshgrid: indexing={indexing!r}; it is 'xy' or 'ij'")
    axes = [as_tensor(one) for one in arrays]
    order = list(range(len(axes)))
    if indexing == "xy" and len(axes) > 1:
        order[:2] = [1, 0]
    sizes: list[int] = [0] * len(axes)
    for axis, place in zip(axes, order, strict=True):
        sizes[place] = axis.shape[0]
    result = []
    for axis, place in zip(axes, order, strict=True):
        line = [1] * len(axes)
        line[place] = axis.shape[0]
        grid = build.expand(build.reshape(axis.node, tuple(line)), tuple(sizes))
        result.append(Tensor.of(grid, axis.device))
    return result
