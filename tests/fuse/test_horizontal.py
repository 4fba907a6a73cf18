"""Kernels of one step need nothing of each other: run backwards, steps make the same."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from lamina.backends import OF_GPUS
from lamina.core.dtypes import float32, int32
from lamina.errors import VerifyError
from lamina.explain.check import run_kernel
from lamina.fuse.horizontal import MAX_STEPS_AHEAD, SHORT_BYTES
from lamina.fuse.program import Program, build_program
from lamina.fuse.verify_memory import verify_memory
from lamina.ir import build
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.ir.ops import Op
from tests.generators import Array, leaf
from tests.programs import (
    RandomProgram,
    differing,
    memory_of,
    merged,
    numbered,
    random_program,
    reference,
)

TARGET = replace(OF_GPUS, max_horizontal=4)


def results_run_backwards(program: RandomProgram, built: Program) -> list[Array]:
    """The results of a program, the last kernel of each step first."""
    arrays = memory_of(built, dict(enumerate(program.leaves.values())))
    for step in built.steps:
        for launch in reversed(step):
            run_kernel(launch.kernel, [arrays[view] for view in launch.arguments])
    return [
        arrays[view].reshape(sink.shape)
        for view, sink in zip(built.outputs, program.sinks, strict=True)
    ]


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_kernels_of_a_step_are_independent(first: int) -> None:
    together = 0
    for seed in range(first, first + 10):
        generators = [random.Random(f"horizontal{seed}.{part}") for part in range(3)]
        parts = [random_program(rng, 8, 100 * part) for part, rng in enumerate(generators)]
        program = merged(parts)
        built = build_program(numbered(program), TARGET)
        verify_memory(built)
        together += sum(len(step) > 1 for step in built.steps)
        wanted, comparable = reference(program)
        got = results_run_backwards(program, built)
        for sink, result, want, fits in zip(program.sinks, got, wanted, comparable, strict=True):
            wrong = differing(sink, result, want, sink in program.loose) if fits else None
            assert wrong is None, f"seed {seed}: {wrong}"
    assert together > 0


def sum_of_rows(x: Node) -> Node:
    return build.reduce(ADD, [1], x)


def chain(storage: int, rows: int = 32, columns: int = 48) -> Node:
    """Two kernels, the second of which needs the first."""
    totals = Node(Op.CONTIGUOUS, (sum_of_rows(leaf(storage, (rows, columns), float32)),))
    shared = build.expand(build.reshape(totals, (1, rows)), (rows, rows))
    return sum_of_rows(shared * leaf(100 + storage, (rows, rows), float32))


def step_lengths(sinks: list[Node], max_horizontal: int = 4) -> list[int]:
    built = build_program(sinks, replace(OF_GPUS, max_horizontal=max_horizontal))
    return [len(step) for step in built.steps]


def test_chains_run_beside_each_other() -> None:
    chains = [chain(number, 30 + number) for number in range(3)]
    assert step_lengths(chains) == [3, 3]
    assert step_lengths(chains, max_horizontal=2) == [2, 2, 1, 1]
    assert step_lengths(chains, max_horizontal=1) == [1] * 6


def test_what_needs_another_kernel_comes_after_it() -> None:
    assert step_lengths([chain(0)]) == [1, 1]


def test_an_array_is_not_written_while_another_kernel_reads_it() -> None:
    x = leaf(0, (64, 32), float32)
    turned = build.permute(leaf(0, (32, 64), float32), (1, 0))
    read = sum_of_rows(turned)
    written = Node(Op.ASSIGN, (x, leaf(1, (64, 32), float32) + 1.0))
    assert step_lengths([read, written]) == [1, 1]
    assert step_lengths([written, sum_of_rows(leaf(2, (64, 32), float32))]) == [2]


def test_views_of_two_dtypes_are_one_array() -> None:
    read = build.reduce(ADD, [0], leaf(0, (64,), int32))
    written = Node(Op.ASSIGN, (leaf(0, (64,), float32), leaf(1, (64,), float32) + 1.0))
    assert step_lengths([read, written]) == [1, 1]


def sums_of_product(storage: int, side: int) -> list[Node]:
    """The sums of rows and of columns of a product, which is stored for both."""
    box = (side, side, side)
    left, right = (leaf(storage + number, (side, side), float32) for number in (0, 50))
    rows = build.expand(build.reshape(left, (side, 1, side)), box)
    columns = build.expand(build.reshape(right, (1, side, side)), box)
    result = Node(Op.CONTIGUOUS, (build.reduce(ADD, [2], rows * columns),))
    return [sum_of_rows(result), build.reduce(ADD, [0], result)]


def test_kernels_that_make_large_arrays_stay_alone() -> None:
    small, large = ([*sums_of_product(0, side), *sums_of_product(1, side)] for side in (20, 600))
    assert step_lengths(small) == [2, 4]
    assert step_lengths(large) == [1, 2, 1, 2]  # 600 x 600 float32 are 1.4 MB


def test_dependent_kernels_of_one_step_are_found() -> None:
    built = build_program([chain(0)], TARGET)
    (first,), (second,) = built.steps
    with pytest.raises(VerifyError, match="side by side"):
        verify_memory(replace(built, steps=((first, second),)))


def test_long_kernels_have_steps_of_their_own() -> None:
    columns = SHORT_BYTES // 4 // 64
    long = [sum_of_rows(leaf(number, (65, columns), float32)) for number in range(2)]
    assert step_lengths(long) == [1, 1]
    assert step_lengths([long[0], chain(2), chain(3, 31)]) == [1, 2, 2]


def test_a_kernel_runs_ahead_by_so_many_steps() -> None:
    x = leaf(0, (16, 16), float32)
    for number in range(MAX_STEPS_AHEAD + 4):
        totals = Node(Op.CONTIGUOUS, (sum_of_rows(x),))
        spread = build.expand(build.reshape(totals, (1, 16)), (16, 16))
        x = spread * leaf(number + 1, (16, 16), float32)
    alone = sum_of_rows(leaf(99, (8, 8), float32))
    lengths = step_lengths([sum_of_rows(x), alone])
    assert lengths.index(2) == len(lengths) - MAX_STEPS_AHEAD
