"""What is known of masks of places, compared with the interpreter."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lamina.graph.places import is_true
from lamina.ir.build import broadcasted_iota, expand, permute, reshape, sliced
from lamina.ir.interpreter import evaluate
from lamina.ir.node import Node


def _below(shape: tuple[int, ...], axis: int, limit: int, negated: bool) -> Node:
    places = broadcasted_iota(shape, axis)
    mask = places < places.lift(limit)
    return ~mask if negated else mask


@given(
    st.integers(0, 1), st.integers(0, 1), st.integers(-1, 6), st.integers(-1, 6), st.booleans(),
    st.booleans(), st.integers(0, 3), st.integers(1, 5), st.integers(1, 2), st.booleans(),
)  # fmt: skip
def test_a_mask_is_true_where_the_interpreter_says_so(
    first: int, second: int, low: int, high: int, negates: bool, joins: bool, start: int,
    length: int, step: int, turns: bool,
) -> None:  # fmt: skip
    shape = (4, 5)
    a, b = _below(shape, first, low, negates), _below(shape, second, high, not negates)
    mask = a & b if joins else a | b
    stop = min(start + length, 4)
    mask = sliced(mask, [range(start, max(stop, start + 1), step), range(1, 4)])
    if turns:
        mask = permute(mask, (1, 0))
    mask = reshape(expand(reshape(mask, (1, *mask.shape)), (2, *mask.shape)), (2, *mask.shape))
    (values,) = evaluate([mask], {})
    assert not is_true(mask) or values.all()
    if joins or low == high or first != second:
        assert is_true(mask) == values.all() or first == second


def test_a_mask_of_data_is_not_known() -> None:
    assert not is_true(_below((3,), 0, 2, False))
    assert is_true(_below((3,), 0, 3, False))
    assert is_true(sliced(_below((3,), 0, 1, True), [range(1, 3)]))
    assert not np.any(evaluate([_below((3,), 0, 0, False)], {})[0])


def test_a_mask_of_many_steps_is_not_known() -> None:
    """Masks of an unrolled program are deeper than recursion may be, and shared."""
    mask = _below((3,), 0, 3, False)
    for step in range(2000):
        mask = mask & (mask | _below((3,), 0, step, False))
    assert not is_true(mask)


def test_nothing_is_known_of_no_places() -> None:
    assert not is_true(_below((0,), 0, 3, False))
