"""Where values are computed: in the outermost loop that binds the axes they depend on."""

from __future__ import annotations

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, TensorSpec
from lamina.core import options


@pytest.mark.parametrize("binding", ["vector", "unroll"])
def test_what_registers_hold_is_computed_outside_of_loops_it_does_not_depend_on(
    binding: str,
) -> None:
    """The sum of eight columns is the same in each row: it stands before the loop over rows."""
    moves = ["[map0_4x32]", "split(a1, 8) -> a2, a3", "reorder(a2, a0, a3)", f"bind(a3, {binding})"]

    @lm.jit
    def scaled(x: Tensor, y: Tensor) -> Tensor:
        return (x + 1.0) * y

    x, y = np.arange(32, dtype=np.float32), np.arange(128, dtype=np.float32).reshape(4, 32)
    with options.using(device="cpu", schedule="\n".join(moves)):
        text = scaled.lower(TensorSpec((32,)), TensorSpec((4, 32))).kernels[0].source
        result = scaled(Tensor(x), Tensor(y)).numpy()
    before, _, inside = text.partition("for (i64 row")
    assert before.count(" + 1.0f") == (1 if binding == "vector" else 8)
    assert " + 1.0f" not in inside
    np.testing.assert_array_equal(result, (x + 1) * y)
