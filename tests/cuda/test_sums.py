"""Sums of very many float32 numbers on a GPU: their kernels compile, and are as exact as those of a
CPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from lamina import Tensor, pipeline
from lamina.core import options
from lamina.core.dtypes import float32
from lamina.ir import build
from lamina.ir.kernel import points
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.runtime import cuda
from lamina.runtime.cuda import compile_source
from lamina.schedule.gpu.products import PRODUCTS
from tests.generators import leaf
from tests.sums import BOUND, CONSTANTS, SUMS, Sum, error

GPU = "cuda:0"


class CapturedError(Exception):
    """Has the program that was to run."""


def program_of(tensor: Tensor, monkeypatch: pytest.MonkeyPatch) -> Sequence[Node]:
    """What the pipeline is asked for when `tensor` is read."""

    def capture(sinks: Sequence[Node], *_: Any) -> None:
        raise CapturedError(sinks)

    monkeypatch.setattr(pipeline, "execute", capture)
    with pytest.raises(CapturedError) as captured:
        tensor.numpy()
    (sinks,) = captured.value.args
    return sinks  # type: ignore[no-any-return]


def compiled(sinks: Sequence[Node]) -> pipeline.Planned:
    return pipeline.compile_source(sinks, replace(options.current(), device=GPU))


@pytest.mark.parametrize("count", [1 << 28, 1 << 34])
@pytest.mark.parametrize("case", SUMS, ids=lambda case: case.__name__)
@pytest.mark.usefixtures("nvrtc")
def test_long_sums_compile(
    case: Callable[[float, int], Sum], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensor, _ = case(0.1, count)
    text = compiled(program_of(tensor, monkeypatch)).text
    assert re.search(r"for \(i64 \w+_block = 0;", text)  # a loop over blocks
    assert compile_source(text, "sm_90a")[:4] == b"\x7fELF"


@pytest.mark.parametrize(("steps", "parts"), [(1 << 17, 1), (1 << 19, 8)])
def test_tiles_add_up_few_enough_products(steps: int, parts: int) -> None:
    """Their registers add up one step after the other."""
    shape = (1024, 1024, steps)
    left = build.expand(leaf(0, (1024, 1, steps), float32), shape)
    right = build.expand(leaf(1, (1, 1024, steps), float32), shape)
    plans = compiled([build.reduce(ADD, (2,), left * right)]).plans.values()
    (product,) = (plan.nest.kernel for plan in plans if plan.nest.product in PRODUCTS)
    assert points(product.row_axes) == parts * 1024 * 1024


@pytest.fixture
def on_gpu(device: cuda.Device) -> Iterator[cuda.Device]:
    """New tensors live on the GPU."""
    with options.using(device=GPU):
        yield device


@pytest.mark.parametrize("count", [1 << 26, 1 << 28, 1 << 32])
@pytest.mark.parametrize("case", SUMS, ids=lambda case: case.__name__)
@pytest.mark.usefixtures("on_gpu")
def test_sums_of_one_number(case: Callable[[float, int], Sum], count: int) -> None:
    for value in CONSTANTS:
        assert error(*case(value, count)) <= BOUND, value
