"""The reference of kernels against the reference of graphs, through fusion alone."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from lamina.backends import OF_GPUS
from lamina.core.dtypes import bfloat16, float32
from lamina.errors import VerifyError
from lamina.explain.check import run_kernel
from lamina.fuse.program import build_program
from lamina.fuse.target import FusionTarget
from lamina.graph import index as ix
from lamina.ir import build
from lamina.ir.interpreter import evaluate
from lamina.ir.kernel import Kernel, Parameter, Store
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.ir.ops import Load, Op
from tests.generators import Array, leaf
from tests.programs import (
    RandomProgram,
    differing,
    memory_of,
    numbered,
    random_program,
    reference,
    views_of,
)


def run_kernels(program: RandomProgram, pitch: int) -> list[Array]:
    """The sinks of `program`, its kernels run one after the other."""
    target = replace(OF_GPUS, row_pitch=pitch) if pitch else FusionTarget()
    built = build_program(numbered(program), target)
    arrays = memory_of(built, dict(enumerate(program.leaves.values())))
    for launch in built.launches:
        run_kernel(launch.kernel, [arrays[view] for view in launch.arguments])
    return [
        arrays[view].reshape(sink.shape)
        for view, sink in zip(built.outputs, program.sinks, strict=True)
    ]


@pytest.mark.parametrize("pitch", [0, 16])
@pytest.mark.parametrize("first", range(0, 120, 20))
def test_kernels_of_random_programs(first: int, pitch: int) -> None:
    for seed in range(first, first + 20):
        program = random_program(random.Random(f"kernels{seed}"), 16)
        wanted, comparable = reference(program)
        got = run_kernels(program, pitch)
        for sink, one, want, fits in zip(program.sinks, got, wanted, comparable, strict=True):
            wrong = differing(sink, one, want, sink in program.loose) if fits else None
            assert wrong is None, f"seed {seed}: {wrong}"


def test_long_ragged_rows_that_kernels_pass_on_begin_at_multiples() -> None:
    x = build.reduce(ADD, [1], leaf(0, (5, 3, 7), float32))
    turned = build.reduce(ADD, [0], build.permute(Node(Op.CONTIGUOUS, (x,)), (1, 0)))
    built = build_program([turned], replace(OF_GPUS, row_pitch=16))
    assert {view.kind: view.size for view in views_of(built)} == {
        "input": 105, "scratch": 40, "output": 5,
    }  # fmt: skip


def test_an_index_outside_is_an_error() -> None:
    axis = ix.axis(0, 8)
    beyond = ix.scale(axis, 1, 1)
    load = Node(Op.LOAD, (beyond,), Load(0, float32))
    parameters = (Parameter(float32, 8), Parameter(float32, 8, True))
    arrays = [np.zeros(8, np.float32), np.zeros(8, np.float32)]
    with pytest.raises(VerifyError, match="a load from parameter 0 at 8: it has 8 elements"):
        run_kernel(Kernel(parameters, (Store(1, axis, load, (axis,)),), 1), arrays)
    store = Store(1, beyond, ix.const(0.0, float32), (axis,))
    with pytest.raises(VerifyError, match="a store to parameter 1 at 8"):
        run_kernel(Kernel(parameters, (store,), 1), arrays)


def test_nan_sorts_last_in_every_float() -> None:
    x = leaf(0, (5,), bfloat16)
    array = np.array([2, np.nan, -1, np.nan, 1]).astype(bfloat16.numpy)
    (order,) = evaluate([build.argsort(x)], {x: array})
    assert order.tolist() == [2, 4, 0, 1, 3]
