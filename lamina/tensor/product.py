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
from lamina.tensor import complex_math
from lamina.tensor.core import Tensor, as_tensor, common_device, common_dtype

__all__ = ["matmul", "tensordot", "vecdot"]


def _pair(what: str, x1: Any, x2: Any) -> tuple[Node, Node, DType, str]:
    """Both operands in the dtype to add up in, the dtype of the result, and the device."""
    like = x1 if isinstance(x1, Tensor) else x2 if isinstance(x2, Tensor) else None
    a, b = as_tensor(x1, like), as_tensor(x2, like)
    device = common_device(what, a, b)
    dtype = common_dtype(what, a, b)
    if dtype is bool_:
        dtype = dtypes.default_int
    wide = dtypes.float32 if dtype.is_float and dtype.bits < 32 else dtype
    return build.cast(a.node, wide), build.cast(b.node, wide), dtype, device


def matmul(x1: Any, x2: Any, /) -> Tensor:
    """The matrix product over the last two axes; leading axes broadcast, vectors lose theirs.

    The 16-bit floats are added up in float32.
    """
    a, b, dtype, device = _pair("matmul", x1, x2)
    if not a.shape or not b.shape:
        raise ShapeError(f"matmul: {a.shape} @ {b.shape}: both operands need an axis at least")
    left_vector, right_vector = len(a.shape) == 1, len(b.shape) == 1
    inner, other = a.shape[-1], b.shape[0 if right_vector else -2]
    if inner != other:
        raise ShapeError(
            f"matmul: {a.shape} @ {b.shape}: inner sizes {inner} and {other} differ"
        )
    leading = f"matmul: {a.shape} @ {b.shape}: leading axes"
    batch = broadcast_shapes(leading, a.shape[:-2], b.shape[:-2])
    rows = () if left_vector else (a.shape[-2],)
    columns = () if right_vector else (b.shape[-1],)
    full = (*batch, *rows, *columns, inner)
    if not right_vector:
        b = build.permute(b, (*range(len(b.shape) - 2), len(b.shape) - 1, len(b.shape) - 2))
        if rows:
            a = build.insert_axes(a, (len(a.shape) - 1,))
    if rows and not right_vector:
        b = build.insert_axes(b, (len(b.shape) - 2,))
    if left_vector:
        a = build.reshape(a, (*(1 for _ in columns), inner))
    elif right_vector:
        b = build.reshape(b, (1, inner))
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
    if a.dtype.is_complex:
        a = complex_math.conj(a)
    product = build.expand(a, full) * build.expand(b, full)
    along = normalize_axis("vecdot", axis, len(full))
    return Tensor.of(build.cast(build.reduce(ADD, (along,), product), dtype), device)


def tensordot(
    x1: Any, x2: Any, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
) -> Tensor:
    """Summed over pairs of axes: the last and first `axes`, or those listed for each operand."""
    a, b = as_tensor(x1), as_tensor(x2)
    if isinstance(axes, int):
        left: list[int] = list(range(a.ndim - axes, a.ndim))
        right: list[int] = list(range(axes))
    else:
        left = [normalize_axis("tensordot", axis, a.ndim) for axis in axes[0]]
        right = [normalize_axis("tensordot", axis, b.ndim) for axis in axes[1]]
    shared = [a.shape[axis] for axis in left] if min(left, default=0) >= 0 else None
    if shared is None or len(right) > b.ndim or shared != [b.shape[axis] for axis in right]:
        raise ShapeError(f"tensordot: {a.shape} and {b.shape} do not fit along axes {axes}")
    free_a = [axis for axis in range(a.ndim) if axis not in left]
    free_b = [axis for axis in range(b.ndim) if axis not in right]
    shape = (*(a.shape[axis] for axis in free_a), *(b.shape[axis] for axis in free_b))
    matrix_a = build.reshape(
        build.permute(a.node, free_a + left), (prod(a.shape[i] for i in free_a), prod(shared))
    )
    matrix_b = build.reshape(
        build.permute(b.node, right + free_b), (prod(shared), prod(b.shape[i] for i in free_b))
    )
    product = matmul(Tensor.of(matrix_a, a.device), Tensor.of(matrix_b, b.device))
    return Tensor.of(build.reshape(product.node, shape), product.device)
