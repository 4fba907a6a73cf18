"""Rows that are reduced side by side: how many, and how far apart in memory."""

from __future__ import annotations

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor
from lamina.core.dtypes import int8
from lamina.graph import index as ix
from lamina.ir.kernel import free_axes
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.loops.nest import Nest

PAGE = 4096


def nest_of(rows: int, nbytes: int) -> Nest:
    """The nest of sums along `rows` rows of so many bytes."""
    function = lm.jit(lambda x: x.cast(lm.float32).sum(axis=1))
    lowered = function.lower(lm.TensorSpec((rows, nbytes), int8), device="cpu")
    ((_, plan),) = lowered.planned.plans.items()
    assert isinstance(plan.nest, Nest)
    return plan.nest


def distance(nest: Nest) -> int:
    """Bytes between the rows that are reduced side by side."""
    (axis,) = [one for one, to in nest.binding.items() if to == "unroll" and not one.arg.reduce]
    loads: list[Node] = [one for one in nest.kernel.of(Op.LOAD) if axis in free_axes(one)]
    return min(abs(ix.terms_of(load.src[0])[0][axis]) for load in loads)


@pytest.mark.parametrize("nbytes", [64, 300, 576, 2048, 4095])
def test_short_rows_lie_a_page_apart(nbytes: int) -> None:
    assert distance(nest_of(4096, nbytes)) >= PAGE


@pytest.mark.parametrize(("rows", "nbytes"), [(4096, 4096), (4096, 5000), (4094, 576)])
def test_others_are_neighbours(rows: int, nbytes: int) -> None:
    assert distance(nest_of(rows, nbytes)) == nbytes


@pytest.mark.parametrize("rows", [64, 192, 200, 4096, 4097])
@pytest.mark.parametrize("columns", [32, 96, 576])
def test_products_of_signed_bytes_with_a_scale_for_each_block(rows: int, columns: int) -> None:
    random = np.random.default_rng(rows + columns)
    numbers = random.integers(-128, 128, (rows, columns), np.int8)
    scales = random.standard_normal((rows, columns // 32)).astype(np.float32)
    x = random.standard_normal(columns).astype(np.float32)

    @lm.jit
    def product(data: Tensor, scales: Tensor, x: Tensor) -> Tensor:
        weights = data.bitcast(int8).cast(lm.float32).reshape((rows, -1, 32))
        return (weights * scales.unsqueeze(-1) * x.reshape((-1, 32))).sum(axis=(1, 2))

    ours = product(Tensor(numbers.view(np.uint8)), Tensor(scales), Tensor(x)).numpy()
    weights = numbers.reshape(rows, -1, 32) * scales[..., None].astype(np.float64)
    terms = weights.reshape(rows, -1) * x
    error = np.abs(ours - terms.sum(axis=1)).max()
    assert error <= 1e-6 * np.abs(terms).sum(axis=1).max()
