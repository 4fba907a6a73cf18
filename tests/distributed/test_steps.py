"""Collectives as steps of a compiled program: their order, their memory, their text."""

from __future__ import annotations

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, distributed
from lamina.core.options import Options
from lamina.distributed.mesh import Axis
from lamina.errors import DeviceError
from lamina.fuse.program import Program
from lamina.ir.kernel import Collective
from lamina.ir.node import const
from lamina.ir.text import kernel_text
from lamina.pipeline import compile_source
from lamina.runtime.source import Source
from tests.distributed.lockstep import hole, opened

PAIR = Axis("pair", 2, 1)


def program_of(*results: Tensor) -> tuple[Program, Source]:
    planned = compile_source([opened(one) for one in results], Options())
    assert planned.source is not None
    return planned.program, planned.source


def argument(number: int, *shape: int) -> Tensor:
    return Tensor.of(hole(number, np.zeros(shape, np.float32)), "cpu")


def test_an_operand_is_stored_before_and_a_result_is_read_after() -> None:
    x = argument(0, 64, 32)
    program, source = program_of(distributed.all_reduce(x * 2.0, over=PAIR) + 1.0)
    kinds = [type(launch.kernel).__name__ for launch in program.launches]
    assert kinds == ["Kernel", "Collective", "Kernel"]
    before, collective, after = program.launches
    assert before.arguments[1] == collective.arguments[0]
    assert collective.arguments[1] == after.arguments[0]
    assert collective.arguments[0].offset != collective.arguments[1].offset  # they do not overlap
    assert [str(one) for one in source.exchanges] == ["all_reduce ADD f32[64,32] among 2 ranks"]
    assert "EXCHANGE(1, 0, " in source.entry


def test_an_input_is_sent_from_where_it_is() -> None:
    program, _ = program_of(distributed.all_gather(argument(0, 8, 8), 0, PAIR))
    assert isinstance(program.launches[0].kernel, Collective)
    assert program.launches[0].arguments[0].kind == "input"


def test_a_constant_is_stored_to_be_sent() -> None:
    three = Tensor.of(const(3.0, lm.float32), "cpu")
    program, source = program_of(distributed.all_reduce(three * 2.0, over=PAIR))
    assert [type(launch.kernel).__name__ for launch in program.launches] == ["Kernel", "Collective"]
    assert program.launches[0].arguments[-1] == program.launches[1].arguments[0]
    assert source.exchanges[0].shape == ()


def test_collectives_run_in_the_order_of_the_graph() -> None:
    """Whatever the order of the kernels, every process has the same order of collectives."""
    x = argument(0, 16)
    sums = [distributed.all_reduce(x * float(k), over=PAIR) for k in range(2, 8)]
    _, source = program_of(*[one.exp() for one in sums], sum(sums[1:], sums[0]))
    parts = [str(one) for one in source.exchanges]
    assert len(parts) == 6
    program, _ = program_of(*sums)
    read = [
        launch.values[0].src[0].src[1].src[0].arg.value
        for launch in program.launches
        if isinstance(launch.kernel, Collective)
    ]
    assert read == [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]


def test_equal_collectives_are_one() -> None:
    x = argument(0, 16)
    twice = distributed.all_reduce(x, over=PAIR) * distributed.all_reduce(x, over=PAIR)
    _, source = program_of(twice)
    assert len(source.exchanges) == 1


def test_programs_that_differ_in_what_they_exchange_differ_in_text() -> None:
    """The text is the key of the compiled code, which has the function that is called back."""
    x = argument(0, 4, 4)
    texts = {
        program_of(distributed.all_reduce(x, combine, over))[1].text
        for combine in ("sum", "max")
        for over in (PAIR, Axis("far", 2, 2))
    }
    assert len(texts) == 4


def test_a_collective_is_read_as_text() -> None:
    program, _ = program_of(distributed.broadcast(argument(0, 4), 1, PAIR))
    assert kernel_text(program.launches[0].kernel) == (
        "collective p0: f32[4], p1: f32[4] written\n  broadcast f32[4] from 1 among 2 ranks"
    )


def test_nothing_is_exchanged_of_arrays_without_elements() -> None:
    _, source = program_of(distributed.all_reduce(argument(0, 0, 4), over=PAIR))
    assert not source.exchanges


def test_metal_has_no_engine() -> None:
    lowered = lm.jit(lambda x: distributed.all_reduce(x, over=PAIR))
    with pytest.raises(DeviceError, match=r"all_reduce ADD f32\[4\].*: no engine moves arrays of"):
        lowered.lower(lm.TensorSpec((4,)), device="metal")
