"""Scatters into the buffer that they update: NumPy says what is right, and what is stored are the
updates alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor
from lamina.core import options
from lamina.ir.kernel import points
from lamina.runtime.profile import runs

ROWS, COLUMNS = 40, 24
VALUES = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)
NEW = -VALUES[:3] - 1
PLACES = np.array([7, 2, 33])
Change = Callable[[Tensor, Tensor, Tensor], None]


@pytest.fixture(autouse=True)
def on_the_compiler() -> Iterator[None]:
    with options.using(device="cpu"):
        yield


def stored(change: Change, places: Any = PLACES) -> tuple[np.ndarray, int]:
    """What a tensor of `VALUES` holds after `change`, and how many elements the kernel of the most
    of them stored."""
    z, at, new = Tensor(VALUES).realize(), Tensor(places).realize(), Tensor(NEW).realize()
    step = lm.jit(lambda at, new: change(z, at, new))
    step(at, new)
    z.assign(Tensor(VALUES))
    z.realize()
    with runs() as records:
        step(at, new)
    kernels = [plan for planned, *_ in records for plan in planned.plans]
    return z.numpy(), max(points(store.axes) for kernel in kernels for store in kernel.stores)


def copied(z: Tensor, at: Tensor, new: Tensor) -> None:
    z.assign(lm.index_copy(z, 0, at, new))


def added(z: Tensor, at: Tensor, new: Tensor) -> None:
    z.assign(lm.index_add(z, 0, at, new))


def test_updates_are_stored_alone() -> None:
    expected = VALUES.copy()
    expected[PLACES] = NEW
    result, count = stored(copied)
    np.testing.assert_array_equal(result, expected)
    assert count == NEW.size
    result, count = stored(added)
    np.testing.assert_array_equal(result, VALUES + expected * (expected != VALUES))
    assert count == NEW.size


def test_updates_out_of_range_are_dropped() -> None:
    expected = VALUES.copy()
    expected[5] = NEW[1]
    result, count = stored(copied, np.array([ROWS, 5, 1 << 40]))
    np.testing.assert_array_equal(result, expected)
    assert count == NEW.size


def test_updates_that_are_made_of_the_buffer_are_made_of_its_old_content() -> None:
    def change(z: Tensor, at: Tensor, new: Tensor) -> None:
        z.assign(lm.index_copy(z, 0, at, z[5:8] + new))

    expected = VALUES.copy()
    expected[[6, 7, 5]] = VALUES[5:8] + NEW
    result, _ = stored(change, np.array([6, 7, 5]))
    np.testing.assert_array_equal(result, expected)


def test_a_base_that_is_computed_is_stored_first() -> None:
    def change(z: Tensor, at: Tensor, new: Tensor) -> None:
        z.assign(lm.index_copy(2 * z[::-1], 0, at, new))

    expected = 2 * VALUES[::-1]
    expected[PLACES] = NEW
    result, _ = stored(change)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("change", [copied, added])
def test_others_read_the_content_before_or_after(change: Change) -> None:
    """Sums of the old and of the new content, and rows of the new one by places."""
    z, at, new = Tensor(VALUES).realize(), Tensor(PLACES).realize(), Tensor(NEW).realize()

    @lm.jit
    def step(at: Tensor, new: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        before = z.sum(axis=1)
        change(z, at, new)
        return before, z.sum(axis=0), lm.take(z, at, axis=0)

    expected = VALUES.copy()
    for _ in range(2):
        old = expected.copy()
        expected[PLACES] = NEW if change is copied else expected[PLACES] + NEW
        before, after, rows = step(at, new)
        np.testing.assert_array_equal(before.numpy(), old.sum(1))
        np.testing.assert_array_equal(after.numpy(), expected.sum(0))
        np.testing.assert_array_equal(rows.numpy(), expected[PLACES])


def test_a_second_scatter_goes_on_from_the_first() -> None:
    def change(z: Tensor, at: Tensor, new: Tensor) -> None:
        first = lm.index_copy(z, 0, at, new)
        z.assign(lm.index_add(first, 0, at + 1, new))

    expected = VALUES.copy()
    expected[PLACES] = NEW
    expected[PLACES + 1] += NEW
    result, _ = stored(change)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("shape", [(0, 3, 2), (3, 0, 2)])
def test_a_base_without_elements_is_computed_and_not_read(shape: tuple[int, ...]) -> None:
    """No kernel reads it, so that there is none to begin in its memory."""

    def added(x: Tensor, at: Tensor) -> Tensor:
        return lm.index_add(lm.cumulative_sum(x, axis=2), 0, at, lm.ones((0, *shape[1:])))

    assert lm.jit(added)(lm.zeros(shape), lm.zeros(0, dtype=lm.int64)).shape == shape
