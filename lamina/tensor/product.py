"""Products of arrays: a product of expanded views, summed over the axis they share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lamina import dtypes
from lamina.dtypes import DType, bool_
from lamina.errors import ShapeError
from lamina.ir import build
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.shape import broadcast_shapes, normalize_axis, prod
from lamina.tensor.core import Tensor, as_tensor, common_device, common_dtype
from lamina.tensor.elementwise import conj
from lamina.tensor.windows import accumulator

__all__ = ["matmul", "tensordot", "vecdot"]


def _pair(what: str, x1: Any, x2: Any) -> tuple[Node, Node, DType, str]:
    """Both operands in the dtype to add up in, the dtype of the result, and the device."""
    like = next((one for one in (x1, x2) if isinstance(one, Tensor)), None)
    a, b = as_tensor(x1, like), as_tensor(x2, like)
    dtype = common_dtype(what, a, b)
    if dtype is bool_:
        dtype = dtypes.default_int
    wide = accumulator(dtype)
    return build.cast(a.node, wide), build.cast(b.node, wide), dtype, common_device(what, a, b)


def matmul(x1: Any, x2: Any, /) -> Tensor:
    """The matrix product over the last two axes; leading axes broadcast, vectors lose theirs.

    The 16-bit floats are added up in float32.
    """
    a, b, dtype, device = _pair("matmul", x1, x2)
    what = f"matmul: {a.shape} @ {b.shape}"
    if not a.shape or not b.shape:
        raise ShapeError(f"{what}: both operands need an axis at least")
    inner, other = a.shape[-1], b.shape[-2:][0]
    if inner != other:
        raise ShapeError(f"{what}: inner sizes {inner} and {other} differ")
    batch = broadcast_shapes(f"{what}: leading axes", a.shape[:-2], b.shape[:-2])
    rows, columns = a.shape[-2:-1], b.shape[-2:][1:]
    if columns:
        last = len(b.shape) - 1
        b = build.permute(b, (*range(last - 1), last, last - 1))
        a = build.reshape(a, (*a.shape[:-1], 1, inner))
    if rows:
        b = build.reshape(b, (*b.shape[: len(b.shape) - 1 - len(columns)], 1, *columns, inner))
    full = (*batch, *rows, *columns, inner)
    product = build.expand(a, full) * build.expand(b, full)
    return Tensor.of(build.cast(build.reduce(ADD, (len(full) - 1,), product), dtype), device)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    """The inner products of vectors along `axis`; the first operand is conjugated."""
    a, b, dtype, device = _pair("vecdot", x1, x2)
    if not -min(len(a.shape), len(b.shape)) <= axis < 0:
        normalize_axis("vecdot", axis, min(len(a.shape), len(b.shape)))
    sizes = a.shape[axis], b.shape[axis]
    if sizes[0] != sizes[1]:
        raise ShapeError(f"vecdot: {a.shape} and {b.shape}: sizes {sizes[0]} and {sizes[1]} "
                         f"differ along axis {axis}")  # fmt: skip
    full = broadcast_shapes("vecdot", a.shape, b.shape)
    product = build.expand(conj(Tensor.of(a, device)).node, full) * build.expand(b, full)
    along = normalize_axis("vecdot", axis, len(full))
    return Tensor.of(build.cast(build.reduce(ADD, (along,), product), dtype), device)


def tensordot(
    x1: Any, x2: Any, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
) -> Tensor:
    """Summed over pairs of axes: the last and first `axes`, or those listed for each operand."""
    a, b = as_tensor(x1), as_tensor(x2)
    if isinstance(axes, int):
        axes = (range(-axes, 0), range(axes))
    left = [normalize_axis("tensordot", axis, a.ndim) for axis in axes[0]]
    right = [normalize_axis("tensordot", axis, b.ndim) for axis in axes[1]]
    shared = [a.shape[axis] for axis in left]
    if shared != [b.shape[axis] for axis in right]:
        raise ShapeError(f"tensordot: {a.shape} and {b.shape} do not fit along axes {axes}")
    free_a = [axis for axis in range(a.ndim) if axis not in left]
    free_b = [axis for axis in range(b.ndim) if axis not in right]
    rows, columns = [a.shape[axis] for axis in free_a], [b.shape[axis] for axis in free_b]
    first = build.reshape(build.permute(a.node, free_a + left), (prod(rows), prod(shared)))
    second = build.reshape(build.permute(b.node, right + free_b), (prod(shared), prod(columns)))
    product = matmul(Tensor.of(first, a.device), Tensor.of(second, b.device))
    return Tensor.of(build.reshape(product.node, (*rows, *columns)), product.device)
