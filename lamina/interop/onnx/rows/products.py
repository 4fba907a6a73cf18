"""Rows of products of matrices."""

from __future__ import annotations

from typing import Any

import lamina as lm
from lamina.frontend.tensor import Tensor
from lamina.interop.onnx.rows import Context, row
from lamina.interop.onnx.values import tensor


@row("MatMul")
def matmul(context: Context, a: Any, b: Any) -> Any:
    return lm.matmul(tensor(a), tensor(b))


@row("Gemm")
def gemm(
    context: Context, a: Any, b: Any, c: Any = None, *, alpha: float = 1.0, beta: float = 1.0,
    transA: int = 0, transB: int = 0, broadcast: int = 0,  # noqa: N803 (names of attributes)
) -> Any:  # fmt: skip
    left, right = tensor(a), tensor(b)
    left = left.T if transA else left
    right = right.T if transB else right
    product = lm.matmul(left, right)
    if alpha != 1:
        product = (product * alpha).cast(product.dtype)
    if c is None:
        return product
    added = tensor(c)
    return product + (added if beta == 1 else (added * beta).cast(product.dtype))


@row("Einsum")
def einsum(context: Context, *inputs: Any, equation: str) -> Any:
    return lm.einsum(equation.replace(" ", ""), *map(tensor, inputs))


@row("Det")
def determinant(context: Context, x: Any) -> Any:
    """Gaussian elimination of all matrices at once; the pivot of a column is the largest element
    on or below the diagonal (Golub and Van Loan 2013, section 3.4)."""
    rows = tensor(x)
    size = rows.shape[-1]
    context.spend(size)
    result = lm.ones(rows.shape[:-2], dtype=rows.dtype)
    for _ in range(size):
        pivot, sign, rows = _eliminated(rows)
        result = result * pivot * sign
    return result


def _eliminated(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of matrices (..., n, n): the pivot of the first column, -1 where its row had to move, and
    the matrices (..., n - 1, n - 1) that are left."""
    size = rows.shape[-1]
    best = lm.argmax(lm.abs(rows[..., 0]), axis=-1, keepdims=True)  # (..., 1)
    places = lm.broadcast_to(best[..., None], (*best.shape, size))
    pivot_row = lm.take_along_axis(rows, places, axis=-2)  # (..., 1, n)
    at_best = lm.arange(size) == best  # (..., n): the row that swaps with the first
    swapped = lm.where(at_best[..., None], rows[..., :1, :], rows)[..., 1:, :]
    pivot = pivot_row[..., 0, 0]
    divisor = lm.where(pivot == 0, 1, pivot)[..., None, None]
    below = swapped - swapped[..., :1] * (pivot_row / divisor)
    sign = lm.where(best[..., 0] == 0, 1, -1).cast(rows.dtype)
    return pivot, sign, below[..., 1:]
