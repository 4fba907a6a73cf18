"""What a call overwrites while others need it: they keep what was there."""

from __future__ import annotations

import lamina as lm
from lamina.runtime.profile import passes


def test_one_program_copies_all_memory_that_others_need() -> None:
    weights = [lm.full((size,), float(size)).realize() for size in (2, 3, 4)]
    others = [weight.detach() for weight in weights]

    @lm.jit
    def step() -> None:
        for weight in weights:
            weight.assign(weight + 1.0)

    with passes() as record:
        step()
    assert sum(one.pass_.writes == "source" for one in record) == 2  # the step and the copies
    for weight, other in zip(weights, others, strict=True):
        assert other.tolist() == [float(other.size)] * other.size
        assert weight.tolist() == [other.size + 1.0] * other.size
