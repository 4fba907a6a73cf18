"""Drawn products have a schedule on every CPU, whatever its vectors, caches and cores."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lamina as lm
from lamina import backends, pipeline
from lamina.core.target import Target, cpu_target
from lamina.loops.nest import Nest
from lamina.loops.verify import verify_nest

TARGETS = st.builds(
    cpu_target,
    vector_bytes=st.sampled_from([16, 32, 64]),
    cores=st.sampled_from([1, 2, 8, 64]),
    l2_bytes=st.sampled_from([1 << 18, 1 << 19, 1 << 20, 1 << 21]),
)
# Multiples have whole blocks, whose loops go beside those of uneven splits.
SIDES = st.one_of(st.integers(1, 4096), st.integers(1, 32).map(lambda count: 128 * count))


@settings(max_examples=200, deadline=None)
@given(target=TARGETS, rows=SIDES, steps=SIDES, columns=SIDES, orders=st.integers(0, 3))
def test_products_have_a_schedule(
    target: Target, rows: int, steps: int, columns: int, orders: int
) -> None:
    """`orders`: which of the factors are transposed, the first by 1 and the second by 2."""
    is_first_transposed = orders % 2 == 1
    is_second_transposed = orders >= 2
    first = (steps, rows) if is_first_transposed else (rows, steps)
    second = (columns, steps) if is_second_transposed else (steps, columns)

    def product(a: lm.Tensor, b: lm.Tensor) -> lm.Tensor:
        return (a.T if is_first_transposed else a) @ (b.T if is_second_transposed else b)

    with pytest.MonkeyPatch.context() as patch:
        for module in (pipeline, backends):
            patch.setattr(module, "target_of", lambda options: target)
        lowered = lm.jit(product).lower(lm.TensorSpec(first), lm.TensorSpec(second), device="cpu")
    for plan in lowered.planned.plans.values():
        assert isinstance(plan.nest, Nest)
        verify_nest(plan.nest)
