"""Which products pack an operand whose steps are neighbours in memory, and which are dot products
along these."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor
from lamina.core.dtypes import DType, float32, int8, int16, int32
from lamina.loops.moves import Plan, Stage
from lamina.loops.nest import Nest

COLUMNS = 96
Epilogue = Callable[[Tensor], Tensor]


def product(x: Tensor, w: Tensor, epilogue: Epilogue | None) -> Tensor:
    y = x @ w.T
    return y if epilogue is None else epilogue(y)


def plan_of(rows: int, steps: int, epilogue: Epilogue | None, dtype: DType = float32) -> Plan:
    """The plan of x @ w.T and what follows."""
    x, w = (lm.TensorSpec((size, steps), dtype) for size in (rows, COLUMNS))
    lowered = lm.jit(lambda x, w: product(x, w, epilogue)).lower(x, w, device="cpu")
    ((_, plan),) = lowered.planned.plans.items()
    return plan


def is_packed(plan: Plan) -> bool:
    """Whether a panel is filled."""
    return any(isinstance(move, Stage) for move in plan.moves)


@pytest.mark.parametrize(
    ("rows", "steps", "epilogue", "packed"),
    [
        (22, 128, None, False),  # whole vectors, and nothing follows the sums
        (22, 131, None, True),  # three steps are left over for each sum
        (22, 128, lm.silu, True),  # of single elements after dot products
        (4, 4096, lm.silu, False),  # four rows use each of 4096 packed elements of a column
        (40, 128, None, True),
    ],
)
def test_what_dot_products_cost_beside_their_vectors(
    rows: int, steps: int, epilogue: Epilogue | None, *, packed: bool
) -> None:
    assert is_packed(plan_of(rows, steps, epilogue)) == packed


@pytest.mark.parametrize("rows", [7, 22, 80])
def test_sums_without_a_register_tile_are_dot_products(rows: int) -> None:
    plan = plan_of(rows, 131, None, int16)
    assert isinstance(plan.nest, Nest)
    assert not is_packed(plan)
    (vector,) = [axis for axis, bound in plan.nest.binding.items() if bound == "vector"]
    assert vector.arg.reduce


@pytest.mark.parametrize("rows", [15, 22, 40])
@pytest.mark.parametrize("steps", [37, 128, 131])
def test_products_with_what_follows(rows: int, steps: int) -> None:
    random = np.random.default_rng(rows * steps)
    x, w = (random.standard_normal((size, steps), dtype=np.float32) for size in (rows, COLUMNS))
    ours = lm.jit(lambda x, w: product(x, w, lm.silu))(Tensor(x), Tensor(w)).numpy()
    y = x.astype(np.float64) @ w.T
    np.testing.assert_allclose(ours, y / (1 + np.exp(-y)), rtol=1e-4, atol=1e-4)


def product_of_bytes(x: Tensor, w: Tensor) -> Tensor:
    return x.cast(int32) @ w.cast(int32)


def plan_of_bytes(rows: int, steps: int, columns: int) -> Plan:
    """The plan of the product of two matrices of bytes."""
    x, w = lm.TensorSpec((rows, steps), int8), lm.TensorSpec((steps, columns), int8)
    lowered = lm.jit(product_of_bytes).lower(x, w, device="cpu")
    *_, plan = lowered.planned.plans.values()  # sums of rows may come first
    return plan


def bound_to(plan: Plan, how: str) -> list[int]:
    """The sizes of the axes that are bound so, outermost first."""
    nest = plan.nest
    assert isinstance(nest, Nest)
    return [axis.arg.size for axis in nest.order if nest.binding.get(axis) == how]


@pytest.mark.parametrize("columns", [4, 8, 12, 40])
def test_few_columns_of_bytes_are_words(columns: int) -> None:
    plan = plan_of_bytes(128, 512, columns)
    assert bound_to(plan, "dot") == [4]
    assert is_packed(plan)


@pytest.mark.parametrize(("columns", "shared"), [(24, [2, 1]), (96, [2, 3]), (64, [2])])
def test_an_odd_number_of_panels_is_shared_by_halves(columns: int, shared: list[int]) -> None:
    assert bound_to(plan_of_bytes(1321, 824, columns), "parallel") == shared


@pytest.mark.parametrize("rows", [20, 70, 200])
@pytest.mark.parametrize("columns", [4, 12, 24])
def test_products_of_bytes_are_exact(rows: int, columns: int) -> None:
    random = np.random.default_rng(rows * columns)
    x, w = (random.integers(-128, 128, shape, np.int8) for shape in ((rows, 62), (62, columns)))
    ours = lm.jit(product_of_bytes)(Tensor(x), Tensor(w)).numpy()
    np.testing.assert_array_equal(ours, x.astype(np.int32) @ w.astype(np.int32))
