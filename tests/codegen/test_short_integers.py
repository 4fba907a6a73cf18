"""Floats of short integers on GPUs, made from their bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lamina as lm
from lamina import Tensor
from lamina.core.dtypes import float32, uint8, uint16, uint32
from lamina.graph import index as ix
from lamina.ir.build import cast, const
from lamina.ir.interpreter import EVALUATE, evaluate
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.targets.short_integers import from_bits

NUMBER = ix.axis(0, 1 << 16)


def numbers() -> np.ndarray:
    return np.arange(1 << 16, dtype=np.int64)


@given(
    dtype=st.sampled_from([uint8, uint16, uint32]), mask=st.integers(0, (1 << 23) - 1),
    added=st.integers(-(1 << 22), 1 << 22), number_is_first=st.booleans(),
)  # fmt: skip
def test_sums_keep_their_bits(
    dtype: lm.DType, mask: int, added: int, *, number_is_first: bool
) -> None:
    integer = Node(Op.AND, (cast(NUMBER, dtype), const(mask % (1 << dtype.bits), dtype)))
    operands = cast(integer, float32), const(float(added), float32)
    total = Node(Op.ADD, operands if number_is_first else operands[::-1])
    other = from_bits(total)
    assert other is not None
    (wanted,), (got,) = (evaluate([one], {NUMBER: numbers()}, EVALUATE) for one in (total, other))
    np.testing.assert_array_equal(got, wanted)


PLACE = ix.axis(1, 20)  # of the lowest bit of a number in its word


@given(
    dtype=st.sampled_from([uint8, uint16]), mask=st.integers(0, (1 << 16) - 1),
    added=st.integers(-(1 << 22), 1 << 22), step=st.integers(0, 2), is_masked=st.booleans(),
)  # fmt: skip
def test_bits_in_the_middle_of_a_word(
    dtype: lm.DType, mask: int, added: int, step: int, *, is_masked: bool
) -> None:
    shift = cast(ix.scale(PLACE, step), dtype)
    integer = Node(Op.SHR, (cast(NUMBER, dtype), shift))
    if is_masked:
        integer = Node(Op.AND, (integer, const(mask % (1 << dtype.bits), dtype)))
    total = Node(Op.ADD, (cast(integer, float32), const(float(added), float32)))
    other = from_bits(total, {PLACE})
    assert other is not None
    shifts = [node for node in toposort([other]) if node.op is Op.SHR]
    assert shifts == []
    places = np.arange(20, dtype=np.int64)[:, None]
    values = {NUMBER: numbers()[None], PLACE: places}
    (wanted,), (got,) = (evaluate([one], values, EVALUATE) for one in (total, other))
    np.testing.assert_array_equal(got, wanted)


def test_a_shift_that_is_no_number_in_the_text_stays() -> None:
    shifted = Node(Op.SHR, (cast(NUMBER, uint8), cast(PLACE, uint8)))
    total = Node(Op.ADD, (cast(shifted, float32), const(-8.0, float32)))
    other = from_bits(total)
    assert other is not None
    assert shifted in toposort([other])


@pytest.mark.parametrize(
    ("dtype", "added"),
    [(uint32, 1.0), (uint8, 0.5), (uint8, float("inf")), (uint8, float("nan")), (uint8, 2.0**23)],
)
def test_other_sums_are_left(dtype: lm.DType, added: float) -> None:
    number = cast(cast(NUMBER, dtype), float32)
    assert from_bits(Node(Op.ADD, (number, const(added, float32)))) is None


@pytest.mark.parametrize(("device", "is_gpu"), [("cuda:0", True), ("cpu", False)])
def test_gpus_convert_nothing(device: str, *, is_gpu: bool) -> None:
    def function(x: Tensor) -> Tensor:
        return (x & 15).cast(lm.float32) - 8.0

    lowered = lm.jit(function).lower(lm.TensorSpec((1000,), lm.uint8), device=device)
    (kernel,) = lowered.kernels
    assert ("-8388616" in kernel.source) is is_gpu
