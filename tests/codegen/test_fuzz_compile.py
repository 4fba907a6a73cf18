"""Random programs give what the interpreter gives: every kind of kernel, many in one program."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from lamina import backends
from lamina.core.dtypes import DType, float32, int32
from lamina.core.options import current
from lamina.core.target import cpu_target
from lamina.fuse import kernel_group
from lamina.graph import index as ix
from lamina.ir import build
from lamina.ir.kernel import Kernel, Parameter, Store
from lamina.ir.monoids import ADD, MAX
from lamina.ir.node import Node, const
from lamina.ir.ops import Op
from lamina.loops.moves import apply
from lamina.runtime.buffer import Buffer
from lamina.schedule.cpu.heuristic import schedule_for_cpu
from lamina.schedule.knobs import CpuKnobs
from lamina.targets.c.dots import DotPrinter
from lamina.targets.c.operations import CLanguage
from tests.generators import leaf
from tests.programs import (
    RandomProgram,
    disagreement,
    download,
    execute_on_buffers,
    merged,
    random_program,
    upload,
)
from tests.schedules import random_schedule
from tests.sums import shorten_blocks

BATCHES = 12
BATCH = 12


def batch(first_seed: int, size: int, max_nodes: int) -> RandomProgram:
    """Programs of consecutive seeds as one."""
    return merged(
        [random_program(random.Random(first_seed + i), max_nodes, 1000 * i) for i in range(size)]
    )


@pytest.mark.parametrize("number", range(BATCHES))
def test_random_programs(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Small thresholds let small arrays run in parallel and in kernels of their own.
    rng = random.Random(number)
    size = rng.choice([1, 8, 64, 1 << 12])
    knobs = CpuKnobs(shared_instructions=size, chunk_instructions=size)
    monkeypatch.setattr(kernel_group, "SMALL_KERNEL", rng.choice([64, 1 << 16]))
    if rng.random() < 0.5:  # and be staged
        knobs = replace(
            knobs, min_packed_rows=2, min_packed_rows_of_dots=2, far_elements=2, panel_columns=16,
            min_transposed=4, strip_vectors=2,
        )  # fmt: skip
    target = cpu_target(rng.choice([16, 32, 64]), cores=2)
    shorten_blocks(monkeypatch, rng.choice([2, 5, 32]))
    monkeypatch.setattr(
        backends, "schedule_for_cpu", lambda kernel, *_: schedule_for_cpu(kernel, target, knobs)
    )
    assert disagreement(batch(BATCH * number, BATCH, 18), current()) is None


@pytest.mark.parametrize("number", range(6))
def test_random_schedules(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(number)
    for name in ("schedule_for_cpu", "schedule_for_gpu"):
        monkeypatch.setattr(backends, name, lambda kernel, *_: random_schedule(rng, kernel))
    assert disagreement(batch(10_000 + 4 * number, 4, 12), current()) is None


@pytest.mark.usefixtures("on_cpu")
def test_a_wrong_result_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    original = DotPrinter.print

    def wrong(self: DotPrinter) -> tuple[str, int]:
        text, chunks = original(self)
        return text.replace(" + load", " - load"), chunks

    monkeypatch.setattr(DotPrinter, "print", wrong)
    x = leaf(0, (40,), float32)
    program = RandomProgram([x + x], {x: np.ones(40, np.float32)}, frozenset())
    assert disagreement(program, current()) is not None


X, Y = leaf(0, (16, 16), float32), leaf(1, (16, 16), float32)


def test_a_negated_literal_is_no_decrement() -> None:
    axis = ix.axis(0, 8)
    store = Store(0, axis, Node(Op.NEG, (const(-1.0, float32),)), (axis,))
    kernel = Kernel((Parameter(float32, 8, True),), (store,), 1)
    text, _ = DotPrinter(apply(kernel, ()), "negate", CLanguage()).print()
    assert "1.0" in text
    assert "--" not in text


def swap(x: Node) -> Node:
    return build.permute(x, (1, 0))


def assign(target: Node, value: Node) -> Node:
    return Node(Op.ASSIGN, (target, value))


def row_maxima(x: Node) -> Node:
    return build.expand(build.reshape(build.reduce(MAX, [1], x), (16, 1)), (16, 16))


def column_sums(x: Node) -> Node:
    return build.expand(build.reshape(build.reduce(ADD, [0], x), (1, 16)), (16, 16))


@pytest.mark.parametrize(
    "sinks",
    [
        [assign(X, X + X)],
        [assign(X, swap(X))],
        [assign(X, build.flip(X, [0])), X + Y],
        [assign(X, Y), assign(Y, X)],
        [assign(X, swap(Y)), assign(Y, swap(X))],
        [assign(X, X + Y), assign(Y, X * Y), X + X],
        [assign(X, X - row_maxima(X))],
        [assign(X, X - column_sums(X)), assign(Y, column_sums(X))],
        [assign(X, X - row_maxima(Y)), assign(Y, Y - row_maxima(X))],
        [assign(X, build.pad(build.slice_axis(X, 0, 1, 16), (0, 0), (1, 0)))],
    ],
)
def test_every_sink_sees_the_old_values(sinks: list[Node]) -> None:
    leaves = {
        one: np.arange(256, dtype=np.float32).reshape(16, 16) * (1 if one is X else -1) % 97
        for one in (X, Y)
    }
    assert disagreement(RandomProgram(sinks, leaves, frozenset()), current()) is None


def on_buffer(sink: Node, buffer: Buffer) -> Node:
    """`sink` with every leaf on `buffer`."""
    src = tuple(on_buffer(one, buffer) for one in sink.src)
    arg = sink.arg._replace(storage=buffer) if sink.op is Op.BUFFER else sink.arg
    return Node(sink.op, src, arg)


@pytest.mark.parametrize("dtype", [float32, int32])
def test_two_views_of_one_buffer(dtype: DType) -> None:
    """Writing a buffer through one shape or dtype must not disturb a reader through another."""
    array = np.arange(256, dtype=np.float32)
    flat = leaf(0, (256,), dtype)
    buffer = upload(array)
    sinks = [assign(X, X + X), build.flip(flat, [0])]
    doubled, flipped = execute_on_buffers([on_buffer(one, buffer) for one in sinks], "cpu")
    assert np.array_equal(download(doubled, X), 2 * array.reshape(16, 16))
    assert np.array_equal(download(flipped, flat), array.view(dtype.numpy)[::-1])
