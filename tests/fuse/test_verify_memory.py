"""Programs whose arrays are not there when they are read are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lamina.core.dtypes import float32
from lamina.core.options import Options
from lamina.errors import VerifyError
from lamina.fuse.program import Program
from lamina.fuse.verify_memory import verify_memory
from lamina.ir import build
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.pipeline import compile_source
from tests.generators import leaf

SIZE = 256


def chain(count: int) -> Program:
    """Exponentials of transposes of exponentials, a kernel each."""
    x = leaf(0, (SIZE, SIZE), float32)
    for _ in range(count):
        transposed = build.permute(build.unary(Op.EXP, x), (1, 0))
        x = Node(Op.CONTIGUOUS, (transposed,))
    return compile_source([x], Options(device="cuda:0", arch="sm_90a")).program


def test_a_program_is_in_order() -> None:
    program = chain(5)
    assert len(program.steps) == 5
    verify_memory(program)


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_a_step_before_what_it_reads_is_found(place: int) -> None:
    program = chain(5)
    steps = list(program.steps)
    steps[place], steps[place + 1] = steps[place + 1], steps[place]
    with pytest.raises(VerifyError, match=r"launch \d+ reads"):
        verify_memory(replace(program, steps=tuple(steps)))


def test_an_array_whose_memory_was_taken_is_found() -> None:
    program = chain(5)
    with pytest.raises(VerifyError, match=r"reads array \d+ where array \d+ is"):
        verify_memory(replace(program, steps=(*program.steps, program.steps[1])))
