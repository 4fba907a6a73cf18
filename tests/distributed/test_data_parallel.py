"""Means of gradients over processes, of all ranks in one process."""

from __future__ import annotations

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, distributed, nn
from lamina.distributed import setup
from lamina.distributed.data_parallel import SPAN_BYTES, buckets
from lamina.distributed.mesh import Axis
from lamina.errors import ArgumentError
from lamina.ir.kernel import Collective
from lamina.ir.node import toposort
from lamina.ir.ops import Group, Op
from tests.distributed.lockstep import on_ranks

ALL = Axis("all", 4, 1)
PAIR = Axis("all", 2, 1)


def zeros(size: int) -> Tensor:
    return Tensor(np.zeros(size, np.float32))


def test_equal_shares_are_a_mean() -> None:
    operands = [np.full((3, 2), float(rank), np.float32) for rank in range(4)]
    means = on_ranks(lambda x: distributed.averaged([x], over=ALL)[0], operands)
    for mean in means:
        np.testing.assert_array_equal(mean, np.full((3, 2), 1.5))


@pytest.mark.parametrize("rows", [None, 1000])
def test_large_numbers_of_float16_do_not_overflow(rows: int | None) -> None:
    """The largest is 65504: neither a sum over ranks nor one weighted by rows is one."""
    operands = [np.full((5,), 40000.0, np.float16)] * 4
    means = on_ranks(lambda x: distributed.averaged([x], rows, ALL)[0], operands)
    for mean in means:
        np.testing.assert_allclose(mean.astype(np.float32), 40000.0, rtol=1e-3)


def test_long_gradients_go_alone_and_short_ones_together() -> None:
    long, short = 64, 16
    tensors = [zeros(size) for size in (short, long, short, short, short)]
    assert list(buckets(tensors, 4 * long)) == [[1], [4, 3, 2, 0]]


def test_a_short_gradient_is_sent_soon_after_long_ones() -> None:
    long = SPAN_BYTES // 8
    tensors = [zeros(3), zeros(long), zeros(5), zeros(long), zeros(long), zeros(4)]
    assert list(buckets(tensors, 4 * long)) == [[4], [3], [5, 2], [1], [0]]


@pytest.mark.parametrize("ranks", [2, 4])
def test_numbers_of_16_bits_are_sent_as_these_where_that_moves_less(ranks: int) -> None:
    """All of two ranks are half as long as a sum in float32; of four ranks they are as long."""
    operands = list(np.random.default_rng(5).normal(size=(ranks, 6, 2)).astype(np.float32))

    def mean(x: Tensor) -> Tensor:
        (found,) = distributed.averaged([x.cast(lm.bfloat16).cast(lm.float32)], None, axis)
        return found

    axis = Axis("all", ranks, 1)
    short = [Tensor(one).cast(lm.bfloat16).cast(lm.float32).numpy() for one in operands]
    for found in on_ranks(mean, operands):
        np.testing.assert_allclose(found, sum(short) / ranks, rtol=1e-6)
    graph = toposort([mean(Tensor(operands[0])).node])
    exchanged = [node for node in graph if node.op in Group.COLLECTIVE]
    said = [(node.op, node.src[0].dtype) for node in exchanged]
    gathers = [(Op.ALL_GATHER, lm.bfloat16)]
    assert said == (gathers if ranks == 2 else [(Op.ALL_REDUCE, lm.float32)])


def test_a_float16_of_8_bits_is_a_mean() -> None:
    """Two ranks would move fewer bytes if they sent the 8 bits, but not the part of a mean."""

    def mean(x: Tensor) -> Tensor:
        (found,) = distributed.averaged([x.cast(lm.float8_e4m3fn).cast(lm.float16)], over=PAIR)
        return found.cast(lm.float32)

    for found in on_ranks(mean, [np.full(3, 8.0, np.float32), np.full(3, 16.0, np.float32)]):
        np.testing.assert_array_equal(found, np.full(3, 12.0))


def test_bfloat16_in_a_bucket_of_gathered_numbers_is_rounded_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """1 + 1/256 + 1/256 is a bfloat16; 1 + 1/256 is none, and would be rounded to 1."""
    monkeypatch.setattr(setup, "bucket_bytes", lambda: 1000)
    three = Axis("all", 3, 1)

    def mean(x: Tensor) -> Tensor:
        half = x.cast(lm.bfloat16)
        _, found = distributed.averaged([half.cast(lm.float32), half], over=three)
        return found.cast(lm.float32)

    operands = [np.full(2, value, np.float32) for value in (1.0, 1 / 256, 1 / 256)]
    expected = Tensor(np.float32(1 + 1 / 128)).cast(lm.bfloat16) / 3
    for found in on_ranks(mean, operands):
        np.testing.assert_array_equal(found, np.full(2, expected.cast(lm.float32).item()))


def test_gradients_of_a_bucket_keep_their_shapes_and_dtypes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(setup, "bucket_bytes", lambda: 1000)

    def means(x: Tensor) -> Tensor:
        half = x.cast(lm.bfloat16)
        gradients = [half.cast(lm.float32), half, (half * 3.0).T.cast(lm.float32)]
        found = distributed.averaged(gradients, over=PAIR)
        assert [one.dtype for one in found] == [one.dtype for one in gradients]
        assert [one.shape for one in found] == [one.shape for one in gradients]
        return lm.stack([found[0], found[1].cast(lm.float32), found[2].T])

    operands = [np.arange(6, dtype=np.float32).reshape(2, 3) + rank for rank in range(2)]
    expected = np.arange(6).reshape(2, 3) + 0.5
    for found in on_ranks(means, operands):
        np.testing.assert_array_equal(found, np.stack([expected, expected, 3 * expected]))


def test_parts_are_not_replaced_by_those_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "_joined", [setup._Process(0, 2)])
    monkeypatch.setattr(setup, "bucket_bytes", lambda: 1000)
    layers = [nn.Linear(3, 4), distributed.FullySharded(nn.Linear(3, 4), PAIR)]
    with pytest.raises(ArgumentError, match=r"1.shards.weight, \(6,\), is a part of \(12,\)"):
        distributed.copy_from_first(layers)


def test_one_process_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "_joined", [setup._Process(0, 1)])
    x = Tensor(np.ones(3, np.float32))
    assert distributed.averaged([x], 2) == [x]


def test_a_table_that_is_the_last_weight_too_is_summed_first() -> None:
    """Of a step for two GPUs: its 5,000 x 64 numbers are sent before those of the layer between,
    and the rows that 8 tokens read after these; no array as large as it is sent otherwise. Tokens,
    which are inputs, are gathered before all."""
    rows, width, tokens = 5000, 64, 8
    table = lm.zeros((rows, width), requires_grad=True)
    weight = lm.zeros((width, width), requires_grad=True)

    def step(ids: Tensor) -> list[Tensor]:
        hidden = lm.tanh(lm.linear(lm.embedding(ids, table), weight))
        loss = lm.cross_entropy(lm.linear(hidden, table), ids)
        return distributed.averaged(lm.gradient(loss, [table, weight]), None, PAIR)

    ids = lm.TensorSpec((tokens,), lm.int32)
    program = lm.jit(step).lower(ids, device="cuda", arch="sm_90a").planned.program
    sent = [launch.kernel.shape for launch in program.launches
            if isinstance(launch.kernel, Collective)]  # fmt: skip
    assert sent == [(tokens, 1), (rows, width), (width, width), (tokens, width)]
