"""Reading and replacing by index, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import lamina as lm
from lamina.errors import AxisError, DTypeError, ShapeError

shapes = hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=4)


def to_lamina(key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(to_lamina(one) for one in key)
    return lm.asarray(key) if isinstance(key, np.ndarray) else key


@st.composite
def keys(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """Ints, slices, None, Ellipsis, integer arrays and masks, mixed."""
    entries: list[Any] = []
    common = draw(hnp.array_shapes(min_dims=0, max_dims=2, max_side=3))
    for size in shape[: draw(st.integers(0, len(shape)))]:
        kind = draw(st.sampled_from(["int", "slice", "array", "mask"]))
        if kind == "int":
            entries.append(draw(st.integers(-size, size - 1)))
        elif kind == "slice":
            entries.append(draw(st.slices(size)))
        elif kind == "array":
            elements = st.integers(-size, size - 1)
            entries.append(draw(hnp.arrays(np.int64, common, elements=elements)))
        else:
            chosen = draw(st.integers(0, size - 1))
            entries.append(np.arange(size) == chosen)
    if draw(st.booleans()):
        entries.insert(draw(st.integers(0, len(entries))), None)
    if len(entries) < len(shape) and draw(st.booleans()):
        # An ellipsis anywhere but the end moves what follows it to later axes.
        entries.append(Ellipsis)
    return tuple(entries)


def numbered(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


@settings(max_examples=150)
@given(st.data(), shapes)
def test_reading(data: st.DataObject, shape: tuple[int, ...]) -> None:
    x = numbered(shape)
    key = data.draw(keys(shape))
    got = lm.asarray(x)[to_lamina(key)]
    want = x[key]
    assert got.shape == want.shape
    assert np.array_equal(got.numpy(), want)


@settings(max_examples=150)
@given(st.data(), shapes)
def test_replacing(data: st.DataObject, shape: tuple[int, ...]) -> None:
    x = numbered(shape)
    t = lm.asarray(x)
    other = t * 1
    key = data.draw(keys(shape))
    value = -1 - numbered(x[key].shape)
    if data.draw(st.booleans()):
        value = np.float32(-5)
    want = x.copy()
    want[key] = value
    t[to_lamina(key)] = lm.asarray(value)
    assert np.array_equal(t.numpy(), want)
    assert np.array_equal(other.numpy(), x)


def test_masks() -> None:
    x = numbered((3, 4))
    t = lm.asarray(x)
    assert np.array_equal(t[t > 4].numpy(), x[x > 4])
    assert t[True].shape == (1, 3, 4)
    assert t[False].shape == (0, 3, 4)
    assert t[lm.asarray(True)].shape == (1, 3, 4)
    t[t > 4] = 0
    assert t.numpy().max() == 4
    t[lm.asarray([True, False, True])] = lm.asarray([1.0, 2.0, 3.0, 4.0])
    assert t[2].tolist() == [1, 2, 3, 4]
    scalar = lm.asarray(3.0)
    scalar[()] = 4
    scalar[...] = scalar + 1
    assert scalar.item() == 5


def test_a_mask_with_one_value_is_not_computed() -> None:
    t = lm.asarray([1.0, -2.0, 3.0])
    mask = t < 0
    t[mask] = 0
    assert not mask.is_realized()
    assert t.tolist() == [1, 0, 3]


def test_indices_may_be_lazy_lists_or_scalars() -> None:
    t = lm.asarray(numbered((3, 4)))
    row = lm.asarray([1, 2]).sum() - 1
    assert t[row].tolist() == [8, 9, 10, 11]
    assert not row.is_realized()
    assert t[[0, -1], [1, 1]].tolist() == [1, 9]
    assert t[np.int64(1), 2].item() == 6
    assert [one.tolist() for one in t[:2, :1]] == [[0], [4]]


@pytest.mark.parametrize("key", [
    (slice(None), [0, 1, 0], ..., [2, 0, 1]), (slice(None), 1, ..., [0, 2]),
    (slice(None), [1, 0], ..., slice(None)),
])  # fmt: skip
def test_an_ellipsis_for_no_axis_parts_arrays_too(key: tuple[Any, ...]) -> None:
    x = numbered((2, 2, 3))
    assert np.array_equal(lm.asarray(x)[key].numpy(), x[key])
    t, value = lm.asarray(x), -numbered(x[key].shape)
    t[key] = lm.asarray(value)
    x[key] = value
    assert np.array_equal(t.numpy(), x)


@pytest.mark.parametrize("key", [([0, 1], [1, 3]), ([0, 1], [1, -4]), ([0, 2], [1, 1]), [5, -3]])
def test_tensors_out_of_range(key: Any) -> None:
    """What is out of range reads as 0, and is not written, in whichever of the axes it is."""
    t = lm.asarray(numbered((2, 3)) + 1)
    key = tuple(map(lm.asarray, key)) if isinstance(key, tuple) else lm.asarray(key)
    inside = t[0, 1].item() if isinstance(key, tuple) else 0
    assert t[key].sum().item() == inside
    t[key] = 100
    assert t.sum().item() == 21 + (100 - inside if inside else 0)


def test_errors() -> None:
    t = lm.ones((2, 3))
    with pytest.raises(IndexError, match="index 2 is out of range for axis 0 of size 2"):
        t[2]
    with pytest.raises(AxisError, match="too many"):
        t[0, 0, 0]
    with pytest.raises(DTypeError, match="float32"):
        t[lm.ones(2)]
    with pytest.raises(AxisError, match="mask"):
        t[lm.asarray([True, False, True])]
    with pytest.raises(ShapeError, match="setitem"):
        t[0] = lm.ones(4)


def test_gather_and_scatter_are_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    generator = np.random.default_rng(0)
    x = generator.normal(size=(4, 5)).astype(np.float32)
    index = generator.integers(0, 4, (3, 2))
    source = generator.normal(size=(3, 2)).astype(np.float32)
    t, tt = lm.asarray(x), torch.tensor(x)
    places = torch.tensor(index)
    assert np.array_equal(t.gather(0, lm.asarray(index)).numpy(), tt.gather(0, places).numpy())
    got = t.scatter(0, lm.asarray(index), lm.asarray(source), reduce="add").numpy()
    want = tt.scatter_add(0, places, torch.tensor(source)).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-6)
    got = t.scatter(0, lm.asarray(index), lm.asarray(2.0), reduce="add").numpy()  # one for all
    np.testing.assert_array_equal(got, t.scatter(0, lm.asarray(index), 2.0, reduce="add").numpy())
    got = t.scatter(1, lm.asarray(index), lm.asarray(source), reduce="max").numpy()
    want = tt.scatter_reduce(1, places, torch.tensor(source), "amax").numpy()
    np.testing.assert_allclose(got, want)


def test_take() -> None:
    x = numbered((3, 4))
    t = lm.asarray(x)
    assert np.array_equal(lm.take(t, lm.asarray([2, -1]), axis=1).numpy(), x[:, [2, -1]])
    index = np.argsort(-x, axis=1)
    got = lm.take_along_axis(t, lm.asarray(index), axis=1)
    assert np.array_equal(got.numpy(), np.take_along_axis(x, index, 1))
    rows, columns = lm.nonzero(t > 9)
    assert (rows.tolist(), columns.tolist()) == ([2, 2], [2, 3])


def test_embedding_rows_get_their_derivatives() -> None:
    table = lm.asarray(numbered((4, 2)))
    index = lm.asarray([1, 1, 3])
    grad = lm.grad(lambda w: (w[index] * w[index]).sum())(table)
    assert grad.tolist() == [[0, 0], [8, 12], [0, 0], [12, 14]]
