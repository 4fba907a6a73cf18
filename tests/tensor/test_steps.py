"""Single operations on operands in memory, which run in fewer steps than larger graphs."""

from __future__ import annotations

import numpy as np
import pytest

import lamina as lm
from lamina.frontend import realize as memory

VALUES = np.arange(-12, 12, dtype=np.float32).reshape(4, 6)


@pytest.fixture(autouse=True)
def nothing_ran_before() -> None:
    memory.SESSION.forget()


@pytest.mark.parametrize("calls", [1, 3])
def test_equal_operands_and_different_ones(calls: int) -> None:
    for scale in range(1, 1 + calls):
        x, y = lm.asarray(VALUES * scale), lm.asarray(VALUES[::-1] + scale)
        np.testing.assert_array_equal((x - y).numpy(), VALUES * scale - (VALUES[::-1] + scale))
        np.testing.assert_array_equal((x - x).numpy(), np.zeros_like(VALUES))
        np.testing.assert_array_equal((y - x).numpy(), VALUES[::-1] + scale - VALUES * scale)


def test_numbers_that_change() -> None:
    x = lm.asarray(VALUES)
    for number in (2.0, 3.0, 5.0, 7.0, 3.0):
        np.testing.assert_array_equal((x * number).numpy(), VALUES * np.float32(number))


def test_operands_of_one_memory() -> None:
    x = lm.asarray(VALUES)
    again, other = x.detach(), lm.asarray(VALUES + 1)
    np.testing.assert_array_equal((again + x).numpy(), VALUES + VALUES)
    np.testing.assert_array_equal((x + other).numpy(), VALUES + VALUES + 1)
    np.testing.assert_array_equal((again + x).numpy(), VALUES + VALUES)


def test_parts_of_one_memory() -> None:
    x = lm.asarray(VALUES)
    for row in range(3):
        both = x[row] + x[row + 1]
        np.testing.assert_array_equal(both.numpy(), VALUES[row] + VALUES[row + 1])


def test_an_operand_that_is_assigned_and_one_that_is_computed() -> None:
    x = lm.asarray(VALUES)
    first = x + x
    np.testing.assert_array_equal(first.numpy(), 2 * VALUES)
    x[1] = 5.0
    changed = VALUES.copy()
    changed[1] = 5
    np.testing.assert_array_equal((x + x).numpy(), 2 * changed)
    np.testing.assert_array_equal(first.numpy(), 2 * VALUES)
    np.testing.assert_array_equal(((x + 1) + x).numpy(), changed + 1 + changed)


def test_derivatives_of_results_that_ran_alone() -> None:
    x = lm.asarray(VALUES)
    for _ in range(2):
        y = x * x
        y.realize()
        (dx,) = lm.gradient(y.sum(), [x])
        np.testing.assert_array_equal(dx.numpy(), 2 * VALUES)
