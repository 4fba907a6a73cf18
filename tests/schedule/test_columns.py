"""Sums down the columns of arrays that no near cache holds: panels, and what is asked for ahead."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

import lamina as lm
from lamina import backends, compiled, pipeline
from lamina.core.target import Target, cpu_target
from lamina.frontend.lowered import Lowered
from lamina.loops.moves import Accumulate
from lamina.loops.nest import Nest

pytestmark = pytest.mark.usefixtures("on_cpu")
TWO_CORES = cpu_target(vector_bytes=64, cores=2)
RANDOM = np.random.default_rng(29)

# Rows, steps and columns of products, and whether they have panels: 1027 columns have no divisor
# that would be the width of one.
PRODUCTS = [
    (1, 1000, 3000, True), (1, 512, 5504, True), (1, 264, 1027, False), (3, 1000, 3000, True),
    (4, 136, 2056, True),
]  # fmt: skip
SUMS = [((1000, 3000), 0), ((136, 2050), 0), ((3, 200, 1100), 1), ((1, 4096, 2048), (0, 1))]


def fix_target(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have kernels scheduled for `target`, in whose place any CPU runs them."""
    for module in (pipeline, backends, compiled):
        monkeypatch.setattr(module, "target_of", lambda options: target)


def has_panels(lowered: Lowered) -> bool:
    """Does memory accumulate the sums of a kernel of the program?"""
    moves = (move for plan in lowered.planned.plans.values() for move in plan.moves)
    return any(isinstance(move, Accumulate) for move in moves)


def parallel_chunks(nest: Nest) -> int:
    """The chunks that threads share."""
    return prod(axis.arg.size for axis, to in nest.binding.items() if to == "parallel")


def nest_of_product(target: Target, columns: int, monkeypatch: pytest.MonkeyPatch) -> Nest:
    """The nest of two rows of 2**16 elements times a matrix of so many columns: one kernel, where a
    single row is taken in parts."""
    fix_target(target, monkeypatch)
    specs = lm.TensorSpec((2, 1 << 16)), lm.TensorSpec((1 << 16, columns))
    lowered = lm.jit(lambda x, w: x @ w).lower(*specs, device="cpu")
    ((_, plan),) = lowered.planned.plans.items()
    assert isinstance(plan.nest, Nest)
    return plan.nest


@pytest.mark.parametrize(
    ("cores", "columns", "chunks"),
    [(1, 4096, 1), (2, 4096, 2), (2, 5504, 2), (2, 3000, 2), (4, 4096, 4), (2, 32768, 8)],
)
def test_threads_have_panels_as_wide_as_can_be(
    cores: int, columns: int, chunks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    nest = nest_of_product(cpu_target(vector_bytes=64, cores=cores), columns, monkeypatch)
    assert parallel_chunks(nest) == chunks


@pytest.mark.parametrize(("rows", "steps", "columns", "in_panels"), PRODUCTS)
def test_products_in_panels(
    rows: int, steps: int, columns: int, in_panels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fix_target(TWO_CORES, monkeypatch)
    a = RANDOM.standard_normal((rows, steps), dtype=np.float32)
    b = RANDOM.standard_normal((steps, columns), dtype=np.float32)
    product = lm.jit(lambda x, w: x @ w)
    operands = lm.asarray(a), lm.asarray(b)
    assert has_panels(product.lower(*operands)) == in_panels
    found = product(*operands).numpy()
    bound = np.abs(a).astype(np.float64) @ np.abs(b)
    assert np.all(np.abs(found - a.astype(np.float64) @ b) <= 1e-5 * bound)


@pytest.mark.parametrize(("shape", "axis"), SUMS)
def test_sums_in_panels(
    shape: tuple[int, ...], axis: int | tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    fix_target(TWO_CORES, monkeypatch)
    x = RANDOM.standard_normal(shape, dtype=np.float32)
    total = lm.jit(lambda x: x.sum(axis))
    assert has_panels(total.lower(lm.asarray(x)))
    found = total(lm.asarray(x)).numpy()
    bound = np.abs(x).sum(axis, dtype=np.float64)
    assert np.all(np.abs(found - x.sum(axis, dtype=np.float64)) <= 1e-5 * bound)
