"""Means of gradients over processes, of all ranks in one process."""

from __future__ import annotations

import numpy as np
import pytest

from lamina import Tensor, distributed
from lamina.distributed import setup
from lamina.distributed.data_parallel import BUCKET_BYTES, buckets
from lamina.distributed.mesh import Axis
from tests.distributed.lockstep import on_ranks

ALL = Axis("all", 4, 1)


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
    long, short = BUCKET_BYTES // 4, BUCKET_BYTES // 16
    tensors = [Tensor(np.zeros(size, np.float32)) for size in (short, long, short, short, short)]
    assert list(buckets(tensors)) == [[1], [4, 3, 2, 0]]


def test_one_process_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "_joined", [setup._Process(0, 1)])
    x = Tensor(np.ones(3, np.float32))
    assert distributed.averaged([x], 2) == [x]
