"""What a program changes in place takes steps for the changed elements alone. NumPy says what is
right, and the steps are those of the kernels that ran."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lamina as lm
from lamina.core import options
from lamina.fuse.narrow import _simplified
from lamina.graph import index as ix
from lamina.ir.kernel import points
from lamina.runtime.profile import runs

Array = np.ndarray[Any, Any]
ROWS, COLUMNS = 40, 24
VALUES = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)
Update = Callable[[lm.Tensor, Any, lm.Tensor], None]


@pytest.fixture(autouse=True)
def on_the_compiler() -> Iterator[None]:
    with options.using(device="cpu"):
        yield


def by_rows(z: lm.Tensor, i: Any, new: lm.Tensor) -> None:
    z[i] = new[0]


def by_slices(z: lm.Tensor, i: Any, new: lm.Tensor) -> None:
    z[i : i + 3] = new[:3]


def by_columns(z: lm.Tensor, i: Any, new: lm.Tensor) -> None:
    z[:, i] = new[0, 0]


def by_boxes(z: lm.Tensor, i: Any, new: lm.Tensor) -> None:
    z[i + 1 : i + 3, 2 * i : 2 * i + 4] = new[:2, :4]


def by_sums(z: lm.Tensor, i: Any, new: lm.Tensor) -> None:
    z[i] = new.sum(axis=0)


def added(z: lm.Tensor, i: Any, new: lm.Tensor) -> None:
    z[i] += new[1] * 2


UPDATES: dict[Update, int] = {
    by_rows: COLUMNS, by_slices: 3 * COLUMNS, by_columns: ROWS, by_boxes: 8, by_sums: COLUMNS,
    added: COLUMNS,
}  # fmt: skip


@pytest.mark.parametrize("update", UPDATES, ids=lambda update: update.__name__)
def test_parts_that_numbers_choose(update: Update) -> None:
    z, new, expected = lm.Tensor(VALUES).realize(), lm.Tensor(-VALUES[:4]), VALUES.copy()
    step = lm.jit(lambda i, new: update(z, i, new))
    for i in (3, 0, 5, 9):
        with runs() as records:
            step(i, new)
        update(expected, i, -VALUES[:4])
        np.testing.assert_array_equal(z.numpy(), expected)
    stores = [
        store for planned, *_ in records for kernel in planned.plans for store in kernel.stores
    ]
    assert max(points(store.axes) for store in stores) == UPDATES[update]


@pytest.mark.parametrize("dtype", [lm.int64, lm.bfloat16, lm.bool], ids=str)
def test_rows_that_tensors_choose(dtype: lm.DType) -> None:
    """As caches of keys and values are written; out of range nothing is."""
    values = (VALUES % 7 % 2).astype(bool)
    z, new = lm.Tensor(values).cast(dtype).realize(), lm.Tensor(~values[:1]).cast(dtype)
    expected = values.copy()

    def update(i: lm.Tensor, new: lm.Tensor) -> None:
        z.assign(lm.where((lm.arange(ROWS) == i)[:, None], new, z))

    step = lm.jit(update)
    for i in (3, 0, ROWS - 1, ROWS, -1, 1 << 40):
        place = lm.Tensor(i).realize()
        with runs() as records:
            step(place, new)
        if 0 <= i < ROWS:
            expected[i] = ~values[0]
        np.testing.assert_array_equal(z.cast(lm.bool).numpy(), expected)
        stores = [store for planned, *_ in records for kernel in planned.plans
                  for store in kernel.stores if store.axes]  # fmt: skip
    assert points(stores[0].axes) == COLUMNS


def test_a_place_of_each_row() -> None:
    """One element of each row, which data choose."""
    z, places = lm.Tensor(VALUES).realize(), np.arange(ROWS) * 7 % (COLUMNS + 2)
    expected = VALUES.copy()

    def update(at: lm.Tensor) -> None:
        z.assign(lm.where(lm.arange(COLUMNS) == at[:, None], z * 2 + 1, z))

    step = lm.jit(update)
    step(places)
    hits = np.arange(COLUMNS) == places[:, None]
    expected = np.where(hits, expected * 2 + 1, expected)
    np.testing.assert_array_equal(z.numpy(), expected)


def test_what_is_left_of_conditions_on_the_new_value() -> None:
    """Of a row and a size of its elements the size, once the row is the one that is updated."""
    z, expected = lm.Tensor(VALUES).realize(), VALUES.copy()

    def update(i: lm.Tensor) -> None:
        is_row = (lm.arange(ROWS) == i)[:, None]
        z.assign(lm.where(is_row, lm.where(is_row & (z % 2 == 0), z * 2, z + 1), z))
        z.assign(lm.where(is_row, lm.where((z % 3 == 0) & is_row, z * 3, z - 1), z))

    step = lm.jit(update)
    for i in (3, 0, ROWS - 1):
        step(lm.Tensor(i).realize())
        row = expected[i]
        row = np.where(row % 2 == 0, row * 2, row + 1)
        expected[i] = np.where(row % 3 == 0, row * 3, row - 1)
    np.testing.assert_array_equal(z.numpy(), expected)


def test_of_two_conditions_the_one_that_is_not_known_is_left() -> None:
    first, second = (ix.inside(ix.axis(number, 9), 5) for number in range(2))
    condition = ix.both(first, second)
    assert _simplified(condition, (ix.TRUE, second)) is second
    assert _simplified(condition, (first, ix.TRUE)) is first
    assert _simplified(condition, (ix.TRUE, ix.TRUE)) is ix.TRUE


CONDITIONS = st.lists(
    st.one_of(
        st.tuples(st.just("row"), st.integers(-2, 13)),
        st.tuples(st.just("column"), st.integers(-2, 12)),
        st.tuples(st.just("rows from"), st.integers(-2, 13)),
        st.tuples(st.just("rows below"), st.integers(-2, 13)),
        st.tuples(st.just("diagonal"), st.integers(-3, 3)),
        st.tuples(st.just("values"), st.integers(0, 100)),
    ),
    min_size=1, max_size=3,
)  # fmt: skip


def holds(conditions: list[tuple[str, int]], rows: Any, columns: Any, values: Any) -> Any:
    parts = [
        {
            "row": lambda n: rows + 0 * columns == n, "column": lambda n: columns + 0 * rows == n,
            "rows from": lambda n: rows + 0 * columns >= n,
            "rows below": lambda n: rows + 0 * columns < n,
            "diagonal": lambda n: columns == rows + n, "values": lambda n: values < n,
        }[kind](number)
        for kind, number in conditions
    ]  # fmt: skip
    for part in parts[1:]:
        parts[0] = parts[0] & part
    return parts[0]


@settings(max_examples=25)
@given(CONDITIONS, st.booleans(), st.booleans())
def test_conditions_of_all_kinds(conditions: list[tuple[str, int]], two: bool, reads: bool) -> None:
    values = VALUES[:12, :11].copy()
    y, z = lm.Tensor(values).realize(), lm.Tensor(-values).realize()
    rows, columns = np.arange(12)[:, None], np.arange(11)[None]
    hits = holds(conditions, rows, columns, values)

    def step(other: lm.Tensor) -> None:
        where = holds(conditions, lm.arange(12)[:, None], lm.arange(11)[None], other)
        y.assign(lm.where(where, y * 2 + 1 if reads else other + 1, y))
        if two:
            z.assign(lm.where(where, other, z))

    for _ in range(2):  # the first one may copy what others hold
        before = y.numpy()
        lm.jit(step)(lm.Tensor(values))
        new = before * 2 + 1 if reads else values + 1
        np.testing.assert_array_equal(y.numpy(), np.where(hits, new, before))
    np.testing.assert_array_equal(z.numpy(), np.where(hits & two, values, -values))


# What is written depends on whole rows, columns or everything; some on the array itself.
REDUCED: dict[str, Callable[[Any, Any], Any]] = {
    "row sums": lambda z, other: other.sum(axis=1, keepdims=True) + 0 * other,
    "column maxima": lambda z, other: other.max(axis=0, keepdims=True) + 0 * other,
    "means of rows written": lambda z, other: z.mean(axis=1, keepdims=True) + 0 * other,
    "everything": lambda z, other: z.sum() + 0 * other,
    "centred rows": lambda z, other: other - other.mean(axis=1, keepdims=True),
}


@pytest.mark.parametrize("name", REDUCED)
@settings(max_examples=6)
@given(data=st.data())
def test_reductions_take_every_step(name: str, data: st.DataObject) -> None:
    rows, columns = (data.draw(st.integers(1, 20)) for _ in range(2))
    values = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns) % 7
    other = -values[::-1].copy()
    box = tuple(slice(start := data.draw(st.integers(0, size - 1)),
                      data.draw(st.integers(start + 1, size)))
                for size in (rows, columns))  # fmt: skip
    expected = values.copy()
    expected[box] = REDUCED[name](values, other)[box]
    z = lm.Tensor(values).realize()

    def update(new: lm.Tensor) -> None:
        z[box] = REDUCED[name](z, new)[box]

    lm.jit(update)(lm.Tensor(other))
    np.testing.assert_allclose(z.numpy(), expected, rtol=1e-5, atol=1e-5)
