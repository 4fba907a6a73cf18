"""What is the same in all steps of inner loops, taken out of sums over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor
from lamina.core.options import using
from lamina.ir.kernel import Kernel, bound_axes
from lamina.ir.ops import Op
from lamina.loops.moves import Factor, Schedule, apply
from lamina.loops.text import to_text

ROWS, BLOCKS, SIZE = 24, 7, 32
Function = Callable[..., Any]

FUNCTIONS: dict[str, Function] = {
    "scale": lambda x, n, d, m: (x * (d * n)).sum(axis=(1, 2)),
    "scale and minimum": lambda x, n, d, m: (x * (d * n + m)).sum(axis=(1, 2)),
    "minimum alone": lambda x, n, d, m: (x * n + m).sum(axis=(1, 2)),
    "a number": lambda x, n, d, m: (x * (d * (n - 8.0))).sum(axis=(1, 2)),
    "two sums": lambda x, n, d, m: ((x + d) * (n + m)).sum(axis=(1, 2)),
    "nothing inside": lambda x, n, d, m: (d * m + 0.0 * (x * n)).sum(axis=(1, 2)),
}


def arrays() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    shapes = (BLOCKS, SIZE), (ROWS, BLOCKS, SIZE), (ROWS, BLOCKS, 1), (ROWS, BLOCKS, 1)
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]


def factors(kernel: Kernel) -> Schedule:
    """The move that takes factors out of the inner loop of the kernel's sum."""
    (total,) = kernel.of(Op.LOOP_REDUCE)
    return (Factor(kernel.values.index(total), bound_axes(total)[-1].arg.number),)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_sums_stay_what_they_are(name: str) -> None:
    function, inputs = FUNCTIONS[name], arrays()
    tensors = [Tensor(array).realize() for array in inputs]
    ((kernel, _),) = lm.jit(function).lower(*tensors).planned.plans.items()
    assert isinstance(kernel, Kernel)
    with using(schedule=to_text(factors(kernel))):
        got = lm.jit(function)(*tensors).numpy()
    wanted = function(*(array.astype(np.float64) for array in inputs))
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.usefixtures("on_cpu")
def test_scales_are_multiplied_once_a_block() -> None:
    tensors = [Tensor(array).realize() for array in arrays()]
    function = FUNCTIONS["scale and minimum"]
    ((kernel, _),) = lm.jit(function).lower(*tensors).planned.plans.items()
    assert isinstance(kernel, Kernel)
    sums = apply(kernel, factors(kernel)).kernel.of(Op.LOOP_REDUCE)
    assert sorted(len(bound_axes(each)) for each in sums) == [1, 1, 1]  # of x * n, of x, of blocks
