"""Loads under a condition that all or none of a run of neighbours meet are one access."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lamina as lm
from lamina import Tensor, TensorSpec
from lamina.core import options
from lamina.core.dtypes import int64
from lamina.frontend.lowered import Lowered
from lamina.graph import index as ix
from lamina.ir.node import Node, const
from lamina.ir.ops import Op
from lamina.runtime import cuda
from lamina.runtime.nvrtc import compile_source
from tests.cuda.on_host import run_on_host

HALF = 64


def rotated(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Halves of rows as pairs that are rotated (Su et al. 2021)."""
    first, second = x[..., :HALF], x[..., HALF:]
    return lm.concat([first * cosines - second * sines, second * cosines + first * sines], axis=-1)


def padded(x: Tensor) -> Tensor:
    return lm.pad(x, ((0, 0), (8, 16)))


def joined(x: Tensor, y: Tensor) -> Tensor:
    return lm.concat([x, y, x], axis=1)


def joined_unaligned(x: Tensor, y: Tensor) -> Tensor:
    return lm.concat([x[:, :7], y[:, 1:]], axis=1)


class Case(NamedTuple):
    """A function, the shapes of its arguments, and whether it reads runs of eight, of all arrays
    or of none; None where of some."""

    function: Callable[..., Tensor]
    shapes: list[tuple[int, ...]]
    has_runs: bool | None = True


ROWS = 4099  # so many that each thread has several elements
MANY = 1 << 19
def joined_apart(x: Tensor, z: Tensor, w: Tensor) -> Tensor:
    """Neighbours of a result that are so in memory only by fours."""
    k = lm.arange(z.shape[0], dtype=lm.int64)
    return lm.concat([x[k + 8 * (k // 4)] + z + w, z, w])


def gathered_rows(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """The rows of both ends of each edge, side by side."""
    ends = (end.cast(lm.int64) % x.shape[0] for end in (first, second))
    return lm.concat([x[end] for end in ends], axis=1)


CASES = [
    Case(gathered_rows, [(50, 64), (ROWS,), (ROWS,)]),
    Case(rotated, [(ROWS, 2 * HALF), (ROWS, HALF), (ROWS, HALF)]),
    Case(padded, [(ROWS, 128)]),
    Case(joined, [(ROWS, 64), (ROWS, 32)]),
    Case(joined_apart, [(9 * MANY,), (MANY,), (MANY,)], has_runs=None),
    Case(joined_unaligned, [(ROWS, 64), (ROWS, 32)], has_runs=False),
]
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.function.__name__)
each_dtype = pytest.mark.parametrize("dtype", [lm.float32, lm.bfloat16], ids=str)


def lowered(case: Case, arch: str) -> Lowered:
    specs = [TensorSpec(shape, lm.bfloat16) for shape in case.shapes]
    return lm.jit(case.function).lower(*specs, device="cuda:0", arch=arch)


@each_case
def test_runs_are_loaded_at_once(case: Case) -> None:
    text = lowered(case, "sm_90a").planned.text
    if case.has_runs is not None:
        assert ("load_run_where<8>" in text) == case.has_runs


def test_neighbours_by_fours_are_no_run_of_eight() -> None:
    case = next(case for case in CASES if case.function is joined_apart)
    text = lowered(case, "sm_90a").planned.text
    assert "idiv" in text
    runs = re.findall(r"load_run_where<8>\([^;]*", text)
    assert runs
    assert not any("idiv" in run for run in runs)


@pytest.mark.usefixtures("nvrtc")
@each_case
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_nvrtc_accepts_the_text(case: Case, arch: str) -> None:
    assert compile_source(lowered(case, arch).planned.text, arch)


@each_case
@pytest.mark.parametrize("dtype", [lm.float32, lm.int8, lm.float64], ids=str)
def test_results_on_the_host(case: Case, dtype: lm.DType, tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    arrays = [rng.integers(-4, 5, shape).astype(dtype.numpy) for shape in case.shapes]
    specs = [TensorSpec(shape, dtype) for shape in case.shapes]
    planned = lm.jit(case.function).lower(*specs, device="cuda:0", arch="sm_90a").planned
    (got,) = run_on_host(planned, arrays, tmp_path)
    with options.using(device="cpu"):
        want = case.function(*map(Tensor, arrays)).numpy()
    np.testing.assert_array_equal(got, want.reshape(-1))


@each_case
@each_dtype
def test_results_on_a_gpu(device: cuda.Device, case: Case, dtype: lm.DType) -> None:
    rng = np.random.default_rng(5)
    arrays = [rng.integers(-4, 5, shape).astype(np.float32) for shape in case.shapes]
    function = lm.jit(case.function)
    with options.using(device=device.name):
        result = function(*(Tensor(array).cast(dtype) for array in arrays))
        got = result.cast(lm.float32).numpy()
    with options.using(device="cpu"):
        want = case.function(*map(Tensor, arrays)).numpy()
    np.testing.assert_array_equal(got, want)


@given(
    outer=st.integers(-40, 40), inner=st.integers(-4, 4), constant=st.integers(-70, 70),
    length=st.sampled_from([2, 4, 8]),
)  # fmt: skip
def test_uniform_runs(outer: int, inner: int, constant: int, length: int) -> None:
    i, j = ix.axis(0, 5), ix.axis(1, 16)
    index = ix.add(ix.scale(i, outer, constant), ix.scale(j, inner))
    condition = Node(Op.LT, (index, const(0, int64)))
    if ix.is_uniform_in_runs(condition, j, length):
        numbers = np.add.outer(outer * np.arange(5), inner * np.arange(16)) + constant
        runs = (numbers < 0).reshape(5, -1, length)
        assert (runs == runs[..., :1]).all()


@pytest.mark.parametrize(("size", "uniform"), [(64, True), (60, False), (8, True), (4, False)])
def test_runs_of_eight(size: int, uniform: bool) -> None:
    i, j = ix.axis(0, 16), ix.axis(1, 8)
    condition = Node(Op.LT, (ix.add(ix.scale(i, 8), j), const(size, int64)))
    assert ix.is_uniform_in_runs(condition, j, 8) == uniform
    assert ix.is_uniform_in_runs(condition, j, 4)
