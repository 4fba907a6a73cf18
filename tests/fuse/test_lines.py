"""A kernel's parameters are the lines of arrays that it touches: where they begin and end, and that
what runs on them is what would run on the arrays."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest

import lamina as lm
from lamina.core.dtypes import DType, float32, float64, int64, uint8
from lamina.core.options import using
from lamina.explain.check import run_kernel
from lamina.fuse.launch import ALIGNMENT, Launch
from lamina.fuse.program import Program, build_program
from lamina.fuse.target import FusionTarget
from lamina.ir import build
from lamina.ir.interpreter import evaluate
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from tests.codegen import running
from tests.generators import Array, leaf
from tests.programs import memory_of, random_program

COUNT = 1000


def numbers(shape: tuple[int, ...], dtype: DType = float32) -> Array:
    return (np.arange(np.prod(shape)) % 251).reshape(shape).astype(dtype.numpy)


def agrees(program: Program, sinks: Sequence[Node], inputs: dict[int, Array]) -> bool:
    """Do the program's kernels, on the lines that they are given, make what the graph says? Its
    inputs are changed where it assigns."""
    arrays = memory_of(program, inputs)
    leaves = {node: inputs[node.arg.storage].copy() for node in toposort(sinks)
              if node.op is Op.BUFFER}  # fmt: skip
    for launch in program.launches:
        run_kernel(launch.kernel, [arrays[view] for view in launch.arguments])
    wanted = evaluate(sinks, leaves)
    return all(np.array_equal(arrays[view], one.reshape(-1))
               for view, one in zip(program.outputs, wanted, strict=True))  # fmt: skip


def read_by(launch: Launch) -> tuple[int, int]:
    """The bytes of input 0 that a launch is given."""
    (view,) = (one for one in launch.arguments if one.kind == "input")
    return view.offset, view.offset + view.nbytes


@pytest.mark.parametrize("dtype", [uint8, float32, float64])
@pytest.mark.parametrize("start", [0, 1, 15, 16, 63, 64, 500, 999])
@pytest.mark.parametrize("step", [1, 7, -3])
def test_whole_lines_around_what_is_read(dtype: DType, start: int, step: int) -> None:
    x, size = leaf(0, (COUNT,), dtype), dtype.itemsize
    read = range(start, COUNT if step > 0 else -1, step)[:100]
    sinks = [build.sliced(x, [read]) + 1]
    program = build_program(sinks, FusionTarget())
    first, end = read_by(program.launches[0])
    if len(read) == 1:
        assert (first, end) == (start * size, (start + 1) * size)
    else:
        assert first == min(read) * size // ALIGNMENT * ALIGNMENT
        assert end == min((max(read) * size // ALIGNMENT + 1) * ALIGNMENT, COUNT * size)
    assert agrees(program, sinks, {0: numbers((COUNT,), dtype)})


def test_kernels_that_read_an_element_each_of_one_table_are_equal() -> None:
    """Weights of equal shapes that have a rate each: one kernel, which four launches share."""
    rates = leaf(0, (COUNT,), float32)
    sinks = []
    for number, at in enumerate((3, 4, 17, 999)):
        rate = build.reshape(build.sliced(rates, [range(at, at + 1)]), (1, 1))
        sinks.append(leaf(1 + number, (8, 4), float32) * build.expand(rate, (8, 4)))
    program = build_program(sinks, FusionTarget())
    assert len(program.launches) == 4
    assert len({launch.kernel for launch in program.launches}) == 1
    weights = {1 + number: numbers((8, 4)) * number for number in range(4)}
    assert agrees(program, sinks, {0: numbers((COUNT,)), **weights})


@pytest.mark.parametrize("before", [0, 5, 40])
@pytest.mark.parametrize("after", [0, 5, 40])
def test_padding_reads_no_line_beyond_the_array(before: int, after: int) -> None:
    x = leaf(0, (10, 20), float32)
    part = build.sliced(x, [range(3, 10), range(20)])
    sinks = [build.pad(part, (before, 0), (after, 0)) + 1.0]
    program = build_program(sinks, FusionTarget())
    (launch,) = program.launches
    assert 0 <= read_by(launch)[0] < read_by(launch)[1] <= 800
    assert agrees(program, sinks, {0: numbers((10, 20))})


def test_what_data_say_is_read_may_be_anywhere() -> None:
    x, at = leaf(0, (COUNT,), float32), leaf(1, (8,), int64)
    sinks = [Node(Op.GATHER, (x, at), 0) + 1.0]
    program = build_program(sinks, FusionTarget())
    views = program.launches[0].arguments
    sizes = {view.number: view.nbytes for view in views if view.kind == "input"}
    assert sizes[0] == 4 * COUNT
    places = np.array([999, 0, 5, 17, 3, -1, 1000, 2])
    assert agrees(program, sinks, {0: numbers((COUNT,)), 1: places})


def test_nothing_to_read_or_write() -> None:
    x, none = leaf(0, (COUNT,), float32), leaf(1, (0, 4), float32)
    parts = build.slice_axis(x, 0, 500, 500), none, build.slice_axis(x, 0, 700, 704)
    sinks = [one + 1.0 for one in parts]
    program = build_program(sinks, FusionTarget())
    assert agrees(program, sinks, {0: numbers((COUNT,)), 1: numbers((0, 4))})


def test_an_array_is_written_while_other_lines_of_it_are_read() -> None:
    """Each result has memory of its own, or comes after whatever reads what it overwrites."""
    x = leaf(0, (COUNT,), float32)
    early, late = build.slice_axis(x, 0, 0, 100), build.slice_axis(x, 0, 900, 1000)
    turned = build.flip(x, (0,))
    for value in (x + 1.0, turned + 1.0, build.shifted(x, 0, 0.0)):
        sinks = [early * 2.0, Node(Op.ASSIGN, (x, value)), late + early]
        program = build_program(sinks, FusionTarget())
        assert agrees(program, sinks, {0: numbers((COUNT,))})


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_what_a_kernel_writes_overlaps_no_other_parameter(first: int) -> None:
    """Compilers are told so."""
    for seed in range(first, first + 20):
        one = random_program(random.Random(f"lines{seed}"), 16)
        inputs = list(one.leaves)
        memo: dict[Node, Node] = {}
        for node in toposort(one.sinks):
            arg = node.arg
            if node.op is Op.BUFFER:
                arg = arg._replace(storage=inputs.index(node))
            memo[node] = Node(node.op, tuple(memo[each] for each in node.src), arg)
        program = build_program([memo[sink] for sink in one.sinks], FusionTarget())
        for launch in program.launches:
            assert all(view.offset % ALIGNMENT == 0 or view.size == 1 for view in launch.arguments)
            held = [(program.location(view)[0], view.kind, view.offset, view.offset + view.nbytes)
                    for view in launch.arguments]  # fmt: skip
            for (left, mine), (right, yours) in combinations(
                zip(held, launch.kernel.parameters, strict=True), 2
            ):
                apart = left[:2] != right[:2] or left[3] <= right[2] or right[3] <= left[2]
                assert apart or not (mine.written or yours.written), seed


@pytest.mark.parametrize("start", [0, 1, 3, 17, 100])
def test_memory_that_begins_anywhere(start: int) -> None:
    """What others share with lamina need not begin at a line."""
    x = numbers((COUNT,))[start:]
    shared = lm.from_dlpack(x)
    for first in (0, 1, 16, 333):
        near, far = slice(first, first + 200), slice(first + 300, first + 500)
        got = shared[near] * 2 + shared[far]
        np.testing.assert_array_equal(got.numpy(), x[near] * 2 + x[far])


def test_kernels_of_several_parts_agree_with_the_reference() -> None:
    """Each part is read and written at other lines by one function: so LAMINA_CHECK sees it."""
    x = numbers((6, 7, 33))
    node = running.leaf(x)
    parts = [build.sliced(node, [range(at, at + 1), range(7), range(33)]) for at in range(6)]
    sinks = [build.unary(Op.SQRT, one) for one in parts]
    with using(check=True):
        for got, part in zip(running.run(sinks), x, strict=True):
            np.testing.assert_array_equal(got[0], np.sqrt(part))
