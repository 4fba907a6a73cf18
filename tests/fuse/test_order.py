"""Orders of steps: that each comes after those that it needs, and how much memory they take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamina.core.dtypes import float32
from lamina.core.options import Options
from lamina.fuse.order import Steps, in_least_memory
from lamina.fuse.program import Program
from lamina.fuse.verify_memory import verify_memory
from lamina.ir import build
from lamina.ir.interpreter import evaluate
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.pipeline import compile_source
from tests.compiled import Sample, compare
from tests.generators import leaf

SIZE = 512
ARRAY = 4 * SIZE * SIZE  # bytes


def _steps(reads: dict[str, str], sizes: dict[str, int], over: Any = None) -> Steps[str, str]:
    """Steps that each make the array of their name from those of others, a letter each."""
    return Steps(
        list(reads),
        before={step: list(read) for step, read in reads.items()},
        makes={step: {step: sizes[step]} if sizes[step] else {} for step in reads},
        reads={step: set(read) for step, read in reads.items()},
        over=over or {},
    )


def _live(steps: Steps[str, str], order: list[str]) -> int:
    """The peak, by the lifetimes of all arrays."""
    place = {step: at for at, step in enumerate(order)}
    last = {step: place[step] for step in order}
    for step in order:
        for array in steps.reads[step]:
            last[array] = max(last[array], place[step])

    def at(now: int) -> int:
        return sum(
            size for step in order for size in steps.makes[step].values()
            if place[step] <= now <= last[step]
        )  # fmt: skip

    return max(map(at, range(len(order))))


def test_gradients_of_weights_come_before_the_next_layer() -> None:
    """Activations x, y, z of 10 bytes; their derivatives c, b, a; gradients of weights u, v, w,
    which are asked for from the first layer to the last."""
    reads = {
        "x": "", "y": "x", "z": "y", "c": "z", "b": "c", "a": "b", "u": "xa", "v": "yb", "w": "zc",
    }  # fmt: skip
    steps = _steps(reads, {step: 0 if step in "uvw" else 10 for step in reads})
    assert steps.peak(list(reads)) == 60
    order = in_least_memory(steps)
    assert [step for step in order if step in "uvw"] == ["w", "v", "u"]
    assert steps.peak(order) == 40


def test_several_readers_free_an_array_together() -> None:
    """Sums of a large array that nobody else reads come before another large array is made."""
    reads = {"a": "", "b": "", "c": "b", "d": "a", "e": "a"}
    steps = _steps(reads, {"a": 100, "b": 100, "c": 1, "d": 1, "e": 1})
    order = in_least_memory(steps)
    assert order.index("b") > max(order.index("d"), order.index("e"))
    assert steps.peak(order) == 101


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_orders_are_ones_in_which_steps_can_run(data: st.DataObject) -> None:
    names = "abcdefgh"[: data.draw(st.integers(1, 8))]
    reads = {
        name: "".join(data.draw(st.sets(st.sampled_from(names[:at])))) if at else ""
        for at, name in enumerate(names)
    }
    sizes = {name: data.draw(st.integers(0, 20)) for name in names}
    steps = _steps(reads, sizes)
    order = in_least_memory(steps)
    assert sorted(order) == sorted(names)
    for at, step in enumerate(order):
        assert set(reads[step]) <= set(order[:at])
    assert steps.peak(order) == _live(steps, order)
    assert steps.peak(order) <= _live(steps, list(names))


def test_an_array_takes_the_place_of_one_that_is_not_read_again() -> None:
    steps = _steps({"a": "", "b": "a", "c": "b"}, {"a": 8, "b": 8, "c": 8}, {"b": "a", "c": "b"})
    assert dict(steps.taken_in(["a", "b", "c"])) == {"b": "a", "c": "b"}
    assert steps.peak(["a", "b", "c"]) == 8
    read_again = _steps({"a": "", "b": "a", "c": "a"}, {"a": 8, "b": 8, "c": 8}, {"b": "a"})
    assert dict(read_again.taken_in(["a", "b", "c"])) == {}
    assert dict(read_again.taken_in(["a", "c", "b"])) == {"b": "a"}


def _compiled(device: str, *sinks: Node) -> Program:
    options = Options(device=device, arch="sm_90a" if device != "cpu" else "")
    program = compile_source(list(sinks), options).program
    verify_memory(program)
    return program


def _stored(x: Node) -> Node:
    return Node(Op.CONTIGUOUS, (x,))


def _plus_sums(x: Node) -> Node:
    """Half of x, to which the sums of its columns are added: a kernel that follows another."""
    sums = build.reduce(ADD, (0,), x)
    return _stored(x * 0.5 + build.broadcast_over(sums, (0,), x.shape))


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_maps_of_arrays_that_are_done_with_need_one_array(device: str) -> None:
    x = leaf(0, (SIZE, SIZE), float32)
    for _ in range(4):
        x = _plus_sums(x)
    arena = _compiled(device, x).arena
    assert ARRAY <= arena < 1.5 * ARRAY  # with the sums


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_what_reads_other_elements_needs_another_array(device: str) -> None:
    x = _plus_sums(leaf(0, (SIZE, SIZE), float32))
    flipped = _stored(build.flip(_plus_sums(x), (0,)))
    assert _compiled(device, _plus_sums(flipped)).arena >= 2 * ARRAY


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_results_of_programs_that_use_memory_again_are_right(data: st.DataObject) -> None:
    """Stored arrays that are read at the same places, transposed, flipped, and several times."""
    stored = [leaf(0, (SIZE, SIZE), float32)]
    moves = {
        "as it is": lambda x: x, "transposed": lambda x: build.permute(x, (1, 0)),
        "flipped": lambda x: build.flip(x, (0,)),
        "sums": lambda x: build.broadcast_over(build.reduce(ADD, (1,), x), (1,), x.shape) * 2.0**-9,
    }  # fmt: skip
    for number in range(data.draw(st.integers(2, 8))):
        first, second = (
            moves[data.draw(st.sampled_from(list(moves)))](data.draw(st.sampled_from(stored)))
            for _ in range(2)
        )
        stored.append(_stored(first * 0.5 + second + number))
    sinks = [stored[-1], *stored[1 : data.draw(st.integers(1, 3))]]
    values = np.random.default_rng(0).standard_normal((SIZE, SIZE)).astype(np.float32)
    wanted = evaluate(sinks, {stored[0]: values})
    sample = Sample("stored", sinks, {stored[0]: values.tobytes()}, list(map(np.asarray, wanted)))
    assert compare([sample], "cpu") == []
