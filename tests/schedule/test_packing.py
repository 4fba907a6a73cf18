"""Which products pack an operand whose steps are neighbours in memory, and which are dot products
along these."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor
from lamina.loops.moves import Stage

COLUMNS = 96
Epilogue = Callable[[Tensor], Tensor]


def product(x: Tensor, w: Tensor, epilogue: Epilogue | None) -> Tensor:
    y = x @ w.T
    return y if epilogue is None else epilogue(y)


def is_packed(rows: int, steps: int, epilogue: Epilogue | None) -> bool:
    """Whether a panel is filled for x @ w.T."""
    x, w = lm.TensorSpec((rows, steps)), lm.TensorSpec((COLUMNS, steps))
    lowered = lm.jit(lambda x, w: product(x, w, epilogue)).lower(x, w, device="cpu")
    ((_, plan),) = lowered.planned.plans.items()
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
    assert is_packed(rows, steps, epilogue) == packed


@pytest.mark.parametrize("rows", [15, 22, 40])
@pytest.mark.parametrize("steps", [37, 128, 131])
def test_products_with_what_follows(rows: int, steps: int) -> None:
    random = np.random.default_rng(rows * steps)
    x, w = (random.standard_normal((size, steps), dtype=np.float32) for size in (rows, COLUMNS))
    ours = lm.jit(lambda x, w: product(x, w, lm.silu))(Tensor(x), Tensor(w)).numpy()
    y = x.astype(np.float64) @ w.T
    np.testing.assert_allclose(ours, y / (1 + np.exp(-y)), rtol=1e-4, atol=1e-4)
