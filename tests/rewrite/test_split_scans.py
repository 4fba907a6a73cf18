"""Which scans are taken in parts, and that values stay."""

from __future__ import annotations

import numpy as np
import pytest

from lamina.core.dtypes import float32
from lamina.graph.rewrite import rewrite
from lamina.graph.split_scans import scan_in_parts
from lamina.ir import monoids
from lamina.ir.interpreter import evaluate
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op, Reduce
from tests.generators import leaf


def scan_of(shape: tuple[int, ...], axis: int) -> Node:
    return Node(Op.SCAN, (leaf(0, shape, float32),), Reduce(monoids.ADD, (axis,)))


@pytest.mark.parametrize(
    ("shape", "axis", "cores", "is_split"),
    [
        ((16384, 128), 0, None, True),  # 8 blocks of a GPU have 16 columns each
        ((16384, 1024), 0, None, False),
        ((128, 16384), 1, None, False),  # 128 blocks have a row each
        ((4, 16384), 1, None, True),
        ((3, 16384, 16), 1, None, True),
        ((4096, 16), 0, None, False),  # short
        ((16384, 128), 0, 256, False),  # a CPU needs as many rows as it reads twice
    ],
)
def test_long_scans_of_few_blocks_are_in_parts(
    shape: tuple[int, ...], axis: int, cores: int | None, is_split: bool
) -> None:
    after = rewrite([scan_of(shape, axis)], (scan_in_parts(cores),))
    assert (sum(one.op is Op.SCAN for one in toposort(after)) > 1) is is_split


def test_parts_of_columns_have_the_values_of_the_whole() -> None:
    scan = scan_of((5003, 20), 0)
    after = rewrite([scan], (scan_in_parts(),))
    assert after != [scan]
    x = np.random.default_rng(0).integers(-9, 9, (5003, 20)).astype(np.float32)
    (got,) = evaluate(after, {scan.src[0]: x})
    np.testing.assert_array_equal(got, x.cumsum(0))
