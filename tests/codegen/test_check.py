"""LAMINA_CHECK=1: every compiled kernel against the reference, one by one."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import lamina as lm
from lamina import backends, pipeline
from lamina.core.dtypes import DType, bool_, float16, float32, float64, int64
from lamina.core.options import Options, using
from lamina.errors import VerifyError
from lamina.explain import check
from lamina.fuse.program import Launch, Program, build_program
from lamina.graph import index as ix
from lamina.ir import build
from lamina.ir.kernel import Kernel, Parameter, Store
from lamina.ir.monoids import ADD, MAX
from lamina.ir.node import Node
from lamina.ir.ops import Load, Op
from lamina.loops.moves import apply
from lamina.loops.nest import Nest, SubLoops
from lamina.runtime import profile
from lamina.targets.c import program as c
from lamina.targets.c.printer import CPrinter
from tests.generators import leaf
from tests.programs import RandomProgram, disagreement, merged, random_program
from tests.test_layers import ROOT

X = leaf(0, (20, 40), float32)
PROGRAM = RandomProgram(
    [build.reduce(ADD, [1], X), build.argsort(X + X)],
    {X: np.random.default_rng(0).standard_normal((20, 40)).astype(np.float32)},
    frozenset(),
)


def run_checked(program: RandomProgram) -> str | None:
    with using(check=True) as options:
        return disagreement(program, options)


def test_right_kernels_pass() -> None:
    small = [random_program(random.Random(f"check{i}"), 12, 1000 * i) for i in range(4)]
    assert run_checked(merged(small)) is None
    run_checked(PROGRAM)


@pytest.mark.usefixtures("on_cpu")
def test_a_rounding_on_the_way_may_go_either_way() -> None:
    x = np.random.default_rng(0).standard_normal((1000, 30), np.float32) * np.float32(2**-24)
    x[:, :2] = 1.0, 2.0**-8  # the sums lie about halfway between two numbers of bfloat16
    with using(check=True):
        rounded = lm.sum(lm.asarray(x), axis=1).cast(lm.bfloat16).cast(lm.float32).numpy()
    assert set(rounded) == {1.0, 1.0 + 2**-7}


@pytest.mark.usefixtures("on_cpu")
def test_a_wrong_text_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = CPrinter.print

    def wrong(self: CPrinter) -> tuple[str, int]:
        text, chunks = original(self)
        return text.replace("p1[", "p1[1 + "), chunks

    monkeypatch.setattr(CPrinter, "print", wrong)
    with pytest.raises(VerifyError) as caught:
        run_checked(replace_leaf(PROGRAM, 1))
    message = str(caught.value)
    assert "check: kernel reduce" in message
    assert "parameter 1 at 0: " in message
    assert "and the reference has" in message
    assert "bind(" in message


@pytest.mark.usefixtures("on_cpu")
def test_a_pass_that_breaks_an_invariant_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fusion that forgets which parameters its kernels write."""

    def fuse(sinks: list[Node], options: Options) -> Program:
        program = build_program(sinks, backends.CPU.fusion_target(options))
        ((launch,),) = program.steps
        parameters = tuple(replace(one, written=False) for one in launch.kernel.parameters)
        broken = replace(launch, kernel=replace(launch.kernel, parameters=parameters))
        return replace(program, steps=((broken,),))

    passes = [
        replace(step, function=fuse) if step.name == "fuse" else step for step in pipeline.PASSES
    ]
    monkeypatch.setattr(pipeline, "PASSES", passes)
    monkeypatch.setattr(profile.passes, "publish", lambda record: None)  # the tests' own verifier
    with using(check=True) as options, pytest.raises(VerifyError, match="are marked written"):
        pipeline.compile_source([X + X], options)


def test_a_wrong_schedule_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A nest that forgets the last row of everything."""

    def wrong(kernel: Kernel, schedule: object) -> Nest:
        nest = apply(kernel, ())
        row = nest.order[0]
        return replace(nest, splits=(SubLoops((row,), row.arg.size - 1),))

    monkeypatch.setattr(backends, "apply", wrong)
    monkeypatch.setattr(pipeline, "verify_nest", lambda nest: None)
    with pytest.raises(VerifyError, match="1 of 20 elements differ"):
        run_checked(replace_leaf(PROGRAM, 2))


@pytest.mark.usefixtures("on_cpu")
def test_a_wrong_sort_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong = "stride : &others) = i;", "stride : &others) = n - 1 - i;"
    text = c.helper_text
    assert right in text("c/sorts.c")
    monkeypatch.setattr(c, "helper_text", lambda *which: text(*which).replace(right, wrong))
    with pytest.raises(VerifyError, match="check: kernel sort"):
        run_checked(replace_leaf(PROGRAM, 3))


def replace_leaf(program: RandomProgram, number: int) -> RandomProgram:
    """The program in a shape of its own, so that nothing compiled earlier is found."""
    x = leaf(0, (20, 40 + number), float32)
    array = np.resize(program.leaves[X], x.shape)
    sinks = [build.reduce(ADD, [1], x), build.argsort(x)]
    return RandomProgram(sinks, {x: array}, frozenset())


def test_rows_without_elements_write_nothing() -> None:
    x = leaf(0, (33, 4, 0), float64)
    copy = build.cast(x, float16)
    sinks = [build.reduce(MAX, [1, 2], copy), copy]
    run_checked(RandomProgram(sinks, {x: np.zeros(x.shape)}, frozenset()))


def test_the_environment_switches_it_on() -> None:
    code = """
import sys, lamina
loaded = "lamina.explain.check" in sys.modules
print(loaded, (lamina.ones(2) + 1.0).numpy(), "lamina.explain.check" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "LAMINA_CHECK": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "False [2. 2.] True", done.stderr


def check_kernel(kernel: Kernel, before: list[np.ndarray], after: np.ndarray) -> str | None:
    arrays = dict(enumerate(before))
    return check.difference([Launch(kernel, (0, 1))], arrays, {**arrays, 1: after})


def copying(dtype: DType, rounded: bool = False) -> Kernel:
    axis = ix.axis(0, 8)
    load = Node(Op.LOAD, (axis,), Load(0, float64 if rounded else dtype))
    value = build.cast(load * load, dtype) if rounded else load
    source = Parameter(float64 if rounded else dtype, 8)
    return Kernel((source, Parameter(dtype, 8, True)), (Store(1, axis, value, (axis,)),), 1)


@pytest.mark.parametrize(("dtype", "near", "far"), [(float32, 1e-5, 1e-3), (float64, 1e-13, 1e-10)])
def test_floats_agree_within_a_tolerance(dtype: DType, near: float, far: float) -> None:
    ones = np.ones(8, dtype.numpy)
    for error, fine in ((near, True), (far, False), (np.nan, False), (np.inf, False)):
        after = ones.copy()
        after[5] += error
        wrong = check_kernel(copying(dtype), [ones, ones.copy()], after)
        assert (wrong is None) is fine
        assert fine or str(wrong).startswith("parameter 1 at 5: ")


@pytest.mark.parametrize("dtype", [int64, bool_])
def test_integers_agree_exactly_unless_made_of_rounded_floats(dtype: DType) -> None:
    zeros = np.zeros(8, dtype.numpy)
    after = zeros.copy()
    after[3] = 1
    assert check_kernel(copying(dtype), [zeros, zeros.copy()], after) is not None
    floats = np.zeros(8)
    rounded = copying(dtype, rounded=True)
    assert check_kernel(rounded, [floats, zeros.copy()], after) is None
    after[4] = 1
    assert check_kernel(rounded, [floats, zeros.copy()], after) is not None
