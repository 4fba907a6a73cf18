"""Movement functions against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import lamina as lm
from lamina.errors import AxisError, ShapeError
from lamina.ir.node import toposort
from lamina.ir.ops import Op

shapes = hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4)


def numbered(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(np.prod(shape, dtype=int), dtype=np.int64).reshape(shape)


@given(shapes, st.data())
def test_one_array(shape: tuple[int, ...], data: st.DataObject) -> None:
    x = numbered(shape)
    t = lm.asarray(x)
    rank = len(shape)
    axis = data.draw(st.integers(-rank, rank - 1))
    order = data.draw(st.permutations(range(rank)))
    by = data.draw(st.integers(-5, 5))
    pairs = data.draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)),
                               min_size=rank, max_size=rank))  # fmt: skip
    times = data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=4))
    cases = [
        (lm.permute_dims(t, order), np.transpose(x, order)),
        (lm.flip(t, axis=axis), np.flip(x, axis)),
        (lm.flip(t), np.flip(x)),
        (lm.roll(t, by, axis=axis), np.roll(x, by, axis)),
        (lm.roll(t, by), np.roll(x, by)),
        (lm.moveaxis(t, axis, 0), np.moveaxis(x, axis, 0)),
        (lm.expand_dims(t, axis=axis), np.expand_dims(x, axis)),
        (lm.pad(t, pairs, value=7), np.pad(x, pairs, constant_values=7)),
        (lm.tile(t, times), np.tile(x, times)),
        (lm.repeat(t, 2, axis=axis), np.repeat(x, 2, axis)),
        (lm.repeat(t, 3), np.repeat(x, 3)),
        (lm.concat([t, t + 1, t], axis=axis), np.concatenate([x, x + 1, x], axis)),
        (lm.stack([t, t + 1], axis=axis), np.stack([x, x + 1], axis)),
        (lm.flatten(t), x.reshape(-1)),
        (lm.broadcast_to(t, (2, *shape)), np.broadcast_to(x, (2, *shape))),
        (lm.diff(t, axis=axis), np.diff(x, axis=axis)),
    ]
    counts = data.draw(st.lists(st.integers(0, 3), min_size=shape[axis], max_size=shape[axis]))
    counts_array = np.array(counts, dtype=np.int64)
    cases.append((lm.repeat(t, lm.asarray(counts_array), axis=axis),
                  np.repeat(x, counts_array, axis)))  # fmt: skip
    for got, want in cases:
        assert np.array_equal(got.numpy(), want)


@given(hnp.array_shapes(min_dims=2, max_dims=3, min_side=0, max_side=4), st.integers(-5, 5))
def test_matrices(shape: tuple[int, ...], offset: int) -> None:
    x = numbered(shape)
    t = lm.asarray(x)
    assert np.array_equal(t.mT.numpy(), x.mT)
    assert np.array_equal(lm.tril(t, k=offset).numpy(), np.tril(x, offset))
    assert np.array_equal(lm.triu(t, k=offset).numpy(), np.triu(x, offset))
    diagonal = np.diagonal(x, offset, -2, -1)
    assert np.array_equal(lm.diagonal(t, offset=offset).numpy(), diagonal)
    vector = lm.asarray(np.arange(3))
    assert np.array_equal(lm.diag(vector, offset=offset).numpy(), np.diag(np.arange(3), offset))
    n, m = shape[-2:]
    assert np.array_equal(lm.eye(n, m, k=offset).numpy(), np.eye(n, m, offset, dtype=np.float32))


def test_reshape() -> None:
    t = lm.arange(12)
    assert t.reshape(3, -1).shape == (3, 4)
    assert t.reshape((2, 2, 3)).flatten(1).shape == (2, 6)
    assert lm.reshape(t, shape=(4, 3)).tolist()[3] == [9, 10, 11]
    with pytest.raises(ShapeError, match=r"reshape: \(12,\) has 12 elements"):
        t.reshape(5, -1)
    with pytest.raises(ShapeError, match="reshape"):
        t.reshape(-1, -1)


def test_pieces() -> None:
    t = lm.arange(10).reshape(5, 2)
    assert [one.shape for one in t.split(2)] == [(2, 2), (2, 2), (1, 2)]
    assert [one.shape for one in t.split([1, 4])] == [(1, 2), (4, 2)]
    assert [one.shape for one in t.chunk(3)] == [(2, 2), (2, 2), (1, 2)]
    assert [one.tolist() for one in lm.unstack(t, axis=1)] == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]
    empty = lm.zeros((0, 2))  # of which there is one piece, so that they can be joined
    assert [[one.shape for one in found] for found in (empty.split(2), empty.chunk(3))] == [
        [(0, 2)], [(0, 2)]
    ]  # fmt: skip
    assert lm.unstack(empty) == ()
    assert t.pad((1, 0)).tolist()[0] == [0, 0, 1]
    assert t.pad([(-1, -3), (0, 0)]).tolist() == [[2, 3]]
    with pytest.raises(ShapeError, match="split"):
        t.split([1, 1])


def test_sizes_that_make_no_sense() -> None:
    t = lm.ones((2, 3))
    for refused in (
        lambda: t.split(0), lambda: t.chunk(0), lambda: t.repeat(-1, axis=0),
        lambda: t.tile((-1,)), lambda: t.split((2, -1, 2), 1), lambda: t[:0].reshape(-1, 0),
    ):  # fmt: skip
        with pytest.raises(ShapeError):
            refused()


def test_rank_errors() -> None:
    t = lm.ones((2, 3))
    with pytest.raises(AxisError):
        t.flip(axis=2)
    with pytest.raises(ShapeError, match="squeeze"):
        t.squeeze(0)
    with pytest.raises(ShapeError, match="concat"):
        lm.concat([t, lm.ones((3, 3))], axis=1)
    with pytest.raises(AxisError, match="permute"):
        t.permute(0, 0)
    with pytest.raises(ShapeError, match="no matrix"):
        _ = lm.ones((2, 2, 2)).T


def test_meshgrid_and_ramps() -> None:
    x, y = np.arange(3), np.arange(2)
    for indexing in ("xy", "ij"):
        for got, want in zip(lm.meshgrid(lm.asarray(x), lm.asarray(y), indexing=indexing),
                             np.meshgrid(x, y, indexing=indexing), strict=True):  # fmt: skip
            assert np.array_equal(got.numpy(), want)
    assert lm.arange(5, 0, -2).tolist() == [5, 3, 1]
    assert lm.arange(3.0).dtype is lm.float32
    assert np.array_equal(lm.linspace(0, 1, 7, dtype=lm.float64).numpy(), np.linspace(0, 1, 7))
    assert lm.linspace(0, 1, 4, endpoint=False).tolist() == [0, 0.25, 0.5, 0.75]


@pytest.mark.parametrize("count", [2, 8, 9, 32, 40, 70])
def test_each_joined_part_has_its_piece_of_the_derivative(count: int) -> None:
    parts = [lm.asarray(np.full(3, number, np.float32)) for number in range(count)]
    weights = np.arange(3 * count, dtype=np.float32)
    joined = lm.concat(parts)
    np.testing.assert_array_equal(joined.numpy(), np.repeat(np.arange(count), 3))
    found = lm.gradient((joined * lm.asarray(weights)).sum(), parts)
    for number, one in enumerate(found):
        np.testing.assert_array_equal(one.numpy(), weights[3 * number : 3 * number + 3])
        chosen = any(node.op is Op.WHERE for node in toposort([one.node]))
        assert chosen == (count <= 8)


def test_the_derivative_of_tanh_knows_no_cases() -> None:
    x = lm.asarray(np.linspace(-9, 9, 37, dtype=np.float32))
    (slope,) = lm.gradient(lm.tanh(x).sum(), [x])
    assert all(node.op is not Op.WHERE for node in toposort([slope.node]))
    np.testing.assert_allclose(slope.numpy(), 1 / np.cosh(np.linspace(-9, 9, 37)) ** 2, 1e-5, 3e-7)


def test_axes_and_offsets_may_be_positional() -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).normal(size=(3, 3))
    t, tt = lm.asarray(x), torch.tensor(x)
    padded = torch.nn.functional.pad(tt[None], (1, 2), "reflect")[0]
    for ours, theirs in [
        (lm.concat([t, t], 1), torch.cat([tt, tt], 1)),
        (lm.stack([t, t], 1), torch.stack([tt, tt], 1)),
        (t.sort(0, True), tt.sort(0, True).values),
        (t.argsort(0, True), tt.argsort(0, True)),
        (t.sum(1, True), tt.sum(1, True)),
        (t.max(1, True), tt.amax(1, True)),
        (t.diag(1), tt.diag(1)),
        (t.diagonal(-1), tt.diagonal(-1)),
        (lm.tril(t, 1), tt.tril(1)),
        (t.flip(0), tt.flip(0)),
        (lm.pad(t, (1, 2), "reflect"), padded),
    ]:
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
