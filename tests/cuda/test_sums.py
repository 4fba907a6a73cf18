"""Sums of very many float32 numbers on a GPU: their kernels compile, and are as exact as those of a
CPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

import lamina as lm
from lamina import Tensor, pipeline
from lamina.compiled import Planned
from lamina.core import options
from lamina.core.dtypes import DType, bfloat16, float32
from lamina.frontend import execution
from lamina.frontend.realize import realize
from lamina.ir import build
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.runtime import cuda
from lamina.runtime.nvrtc import compile_source
from lamina.schedule.gpu.atoms import ATOMS
from tests.generators import leaf
from tests.sums import BOUND, CONSTANTS, SUMS, Sum, error, rounded

GPU = "cuda:0"


class CapturedError(Exception):
    """Has the program that was to run."""


def program_of(tensor: Tensor, monkeypatch: pytest.MonkeyPatch) -> Sequence[Node]:
    """What the pipeline is asked for when `tensor` is read."""

    def capture(sinks: Sequence[Node], *_: Any) -> None:
        raise CapturedError(sinks)

    realize()  # parameters of another test's module may wait: their program would come first
    monkeypatch.setattr(execution, "execute", capture)
    with pytest.raises(CapturedError) as captured:
        tensor.numpy()
    (sinks,) = captured.value.args
    return sinks  # type: ignore[no-any-return]


# Turns of the longest loop of a thread without blocks: of 4 unrolled additions each, chains of 64.
# `test_sums_of_one_number` says on a GPU what errors come of it.
MAX_TURNS = 16


def compiled(sinks: Sequence[Node]) -> Planned:
    return pipeline.compile_source(sinks, replace(options.current(), device=GPU))


def most_turns(text: str) -> int:
    """The most turns of a loop of a thread: 16 of ``i < 4096; i += 256``."""
    loops = re.findall(r"for \(i\d+ \w+ = [^;]+; \w+ < (\d+); \w+ \+= (\d+)\)", text)
    return max(int(end) // int(step) for end, step in loops)


@pytest.mark.parametrize("count", [1 << 28, 1 << 34])
@pytest.mark.parametrize("case", SUMS, ids=lambda case: case.__name__)
@pytest.mark.usefixtures("nvrtc")
def test_long_sums_compile(
    case: Callable[[float, int], Sum], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensor, _ = case(0.1, count)
    text = compiled(program_of(tensor, monkeypatch)).text
    has_blocks = re.search(r"for \(i64 \w+_block = 0;", text) is not None
    assert has_blocks or most_turns(text) <= MAX_TURNS
    assert compile_source(text, "sm_90a")[:4] == b"\x7fELF"


# Rows and as many columns, products of each result, and those of a part, which are a chain at most.
PRODUCTS_IN_PARTS = [(16, 1 << 19, 64), (64, 1 << 19, 512), (512, 1 << 18, 2048)]


def products_of_parts(size: int, length: int, dtype: DType = float32, tf32: bool = False) -> int:
    """How many products each part of a product of two matrices has."""
    shape = (size, size, length)
    factors = (build.expand(leaf(0, (size, 1, length), dtype), shape),
               build.expand(leaf(1, (1, size, length), dtype), shape))  # fmt: skip
    left, right = (build.cast(one, float32) for one in factors)
    with options.using(tf32=tf32):
        plans = compiled([build.reduce(ADD, (2,), left * right)]).plans.values()
    (product,) = (plan.nest.kernel for plan in plans if plan.nest.atom in ATOMS)
    (store,) = product.stores
    return length * size * size // product.parameters[store.parameter].size


@pytest.mark.parametrize(
    ("size", "length", "products"),
    [
        *PRODUCTS_IN_PARTS,
        (1024, 1 << 17, 1 << 12),
        (384, 1 << 16, 1 << 13),  # more parts would have 1.1 or 2.2 tiles a block
        (1024, 1 << 14, 1 << 14),  # short
        (4096, 1 << 17, 1 << 14),
        (1 << 14, 1 << 15, 1 << 15),  # many results
        (64, 50_001, 50_001),  # no whole steps
    ],
)
def test_tiles_add_up_few_products(size: int, length: int, products: int) -> None:
    """Their registers add up one step after the other."""
    assert products_of_parts(size, length) == products


def test_products_of_fewer_bits_have_long_parts() -> None:
    assert products_of_parts(64, 1 << 17, bfloat16) == 1 << 17
    assert products_of_parts(64, 1 << 17, tf32=True) == 1 << 17
    assert products_of_parts(64, 1 << 19, bfloat16) == 1 << 16


@pytest.fixture
def on_gpu(device: cuda.Device) -> Iterator[cuda.Device]:
    """New tensors live on the GPU."""
    with options.using(device=GPU):
        yield device


@pytest.mark.parametrize(("size", "length", "products"), PRODUCTS_IN_PARTS)
@pytest.mark.usefixtures("on_gpu")
def test_long_products(size: int, length: int, products: int) -> None:
    for value in (0.1, 1.3):
        left, right = lm.full((size, length), value), lm.full((length, size), 0.7)
        product = left.contiguous() @ right.contiguous()
        exact = length * rounded(value) * rounded(0.7)
        assert error(product, exact) <= products * 2.0**-25, value


@pytest.mark.parametrize("count", [1 << 26, 1 << 28, 1 << 32])
@pytest.mark.parametrize("case", SUMS, ids=lambda case: case.__name__)
@pytest.mark.usefixtures("on_gpu")
def test_sums_of_one_number(case: Callable[[float, int], Sum], count: int) -> None:
    for value in CONSTANTS:
        assert error(*case(value, count)) <= BOUND, value


@pytest.mark.parametrize("count", [4000, 4096, 4100, 9996])
def test_all_threads_take_part_in_each_step_of_a_scan(count: int) -> None:
    """Of values without a load too: a loop that some threads leave early would wait for ever."""
    lowered = lm.jit(lambda: lm.cumulative_sum(lm.sin(lm.arange(count).cast(lm.float32)))).lower(
        device="cuda:0", arch="sm_90a"
    )
    (text,) = [kernel.source for kernel in lowered.kernels if "SCAN(" in kernel.source]
    assert not re.search(r"for \([^)]*thread_in_row", text)
