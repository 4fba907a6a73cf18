"""Programs that differ in numbers alone: the second one reads them from memory, and serves all that
come after it. Results are those of a program that has the number in its text, bit by bit."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina.core import options
from lamina.core.dtypes import Scalar
from lamina.frontend import execution
from lamina.frontend import realize as memory
from lamina.frontend.execution import compile_sinks
from lamina.frontend.session import SESSION
from lamina.graph.rewrite import Rule, rewrite
from lamina.graph.split_complex import split_complex
from lamina.ir.node import Node, const, toposort
from lamina.ir.ops import Op
from lamina.runtime.buffer import Buffer
from tests.programs import RandomProgram, random_program, upload

VALUES = np.array([-3, -1, -0.0, 0, 1, 2, 5, 100])
FLOATS = (0.3, 0.7, -0.0, 2.0)
Function = Callable[[lm.Tensor, Any], lm.Tensor]

pytestmark = pytest.mark.usefixtures("on_cpu", "unknown")


@pytest.fixture
def unknown() -> Iterator[None]:
    """Nothing is known of numbers, neither before nor after."""
    forget()
    yield
    forget()


def forget() -> None:
    SESSION.forget()


def programs() -> int:
    return compile_sinks.cache_info().misses


def check(function: Function, x: lm.Tensor, numbers: Sequence[Scalar], most: int = 2) -> None:
    """`function` of all `numbers` takes at most `most` programs, and gives what it gives alone."""
    forget()
    found = [function(x, number).numpy().tobytes() for number in numbers]
    assert programs() <= most
    for number, result in zip(numbers, found, strict=True):
        forget()
        assert function(x, number).numpy().tobytes() == result, number


@pytest.mark.parametrize("dtype", [lm.float32, lm.float64, lm.bfloat16], ids=str)
def test_floats(dtype: lm.DType) -> None:
    def function(x: lm.Tensor, y: float) -> lm.Tensor:
        parts = [x * y, y - x, x / y, lm.where(x < y, y, x), (x * y).exp() + 0.1, lm.maximum(x, y)]
        return lm.stack([*parts, ((x * y) * y).sum().expand(x.shape)])

    check(function, lm.asarray(VALUES).cast(dtype).realize(), FLOATS)


@pytest.mark.parametrize("dtype", [lm.int8, lm.int64, lm.uint64], ids=str)
def test_integers(dtype: lm.DType) -> None:
    def function(x: lm.Tensor, y: int) -> lm.Tensor:
        parts = x * y, x + y, x & y, lm.where(x == y, y, x), x << y
        return sum(parts[1:], parts[0])

    x = lm.asarray(abs(VALUES)).cast(dtype).realize()
    check(function, x, (5, 7, 2, 0))
    check(lambda x, y: x // y + x % y, x, (5, 7, 2, 9))


def test_complex_numbers() -> None:
    x = lm.asarray(VALUES + 2j).realize()
    check(lambda x, y: x * y, x, (0.5 + 2j, 0.25 - 1j, 3.0 + 4j))


def test_what_is_no_number_stays_in_the_text() -> None:
    x = lm.asarray(VALUES).realize()
    special = (math.nan, math.inf, -math.inf)
    check(lambda x, y: lm.where(x == y, x * 0.3, x + y), x, (0.3, *special, 0.7), 5)
    check(lambda x, y: x * lm.where(lm.arange(8) < y, 0.3, 0.7), x, (3, 5, 7))
    check(lambda x, y: x * (lm.arange(8) % y), x, (3, 5, 7), 3)
    check(lambda x, y: abs(x) ** y, x, (2, 3, 4, 0.5, 1), 5)  # some powers are products


def test_arrays_of_one_number() -> None:
    check(lambda x, y: lm.full((3,), y) if y > 0.5 else lm.full((), y), lm.zeros(()), FLOATS, 4)


def test_a_first_program_is_as_it_was() -> None:
    x = lm.asarray(VALUES).realize()
    for number, count in ((0.3, 0), (0.7, 1), (0.9, 1)):
        inputs: dict[Buffer, int] = {}
        sinks = tuple(memory.cut([(x * number + 0.25).node], inputs))
        for _ in range(2):
            program, numbers = memory.lifted(sinks, len(inputs), "cpu")
            assert (program == sinks) is (not count)
            assert len(numbers) == count
        assert {one.arg.value for one in toposort(program) if one.op is Op.CONST} == {
            0.25, *[number][count:]
        }  # fmt: skip


def test_numbers_that_change_later_and_others_that_do_not() -> None:
    x = lm.asarray(VALUES).realize()
    forget()
    for first, second in ((0.5, 2), (3.0, 2), (1.5, 2), (1.5, 0.25), (6.0, 4.5), (0.5, 2)):
        np.testing.assert_array_equal((x * first + second).numpy(), VALUES * first + second)
    assert programs() == 3


def test_a_loop_of_steps_with_another_rate_each() -> None:
    x = lm.asarray(VALUES.astype(np.float32)).realize()
    weight = lm.asarray(np.ones(8, np.float32)).realize()
    average = lm.asarray(np.zeros(8, np.float32)).realize()
    expected = np.ones(8), np.zeros(8)
    forget()
    for step in range(1, 12):
        (slope,) = lm.gradient(((weight * x - 1.0) ** 2).sum(), [weight])
        average.assign(average * 0.9 + slope.detach() * 0.1)
        weight.assign(weight.detach() - average / (1 - 0.9**step) * (0.01 / step))
        lm.realize(weight, average)
        moved = expected[1] * 0.9 + 2 * (expected[0] * VALUES - 1) * VALUES * 0.1
        expected = expected[0] - moved / (1 - 0.9**step) * (0.01 / step), moved
    np.testing.assert_allclose(weight.numpy(), expected[0], 1e-4)
    assert programs() <= 4  # in the first step two numbers are one


def test_a_traced_step_with_another_rate_each() -> None:
    weight = lm.asarray(VALUES).realize()
    traces = []

    @lm.jit
    def step(x: lm.Tensor, rate: float, scale: int = 1) -> lm.Tensor:
        traces.append(rate)
        old = weight.detach()
        weight.assign(old - x * rate)
        return old.sum() * scale

    x, expected = lm.asarray(VALUES).realize(), VALUES.copy()
    forget()
    for rate in (0.75, 0.5, 0.25, 0.75, 0.5):
        assert step(x, rate).item() == expected.sum()
        expected -= VALUES * rate
    np.testing.assert_array_equal(weight.numpy(), expected)
    assert (programs(), traces) == (2, [0.75, 0.5, 0.25])


def test_a_number_in_place_of_a_tensor_is_another_program() -> None:
    x, y = lm.full((3,), 2.0).realize(), lm.full((), 5.0).realize()
    found = [(x * other + 1.0).tolist() for other in (y, 3.0, y, 4.0, y)]
    assert found == [[11.0] * 3, [7.0] * 3, [11.0] * 3, [9.0] * 3, [11.0] * 3]


def test_traced_functions_of_tensors_alone() -> None:
    functions = [lm.jit(lambda x, y=y: x.sum() * y) for y in (0.3, 0.7, 0.9)]
    arrays = [lm.asarray(VALUES * scale).realize() for scale in (1, 2)]
    results = [[function(x).item() for x in arrays * 3] for function in functions]
    total = VALUES.sum()
    assert results == [[total * y, 2 * total * y] * 3 for y in (0.3, 0.7, 0.9)]
    assert all(function._quick for function in functions)


def test_traces_for_numbers_do_not_pile_up() -> None:
    function, x = lm.jit(lambda x, y: x + y), lm.asarray(VALUES).realize()
    forget()
    for number in range(300):
        assert function(x, float(number)).numpy()[0] == number - 3
    assert len(function._programs) <= 257
    assert programs() == 2


def run(sinks: Sequence[Node], program: RandomProgram, numbers: list[Buffer]) -> list[bytes]:
    leaves = sorted(program.leaves, key=lambda one: one.arg.storage)
    inputs = [*(upload(program.leaves[one]) for one in leaves), *numbers]
    settings = replace(options.current(), device="cpu")
    planned = compile_sinks(tuple(sinks), settings)
    return [bytes(one.view()) for one in execution.run_compiled(planned, inputs, settings)]


def test_random_programs() -> None:
    used = 0
    for seed in range(8):
        program = random_program(random.Random(seed), 12)
        sinks = split_complex(tuple(program.sinks))
        consts = [one for one in toposort(sinks) if one.op is Op.CONST and one.dtype is not lm.bool]
        others = {one: const(101 + at, one.dtype) for at, one in enumerate(consts)}
        memory.lifted(
            tuple(rewrite(sinks, [Rule("other", (Op.CONST,), others.get)])),
            len(program.leaves), "cpu",
        )  # fmt: skip
        again, numbers = memory.lifted(sinks, len(program.leaves), "cpu")
        used += len(numbers)
        if numbers:
            assert run(sinks, program, []) == run(again, program, numbers)
    assert used > 5
